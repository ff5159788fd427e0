"""Thirty tools of a server over stdio, each called before a restart and after it: thirty executions.

A restart is a new client, a new bridge and a new server. The ids that a client hears are its own.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.mcp.bridging import META, Scene, call_of, problem_in, text_of
from tests.mcp.clients import ERAS, LEGACY, MODERN, call
from tests.mcp.shop import MANY
from tests.process import ROOT

CALLS: list[tuple[str, dict[str, Any]]] = [(f"tool_{n:02}", {"order": f"order {n}"}) for n in range(MANY)]
IDS = [7, "abc", "7", 0, -3, 2**53 - 1, 'quo"te\\', "", "ünïcode"]


async def killed(scene: Scene, run: str, era: str) -> list[Any]:
    """A client in a process of its own, which starts the bridge, and is killed after its last call."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.mcp.agent", json.dumps(scene.command(run)), era,
        cwd=ROOT, env=scene.environment(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, err = await process.communicate(json.dumps(CALLS).encode() + b"\n")
    assert process.returncode == -signal.SIGKILL, err.decode()
    return [json.loads(line) for line in out.splitlines()]


async def twice(scene: Scene, era: str, first: str, second: str) -> None:
    """The second client makes the same calls, in another order."""
    expected = [f"{tool} 1" for tool, _ in CALLS]
    assert await killed(scene, first, era) == expected
    async with scene.client(era, second) as at:
        assert [(await call(at, tool, arguments)).text for tool, arguments in CALLS[::-1]] == expected[::-1]
    assert sorted(scene.ledger.lines) == [f"{tool} {arguments['order']}" for tool, arguments in CALLS]
    assert await scene.states() == ["done"] * MANY


@ERAS
async def test_thirty_tools_over_a_restart(scene: Scene, era: str, any_store: None) -> None:
    """In a run; the second start is another attempt."""
    await twice(replace(scene, server="shop"), era, "night+a1", "night+a2")


@pytest.mark.parametrize("era", [pytest.param(LEGACY, marks=pytest.mark.soak), MODERN])
async def test_thirty_tools_outside_a_run(scene: Scene, era: str) -> None:
    """The same where nothing is said of a run: an identical call is the same call."""
    await twice(replace(scene, server="shop"), era, "", "")


@pytest.mark.parametrize("meta", [{}, META], ids=["legacy", "modern"])
async def test_an_answer_bears_the_id_of_who_asks(scene: Scene, meta: dict[str, Any]) -> None:
    """A number or a text, as asked: of what was executed now, of what is given again, now and by the next."""
    for _ in range(2):
        async with scene.by_hand() as bridge:
            for id_ in IDS:
                answer = await bridge.call("pay", {"order": "1"}, id_, _meta=meta)
                assert text_of(answer) == "pay 1"
            assert [json.loads(line)["id"] for line in bridge.heard] == IDS
    assert scene.ledger.lines == ["pay 1"]


async def test_a_bridge_killed_among_thirty_calls(scene: Scene) -> None:
    """Some are answered, some were sent, some were not: the next attempt makes no call twice, and hears of
    each either what came of it or that nobody knows."""
    orders = [str(n) for n in range(MANY)]
    async with scene.by_hand("night+a1") as bridge:
        await bridge.say(*(call_of("pay", {"order": order}, n) for n, order in enumerate(orders)))
        await bridge.answer(0)
        bridge.signal(signal.SIGKILL)
        await bridge.ended()
    async with scene.by_hand("night+a2") as bridge:
        for order in orders:
            answer = await bridge.call("pay", {"order": order}, f"again {order}")
            assert "result" in answer or problem_in(answer) == "in-doubt"
        assert "result" in bridge.answers("again 0")[0]
    lines = scene.ledger.lines
    assert len(lines) == len(set(lines))
