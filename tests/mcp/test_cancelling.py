"""A client that gives up says so to its server. For a call with effects that is not handed on: whether it is
too late nobody could say afterwards. For everything else it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.inside import until
from tests.mcp.clients import DOORS, LEGACY, Told, call, client, times_out
from tests.mcp.ledger import CANCELLED
from tests.mcp.scene import inside
from tests.mcp.servers import Shop
from tests.mcp.tap import Tap
from tests.mcp.wire import Heard

METHOD = b"notifications/cancelled"
SAFE = """\
rules:
  - name: look
    match: {tool: pay}
    safe: true
"""


@DOORS
@pytest.mark.parametrize("run", ["", "night+a1"], ids=["outside", "in a run"])
async def test_a_call_with_effects_is_not_called_off(tmp_path: Path, shop: Shop, door: str, run: str) -> None:
    """semel takes the word and keeps it; the call comes to its end, for whoever asks again."""
    shop.ledger.holds()
    async with Tap(shop.ports[door]) as far, inside(tmp_path, far.port) as semel:
        wire = await semel.wire(LEGACY, run)
        for id_ in (5, "5"):
            shop.ledger.holds()
            first = wire.calling("pay", {"order": f"{id_!r}"}, id_)
            await until(lambda: shop.ledger.hold.exists() and f"pay {id_!r}" in shop.ledger.lines)  # noqa: B023
            off = await wire.say("notifications/cancelled", {"requestId": id_, "reason": "too slow"})
            assert (off.status, off.answer.body) == (202, b"")
            second = wire.calling("pay", {"order": f"{id_!r}"}, "next")
            shop.ledger.lets_go()
            assert text_of(await first) == text_of(await second)
            third = await wire.call("pay", {"order": f"{id_!r}"}, "last")
            assert (third.semel, text_of(third)) == ("replayed", text_of(await first)), "it is owed to 5"
        assert METHOD not in far.sent_up
    assert CANCELLED not in shop.ledger.lines
    assert shop.ledger.count("pay") == 2


def text_of(heard: Heard) -> str:
    text: str = heard.last["result"]["content"][0]["text"]
    return text


@DOORS
async def test_in_a_run_who_gave_up_is_owed_the_answer(tmp_path: Path, shop: Shop, door: str) -> None:
    """The answer still goes out on the old request, where nobody reads it: the word that it is not wanted is
    the evidence that the next call is the same one again, and no second payment."""
    shop.ledger.holds()
    async with inside(tmp_path, shop.ports[door]) as semel:
        wire = await semel.wire(LEGACY, "night+a1")
        first = wire.calling("pay", {"order": "1"}, 5)
        await until(lambda: shop.ledger.count("pay"))
        assert (await wire.say("notifications/cancelled", {"requestId": 5})).status == 202
        shop.ledger.lets_go()
        await first
        again = await wire.call("pay", {"order": "1"}, 6)
        assert (again.semel, text_of(again)) == ("replayed", "payment 1")
        meant = await wire.call("pay", {"order": "1"}, 7)
        assert (meant.semel, text_of(meant)) == ("executed", "payment 2")
    assert shop.ledger.count("pay") == 2


async def test_by_the_client_itself(tmp_path: Path, shop: Shop) -> None:
    """The old era's client sends the word when it has waited long enough."""
    shop.ledger.holds()
    async with Tap(shop.ports["sse"]) as far, inside(tmp_path, far.port) as semel, Tap(semel.port) as near:
        async with client(f"{near.url}{semel.path()}", LEGACY) as at:
            await times_out(at, "pay", {"order": "1"})
            await until(lambda: METHOD in near.sent_up)
            again = asyncio.create_task(call(at, "pay", {"order": "1"}))
            shop.ledger.lets_go()
            assert await again == Told("payment 1")
        assert METHOD not in far.sent_up
    assert shop.ledger.lines == ["pay 1"]


@DOORS
async def test_something_else_is_called_off(tmp_path: Path, shop: Shop, door: str) -> None:
    """A slow resource is read: the server hears that nobody waits for it."""
    shop.ledger.holds()
    async with Tap(shop.ports[door]) as far, inside(tmp_path, far.port) as semel:
        wire = await semel.wire(LEGACY)
        reading = asyncio.create_task(wire.ask("resources/read", {"uri": "stock://slow"}, id="slow"))
        await until(lambda: shop.ledger.count("slow_stock"))
        off = await wire.say("notifications/cancelled", {"requestId": "slow"})
        assert (off.status, off.semel) == (202, "passed")
        await until(lambda: CANCELLED in shop.ledger.lines)
        assert METHOD in far.sent_up
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_what_nobody_knows_of_is_not_called_off(tmp_path: Path, shop: Shop) -> None:
    """Another session's id, one of another kind, one that is long over: no call is stopped by it."""
    shop.ledger.holds()
    async with inside(tmp_path, shop.ports["json"]) as semel:
        wire, other = await semel.wire(LEGACY), await semel.wire(LEGACY)
        first = wire.calling("pay", {"order": "1"}, 5)
        await until(lambda: shop.ledger.count("pay"))
        for params in ({"requestId": "5"}, {"requestId": 6}, {}, {"requestId": [5]}, {"requestId": None}):
            assert (await wire.say("notifications/cancelled", params)).status < 500
        assert (await other.say("notifications/cancelled", {"requestId": 5})).status == 202
        shop.ledger.lets_go()
        assert text_of(await first) == "payment 1"
    assert shop.ledger.lines == ["pay 1"]


async def test_a_call_that_a_rule_calls_safe(tmp_path: Path, shop: Shop) -> None:
    """It is a call all the same: it comes to its end, and is given again in a run."""
    shop.ledger.holds()
    async with inside(tmp_path, shop.ports["json"], SAFE) as semel:
        wire = await semel.wire(LEGACY, "night+a1")
        first = wire.calling("pay", {"order": "1"}, 5)
        await until(lambda: shop.ledger.count("pay"))
        assert (await wire.say("notifications/cancelled", {"requestId": 5})).status == 202
        shop.ledger.lets_go()
        await asyncio.wait([first], timeout=5)
        assert first.done(), "whoever called it off is not left waiting for ever"
