"""Clients of the old era give up a call by a request of its own, which may come to another process than the
one that serves the call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inside import until
from tests.mcp.clients import DOORS, LEGACY
from tests.mcp.scene import Behind, policy
from tests.mcp.servers import Shop
from tests.mcp.test_cancelling import text_of
from tests.mcp.wire import Wire
from tests.process import SemelProcess


@DOORS
@pytest.mark.parametrize("when", ["before", "after"])
async def test_given_up_at_another_process(tmp_path: Path, shop: Shop, door: str, when: str) -> None:
    """Before or after the call has its answer: made again, at either of them, it is the same call."""
    file = tmp_path / "shop.yaml"
    file.write_text(policy(shop.ports[door]))
    shop.ledger.holds()
    async with SemelProcess(tmp_path / "state", file) as one, SemelProcess(tmp_path / "state", file) as two:
        here = await Behind(one.port).wire(LEGACY, "night+a1")
        there = Wire(two.port, here.path, LEGACY, here.headers)
        first = here.calling("pay", {"order": "1"}, 5)
        await until(lambda: shop.ledger.count("pay"))
        if when == "after":
            shop.ledger.lets_go()
            await first
        assert (await there.say("notifications/cancelled", {"requestId": 5})).status == 202
        if when == "before":
            shop.ledger.lets_go()
            await first
        again = await here.call("pay", {"order": "1"}, 6)
        assert (again.semel, text_of(again)) == ("replayed", "payment 1")
        meant = await here.call("pay", {"order": "1"}, 7)
        assert (meant.semel, text_of(meant)) == ("executed", "payment 2")
    assert shop.ledger.count("pay") == 2
