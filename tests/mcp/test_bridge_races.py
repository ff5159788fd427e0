"""Pipes that nobody reads, servers that stop listening, answers without end: nothing blocks for ever, nothing
is executed twice, and what is held in memory has a bound."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.test_run_process import alive
from tests.inside import until
from tests.mcp.bridging import Bridge, Scene, call_of, problem_in, text_of

MIB = 1024 * 1024


def memory(pid: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def stalls(bridge: Bridge, scene: Scene) -> None:
    """More is under way to a client that does not read than fits into a pipe."""
    await bridge.say(call_of("pay", {"order": "1"}, 1), call_of("flood", {"order": "1"}, 2))
    await until(lambda: scene.ledger.count("flood"), within=30)
    await asyncio.sleep(0.3)


@pytest.mark.parametrize("end", ["eof", "signal"])
async def test_a_client_that_does_not_read_and_leaves(scene: Scene, end: str) -> None:
    """What is under way is recorded all the same, and the end does not wait for the client."""
    async with scene.by_hand("night+a1", reads=False) as bridge:
        await stalls(bridge, scene)
        scene.ledger.holds()
        await bridge.say(call_of("pay", {"order": "2"}, 3))
        await until(lambda: scene.ledger.count("pay") == 2)
        began = time.monotonic()
        if end == "eof":
            bridge.leave()
        else:
            bridge.signal(signal.SIGTERM)
        scene.ledger.lets_go()
        assert await bridge.ended() == 0
        assert time.monotonic() - began < 15
    assert await scene.states() == ["done"] * 3
    async with scene.by_hand("night+a2") as bridge:
        for n, (tool, order) in enumerate([("pay", "1"), ("pay", "2"), ("flood", "1")]):
            assert "result" in await bridge.call(tool, {"order": order}, n)
    assert scene.ledger.count() == 3


async def test_a_client_that_is_slow(scene: Scene) -> None:
    """It reads after a while, and has everything then, in order."""
    async with scene.by_hand("night+a1", reads=False) as bridge:
        await stalls(bridge, scene)
        bridge.read_on()
        assert text_of(await bridge.answer(2)) == "flood 1"
        numbers = [each["params"]["n"] for each in bridge.messages if "params" in each]
        assert numbers == list(range(200))


async def test_a_client_that_only_asks(scene: Scene) -> None:
    """It never takes an answer, and asks on and on: it is not read any more, and memory stays bounded."""
    scene = replace(
        scene,
        env={"SEMEL_LIMITS_REQUEST_BODY": "1MiB"},
        more="rules: [{name: a, match: {tool: '*'}, safe: true}]",
    )
    async with scene.by_hand(reads=False) as bridge:
        await bridge.say(call_of("pay", {"order": "1"}, "first"))
        await until(lambda: scene.ledger.count("pay"), within=30)
        before = memory(bridge.pid)
        line = json.dumps(call_of("large", {"size": 100_000, "pad": "x" * 50_000}, "ID")).encode() + b"\n"

        async def ask_on() -> None:
            for n in range(2000):
                await bridge.say(line.replace(b"ID", b"%d" % n))

        asking = asyncio.create_task(ask_on())
        done, _ = await asyncio.wait({asking}, timeout=3)
        assert not done, "a hundred megabytes were taken from somebody who reads nothing"
        assert memory(bridge.pid) - before < 60 * MIB
        bridge.signal(signal.SIGKILL)
        await bridge.ended()
        with pytest.raises(BrokenPipeError):
            await asking


async def test_very_large_answers(scene: Scene) -> None:
    """Larger than what is kept in memory or in a row; given again whole, by the next bridge too."""
    for attempt in ("night+a1", "night+a2"):
        async with scene.by_hand(attempt) as bridge:
            await bridge.say(
                call_of("large", {"size": 9 * MIB}, "a"), call_of("large", {"size": 70_000}, "b")
            )
            assert len(text_of(await bridge.answer("a"))) == 9 * MIB
            assert len(text_of(await bridge.answer("b"))) == 70_000
    assert scene.ledger.count() == 2


async def test_a_server_that_reads_no_more(scene: Scene) -> None:
    """It closed its stdin and lives: a call that was not sent says so, and one that was is in doubt."""
    async with scene.by_hand("night+a1") as bridge:
        await bridge.say(call_of("deaf", {"order": "1"}, 1))
        await bridge.request("notifications/closed")
        await bridge.call("pay", {"order": "1"}, 2)  # a read that had begun takes it, or nobody does
        answers = [await bridge.call("pay", {"order": str(n)}, n) for n in (3, 4)]
        assert problem_in(answers[0]) in ("upstream-unreachable", "in-doubt")
        assert problem_in(answers[1]) == "upstream-unreachable"
        server = await bridge.started()
        bridge.signal(signal.SIGTERM)
        await asyncio.sleep(0.1)
        bridge.signal(signal.SIGTERM)
        assert await bridge.ended() == 0
        assert not alive(server)
    assert scene.ledger.lines in (["deaf 1"], ["deaf 1", "pay 1"])


async def test_a_server_that_ends_while_calls_are_made(scene: Scene) -> None:
    """Claimed, sent or neither: each caller hears one of the two, and none is executed twice."""
    async with scene.by_hand("night+a1") as bridge:
        calls = [call_of("pay", {"order": str(n)}, n) for n in range(30)]
        await bridge.say(*calls[:10], call_of("die", {}, "die"), *calls[10:])
        await bridge.ended()
        await until(bridge.eof.is_set)
        told = {answer["id"]: "" if "result" in answer else problem_in(answer) for answer in bridge.messages}
        assert set(told.values()) <= {"", "in-doubt", "upstream-unreachable"}, told
    async with scene.by_hand("night+a2") as bridge:
        for n in range(30):
            answer = await bridge.call("pay", {"order": str(n)}, n)
            # What could not be sent is told again where calls with effects stand after it.
            assert "result" in answer or problem_in(answer) in ("in-doubt", told.get(n)), answer
    lines = scene.ledger.lines
    assert len(lines) == len(set(lines))


async def test_two_bridges_ask_a_hundred_times(scene: Scene) -> None:
    """The same calls at the same time, outside a run: each is executed by one of the two servers."""
    calls = [call_of("pay", {"order": str(n)}, n) for n in range(50)]
    async with scene.by_hand() as one, scene.by_hand() as other:
        for bridge in (one, other):
            await bridge.ask("ping", id="ping")
        await asyncio.gather(one.say(*calls), other.say(*calls[::-1]))
        for n in range(50):
            assert text_of(await one.answer(n)) == text_of(await other.answer(n))
    assert scene.ledger.count() == 50


async def test_nothing_piles_up(scene: Scene) -> None:
    """After many calls, cancellations and requests there are as many descriptors and threads as before."""
    async with scene.by_hand() as bridge:

        async def round_of(name: str) -> tuple[int, int]:
            for n in range(100):
                await bridge.say(call_of("pay", {"order": f"{name} {n}"}, f"{name} {n}"))
                await bridge.say({"jsonrpc": "2.0", "id": f"x {name} {n}", "method": "x"})
            for n in range(100):
                await bridge.answer(f"{name} {n}")
            there = Path(f"/proc/{bridge.pid}")
            return len(list((there / "fd").iterdir())), len(list((there / "task").iterdir()))

        first = await round_of("a")
        second = await round_of("b")
        assert second[0] <= first[0] + 2
        assert second[1] <= first[1] + 2
