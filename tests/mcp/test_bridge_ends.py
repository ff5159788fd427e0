"""How a session ends, for whatever reason: calls are finished or held as in doubt, and no process is left
behind (the fixture `scene` looks for any)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.test_run_process import alive
from tests.inside import until
from tests.mcp.bridging import Bridge, Scene, call_of, children, left_behind, problem_in, text_of
from tests.mcp.clients import LEGACY, Told, call

KILLED = 128 + signal.SIGKILL


async def pays(bridge: Bridge, scene: Scene) -> None:
    """A call is under way: paid, and not answered."""
    scene.ledger.holds()
    await bridge.say(call_of("pay", {"order": "late"}, 9))
    await until(lambda: scene.ledger.count("pay"), within=30)


@pytest.mark.parametrize(("tool", "status"), [("die", KILLED), ("exit", 3), ("half", 0)])
async def test_the_server_ends_in_a_call(scene: Scene, tool: str, status: int) -> None:
    """Also in the middle of its answer: its caller hears that nobody knows, then the end. The next attempt
    hears the same of this call, and of the others what came of them."""
    async with scene.by_hand("night+a1") as bridge:
        assert text_of(await bridge.call("pay", {"order": "1"}, 1)) == "pay 1"
        assert problem_in(await bridge.call(tool, {"order": "1"}, 2)) == "in-doubt"
        assert await bridge.ended() == status
        await until(bridge.eof.is_set)
    async with scene.by_hand("night+a2") as bridge:
        assert text_of(await bridge.call("pay", {"order": "1"}, 1)) == "pay 1"
        assert problem_in(await bridge.call(tool, {"order": "1"}, 2)) == "in-doubt"
        bridge.leave()
        assert await bridge.ended() == 0
    assert scene.ledger.lines == ["pay 1", f"{tool} 1"]
    assert await scene.states() == ["done", "in_doubt"]


async def test_the_server_ends_and_its_child_holds_the_pipe(scene: Scene) -> None:
    """The process that was started is the server: with it the session ends."""
    async with scene.by_hand() as bridge:
        began = time.monotonic()
        assert problem_in(await bridge.call("child", {"order": "1"}, 1)) == "in-doubt"
        assert await bridge.ended() == 7
        assert time.monotonic() - began < 20
        (child,) = left_behind(scene.at)
        os.kill(child, signal.SIGKILL)


async def test_stdin_ends(scene: Scene) -> None:
    """With nothing under way: status 0, and the server with it. What was asked before is answered."""
    async with scene.by_hand() as bridge:
        server = await bridge.started()
        await bridge.say(call_of("pay", {"order": "1"}, 1), {"jsonrpc": "2.0", "id": 2, "method": "last"})
        bridge.leave()
        assert await bridge.ended() == 0
        assert not alive(server)
        assert text_of(await bridge.answer(1)) == "pay 1"
        assert text_of(await bridge.answer(2)) == "the last word"  # said when its own stdin had ended
    assert await scene.states() == ["done"]


async def test_stdin_ends_in_a_call(scene: Scene) -> None:
    """The call is finished and recorded, however long it takes; then everything ends."""
    async with scene.by_hand("night+a1") as bridge:
        server = await bridge.started()
        await pays(bridge, scene)
        bridge.leave()
        await asyncio.sleep(0.3)
        assert alive(server)
        scene.ledger.lets_go()
        assert await bridge.ended() == 0
        assert not alive(server)
        assert text_of(bridge.answers(9)[0]) == "pay 1"  # whoever still listens hears it
    assert await scene.states() == ["done"]


async def test_a_server_that_never_answers_who_has_left(scene: Scene) -> None:
    """No longer than `timeout.total`: then it is in doubt."""
    scene = replace(scene, more="timeout: {connect: 1s, idle: 1s, total: 1s}")
    async with scene.by_hand("night+a1") as bridge:
        await bridge.say(call_of("silent", {"order": "1"}, 1))
        await until(lambda: scene.ledger.count("silent"), within=30)
        bridge.leave()
        assert await bridge.ended() == 0
    assert await scene.states() == ["in_doubt"]


AGENT = """
import json, subprocess, sys, time
bridge = subprocess.Popen(json.loads(sys.argv[1]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
bridge.stdin.write(sys.argv[2].encode() + b"\\n")
bridge.stdin.flush()
print(bridge.pid, flush=True)
time.sleep(600)
"""


async def test_the_agent_is_killed_in_a_call(scene: Scene) -> None:
    """SIGKILL: the bridge finishes the call, records it, and ends itself and the server. The restarted agent
    is given the answer."""
    scene.ledger.holds()
    words = [json.dumps(each) for each in (scene.command("night+a1"), call_of("pay"))]
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENT, *words, env=scene.environment(), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert agent.stdout is not None
        bridge = int(await agent.stdout.readline())
        await until(lambda: scene.ledger.count("pay"), within=30)
        (server,) = children(bridge)
    finally:
        os.kill(agent.pid, signal.SIGKILL)
        await agent.wait()
    assert alive(bridge)
    scene.ledger.lets_go()
    await until(lambda: not alive(bridge) and not alive(server))
    assert await scene.states() == ["done"]
    async with scene.by_hand("night+a2") as again:
        assert text_of(await again.call("pay")) == "pay 1"
    assert scene.ledger.lines == ["pay"]


async def test_the_bridge_is_killed_in_a_call(scene: Scene) -> None:
    """SIGKILL: nobody knows what came of it, and the next bridge says so. The server, left alone, ends."""
    async with scene.by_hand("night+a1") as bridge:
        server = await bridge.started()
        await pays(bridge, scene)
        bridge.signal(signal.SIGKILL)
        assert await bridge.ended() == -signal.SIGKILL
        scene.ledger.lets_go()
        await until(lambda: not alive(server))
    async with scene.by_hand("night+a2") as bridge:
        assert problem_in(await bridge.call("pay", {"order": "late"}, 1)) == "in-doubt"
    assert scene.ledger.lines == ["pay late"]


@pytest.mark.parametrize("group", [False, True], ids=["process", "group"])
async def test_a_signal_in_a_call(scene: Scene, group: bool) -> None:
    """To the bridge, or to its whole group: what is under way is finished, and answered. The server is
    not of that group."""
    async with scene.by_hand("night+a1") as bridge:
        server = await bridge.started()
        await pays(bridge, scene)
        bridge.signal(signal.SIGTERM, group=group)
        await bridge.ask("ping", id=10)
        assert alive(server)
        scene.ledger.lets_go()
        assert await bridge.ended() == 0
        assert text_of(await bridge.answer(9)) == "pay 1"
        assert not alive(server)
    assert scene.ledger.lines == ["pay late"]


async def test_two_signals_in_a_call(scene: Scene) -> None:
    """The second does not wait: in doubt, at once, and the caller hears that."""
    async with scene.by_hand("night+a1") as bridge:
        await pays(bridge, scene)
        began = time.monotonic()
        bridge.signal(signal.SIGTERM)
        await asyncio.sleep(0.2)  # two at the same time are one
        bridge.signal(signal.SIGINT)
        assert await bridge.ended() == 0
        assert time.monotonic() - began < 8
        assert problem_in(await bridge.answer(9)) == "in-doubt"
    assert await scene.states() == ["in_doubt"]


async def test_a_stubborn_server(scene: Scene) -> None:
    """It ends neither with its stdin nor when it is asked to. The package's client allows two seconds, sends
    a signal, and two seconds later kills the bridge: by then the server must be gone."""
    scene = replace(scene, words=("stubborn",))
    async with scene.client(LEGACY) as at:
        assert await call(at, "pay", {"order": "1"}) == Told("pay 1")
        (server,) = [pid for pid in left_behind(scene.at) if b"odd" in _words(pid).split(b"\0")[2]]
    assert not alive(server)


async def test_a_stubborn_server_behind_a_shell(scene: Scene) -> None:
    """What was started is a shell, and its child is the server: both are ended."""
    scene = replace(scene, words=("stubborn",))
    shell = ["sh", "-c", f"trap '' TERM; {' '.join(scene.direct())}; true"]
    async with scene.by_hand(server=shell) as bridge:
        assert text_of(await bridge.call("pay", {"order": "1"}, 1)) == "pay 1"
        assert len(left_behind(scene.at)) == 3
        bridge.signal(signal.SIGTERM)
        assert await bridge.ended() == 0
        assert not left_behind(scene.at)


def _words(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
