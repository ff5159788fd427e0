"""What client and server of a stdio session have to say to each other beside plain calls, and at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from mcp import Client

from tests.inside import until
from tests.mcp.bridging import OPEN, Scene, call_of, problem_in, text_of
from tests.mcp.clients import ERAS, LEGACY, Told, call, problem_of

MANY = 20
UNAVAILABLE = "urn:semel:answer-unavailable"


@ERAS
async def test_a_session_of_either_era(scene: Scene, era: str) -> None:
    """The package's client: twenty different calls at once, one that tells how it goes, one that asks the
    client in its course (on the way, or in the new era by an answer that is none). The next attempt hears the
    answers again; what is given again has no progress to tell, and what was asked on the way is good once."""
    scene, heard = replace(scene, server="shop"), list[float]()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async def session(at: Client) -> None:
        told = await asyncio.gather(*(call(at, f"tool_{n:02}", {"order": "1"}) for n in range(MANY)))
        assert told == [Told(f"tool_{n:02} 1") for n in range(MANY)]
        await at.call_tool("pay_in_steps", {"order": "1"}, progress_callback=hear)
        assert heard == [1, 2]

    async with scene.client(era, "night+a1") as at:
        await session(at)
        assert await call(at, "pay_if_agreed", {"order": "1"}) == Told("payment 1, agreed: True")
    async with scene.client(era, "night+a2") as at:
        await session(at)
        if era == LEGACY:
            assert (await problem_of(at, "pay_if_agreed", {"order": "1"}))["type"] == UNAVAILABLE
        else:
            assert await call(at, "pay_if_agreed", {"order": "1"}) == Told("payment 1, agreed: True")
    assert scene.ledger.count("pay_if_agreed") == 1
    assert scene.ledger.count("asked") == 1
    assert len(scene.ledger.lines) == MANY + 3


@pytest.mark.parametrize("run", ["", "night+a1"], ids=["outside", "run"])
async def test_twenty_identical_calls_at_once(scene: Scene, run: str) -> None:
    """One execution; everyone hears it, under its own id, once."""
    scene.ledger.holds()
    async with scene.by_hand(run) as bridge:
        ids: list[Any] = [*range(10), *(f"text {n}" for n in range(10))]
        await bridge.say(*(call_of("pay", {"order": "1"}, id_) for id_ in ids))
        await until(lambda: scene.ledger.count("pay"), within=30)
        await bridge.ask("ping", id="ping")  # all that was said before is heard
        if run:
            await scene.used(len(ids))
        scene.ledger.lets_go()
        assert {text_of(await bridge.answer(id_)) for id_ in ids} == {"pay 1"}
        assert all(len(bridge.answers(id_)) == 1 for id_ in ids)
    assert scene.ledger.lines == ["pay 1"]
    assert await scene.states() == ["done"]


async def test_two_bridges_make_one_call(scene: Scene) -> None:
    """On one record, at once: one of the two servers executes it, both clients hear that."""
    scene.ledger.holds()
    async with scene.by_hand("night+a1") as one, scene.by_hand("night+a1") as other:
        for bridge in (one, other):
            await bridge.ask("ping", id="ping")
        for bridge in (one, other):
            await bridge.say(call_of("pay", {"order": "1"}, 1))
        await scene.used(2)  # whoever comes after the answer has made a second payment of its own
        scene.ledger.lets_go()
        assert [text_of(await bridge.answer(1)) for bridge in (one, other)] == ["pay 1"] * 2
    assert scene.ledger.lines == ["pay 1"]


async def test_notifications_both_ways(scene: Scene) -> None:
    """What the client notes reaches the server, in order, to the byte; what the server notes the client."""
    async with scene.by_hand() as bridge:
        await bridge.opened()
        await bridge.say({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await bridge.say(call_of("flood", id=5, _meta={"progressToken": "p"}))
        assert text_of(await bridge.answer(5)) == "flood 1"
        notes = [each["method"] for each in bridge.messages if "method" in each]
        assert notes == ["notifications/progress", *["notifications/message"] * 200]
    heard = [line.split()[1] for line in scene.ledger.lines if line.startswith("heard")]
    assert heard == ["notifications/initialized", "notifications/roots/list_changed"]


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
async def test_the_server_asks_the_client(scene: Scene, method: str) -> None:
    """Its questions reach the client, the answers the server. What was decided by such an answer is good
    once: asked again, it is neither sent nor given."""
    wanted = {"order": "1", "method": method}
    async with scene.by_hand("night+a1") as bridge:
        await bridge.ask("initialize", OPEN)
        await bridge.say(call_of("asks", wanted, 7))
        asked = await bridge.request(method)
        await bridge.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"said": "yes"}})
        assert text_of(await bridge.answer(7)) == "asks 1: {'said': 'yes'}"
    async with scene.by_hand("night+a2") as bridge:
        answer = await bridge.call("asks", wanted, 8)
        if method == "roots/list":  # nobody decides anything by it
            assert text_of(answer) == "asks 1: {'said': 'yes'}"
        else:
            assert problem_in(answer) == "answer-unavailable"
            assert "asked the client" in answer["error"]["data"]["detail"]
    assert scene.ledger.count("asks") == 1


async def test_a_long_answer_after_a_question(scene: Scene) -> None:
    """One that is too long to be read is good once too."""
    wanted = {"order": "1", "method": "elicitation/create", "pad": 9 * 2**20}
    async with scene.by_hand() as bridge:
        await bridge.say(call_of("asks", wanted, 7))
        asked = await bridge.request("elicitation/create")
        await bridge.say({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
        assert len(text_of(await bridge.answer(7))) > 9 * 2**20
        assert problem_in(await bridge.call("asks", wanted, 8)) == "answer-unavailable"
    assert scene.ledger.count("asks") == 1


async def test_what_is_no_call_goes_by(scene: Scene) -> None:
    """Requests, with whatever they carry, also unknown ones and those with ids of their own kind."""
    async with scene.by_hand("night+a1") as bridge:
        for id_ in (1, "one", "1", 0):
            answer = await bridge.ask("x/unknown", {"deep": [1, {"2": None}]}, id_)
            assert answer["result"] == {"method": "x/unknown", "params": {"deep": [1, {"2": None}]}}
        answer = await bridge.ask("tools/list", id=9)
        assert [tool["name"] for tool in answer["result"]["tools"]] == ["look", "pay", "wipe"]
    assert await scene.states() == []


async def test_a_client_of_node(scene: Scene) -> None:
    """Its pipes are sockets."""
    async with scene.by_hand(sockets=True) as bridge:
        assert text_of(await bridge.call("pay", {"order": "1"}, 1)) == "pay 1"
        assert text_of(await bridge.call("large", {"size": 300_000}, 2)) == "x" * 300_000
        bridge.leave()
        assert await bridge.ended() == 0
    async with scene.by_hand(sockets=True) as bridge:
        assert text_of(await bridge.call("large", {"size": 300_000}, 2)) == "x" * 300_000
    assert scene.ledger.count() == 2
