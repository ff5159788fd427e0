"""A client that gives up a call no longer waits for it; the call goes on, and is the same when it is made
again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.inside import until
from tests.mcp.bridging import META, Bridge, Scene, call_of, cancel_of, text_of
from tests.mcp.clients import ERAS, Told, call, times_out

BOTH = pytest.mark.parametrize("meta", [{}, META], ids=["legacy", "modern"])


def heard(scene: Scene) -> list[str]:
    return [line for line in scene.ledger.lines if line.startswith("heard notifications/cancelled")]


async def is_done(scene: Scene, states: list[str]) -> None:
    for _ in range(500):
        if await scene.states() == states:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{await scene.states()}")


async def is_settled(bridge: Bridge) -> None:
    """Everything that was said before this has been heard, on both sides."""
    await bridge.ask("ping", id=f"ping {len(bridge.heard)}")


@BOTH
@pytest.mark.parametrize("run", ["", "night+a1"], ids=["outside", "run"])
async def test_a_call_goes_on(scene: Scene, run: str, meta: dict[str, Any]) -> None:
    """The server does not hear of it, the call is finished and recorded, its id is not answered. Made again
    before the end, long after it, and once more: one execution."""
    scene.ledger.holds()
    async with scene.by_hand(run) as bridge:
        await bridge.say(call_of("pay", {"order": "1"}, 1, _meta=meta))
        await until(lambda: scene.ledger.count("pay"), within=30)
        await bridge.say(cancel_of(1), call_of("pay", {"order": "1"}, 2, _meta=meta), cancel_of(2))
        await is_settled(bridge)
        scene.ledger.lets_go()
        await is_done(scene, ["done"])
        await is_settled(bridge)
        assert text_of(await bridge.call("pay", {"order": "1"}, 3, _meta=meta)) == "pay 1"
        await is_settled(bridge)
        assert not bridge.answers(1)
        assert not bridge.answers(2)
    assert scene.ledger.lines == ["pay 1"]


async def test_a_call_is_given_up_when_its_answer_is_on_the_way(scene: Scene) -> None:
    """The client had not seen it: in a run the same call, made again, is that one. Then it counts."""
    async with scene.by_hand("night+a1") as bridge:
        await bridge.call("pay", {"order": "1"}, 1)
        await bridge.say(cancel_of(1))
        assert text_of(await bridge.call("pay", {"order": "1"}, 2)) == "pay 1"
        assert text_of(await bridge.call("pay", {"order": "1"}, 3)) == "pay 2"
    assert scene.ledger.lines == ["pay 1", "pay 1"]


async def test_other_requests_are_called_off(scene: Scene) -> None:
    """The server hears of it, and of one that it has not seen nobody tells it."""
    async with scene.by_hand() as bridge:
        await bridge.say({"jsonrpc": "2.0", "id": 4, "method": "slow"}, cancel_of(4))
        await bridge.say(cancel_of("4"), cancel_of(5), cancel_of(4), cancel_of(None), cancel_of([4]))
        await is_settled(bridge)
    assert heard(scene) == ['heard notifications/cancelled {"requestId": 4}']


@ERAS
async def test_a_late_payment_is_one_payment(scene: Scene, era: str) -> None:
    """The package's client has no more patience and calls again, while it runs and after it. The server is
    not told to stop."""
    scene, paid = replace(scene, server="shop"), 0
    async with scene.client(era, "night+a1") as at:
        await at.list_tools()
        for when in ("before", "after"):
            scene.ledger.holds()
            await times_out(at, "pay", {"order": when})
            paid += 1
            assert scene.ledger.count("pay") == paid
            if when == "after":
                scene.ledger.lets_go()
                await is_done(scene, ["done"] * paid)
            again = asyncio.create_task(call(at, "pay", {"order": when}))
            await asyncio.sleep(0.05)  # to join; if it comes too late, it is the other case
            scene.ledger.lets_go()
            assert await again == Told(f"payment {paid}")
    assert scene.ledger.lines == ["pay before", "pay after"]


async def test_a_client_that_reconnects_within_its_attempt(scene: Scene) -> None:
    """It closed its end in the middle of a call and starts the server anew: the call is still the same."""
    scene.ledger.holds()
    async with scene.by_hand("night+a1") as bridge:
        await bridge.say(call_of("pay", {"order": "1"}, 1))
        await until(lambda: scene.ledger.count("pay"), within=30)
        bridge.leave()
        async with scene.by_hand("night+a1") as second:
            await second.say(call_of("pay", {"order": "1"}, 1))
            await is_settled(second)
            scene.ledger.lets_go()
            assert text_of(await second.answer(1)) == "pay 1"
        assert await bridge.ended() == 0
    assert scene.ledger.lines == ["pay 1"]


async def test_a_client_that_reconnects_later(scene: Scene) -> None:
    """The same when the call was over before: whoever had left took nothing, though it was written."""
    scene.ledger.holds()
    async with scene.by_hand("night+a1") as bridge:
        await bridge.say(call_of("pay", {"order": "1"}, 1))
        await until(lambda: scene.ledger.count("pay"), within=30)
        bridge.leave()
        await asyncio.sleep(0.2)  # so that this is known before the answer comes
        scene.ledger.lets_go()
        assert await bridge.ended() == 0
    async with scene.by_hand("night+a1") as bridge:
        assert text_of(await bridge.call("pay", {"order": "1"}, 1)) == "pay 1"
        assert text_of(await bridge.call("pay", {"order": "1"}, 2)) == "pay 2"
    assert scene.ledger.lines == ["pay 1", "pay 1"]
