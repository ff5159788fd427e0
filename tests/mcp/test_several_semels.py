"""Several semels on one store behind one address: it must not matter which of them hears what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inside import until
from tests.mcp.clients import ERAS, LEGACY
from tests.mcp.scene import Behind, inside
from tests.mcp.servers import Shop
from tests.mcp.wire import Wire


def same_session(wire: Wire, semel: Behind, run: str = "") -> Wire:
    return Wire(semel.port, semel.path(run), wire.era, wire.headers)


@ERAS
@pytest.mark.parametrize("run", ["", "night"], ids=["outside", "in a run"])
async def test_joined_and_given_again_elsewhere(
    tmp_path: Path, shop: Shop, era: str, run: str, some_store: None
) -> None:
    """One process sends, another one's caller waits for it and hears its own id; later it is given again. In
    a run they are two attempts of it."""
    shop.ledger.holds()
    async with inside(tmp_path, shop.ports["sse"]) as one, inside(tmp_path, shop.ports["sse"]) as two:
        here = await one.wire(era, run and f"{run}+a1")
        there = same_session(here, two, run and f"{run}+a2")
        first = here.calling("pay", {"order": "1"}, 1)
        await until(lambda: shop.ledger.count("pay"))
        second = there.calling("pay", {"order": "1"}, "two")
        shop.ledger.lets_go()
        said = [await first, await second]
        assert [each.last["id"] for each in said] == [1, "two"]
        assert {each.last["result"]["content"][0]["text"] for each in said} == {"payment 1"}
        later = same_session(here, two, run and f"{run}+a3")
        assert (await later.call("pay", {"order": "1"}, 3)).semel == "replayed"
    assert shop.ledger.lines == ["pay 1"]


async def test_given_up_elsewhere(tmp_path: Path, shop: Shop) -> None:
    """In a run: the word that the client gave up comes to another process than the call."""
    shop.ledger.holds()
    async with inside(tmp_path, shop.ports["json"]) as one, inside(tmp_path, shop.ports["json"]) as two:
        here = await one.wire(LEGACY, "night+a1")
        there = same_session(here, two, "night+a1")
        first = here.calling("pay", {"order": "1"}, 5)
        await until(lambda: shop.ledger.count("pay"))
        assert (await there.say("notifications/cancelled", {"requestId": 5})).status == 202
        shop.ledger.lets_go()
        await first
        await here.call("pay", {"order": "1"}, 6)
    assert shop.ledger.lines == ["pay 1"]
