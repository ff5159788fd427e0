"""The protocol's reference server behind semel, and the TypeScript SDK's client in front of it.

That server keeps no ledger: what reached it is counted on the way.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.inside import until
from tests.mcp.clients import LEGACY, agree, call, client, problem_of, times_out
from tests.mcp.scene import inside
from tests.mcp.servers import Shop
from tests.mcp.tap import Tap

CALLED = b'"method":"tools/call"'
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("echo", {"message": "hello"}),
    ("get-sum", {"a": 1, "b": 2}),
    ("get-annotated-message", {"messageType": "success"}),
    ("get-structured-content", {"location": "New York"}),
    ("trigger-long-running-operation", {"duration": 0.1, "steps": 2}),
]
LONG = ("trigger-long-running-operation", {"duration": 2, "steps": 2})
AGENT = Path(__file__).with_name("ts_agent.mjs")


async def test_its_tools_over_a_restart(tmp_path: Path, everything_port: int) -> None:
    """Each is called once, whichever session asks; the answers are streams with event ids."""
    async with Tap(everything_port) as far, inside(tmp_path, far.port) as semel:
        told = []
        for attempt in ("a1", "a2"):
            async with client(semel.url(f"night+{attempt}"), LEGACY) as at:
                await at.list_tools()
                told.append([(await at.call_tool(tool, arguments)).content for tool, arguments in CALLS])
        assert told[0] == told[1]
        assert far.sent_up.count(CALLED) == len(CALLS)
        assert await semel.states() == ["done"] * len(CALLS)


async def test_a_late_answer(tmp_path: Path, everything_port: int) -> None:
    """The client gives up and asks again: the operation runs once, and tells its end to the second."""
    async with Tap(everything_port) as far, inside(tmp_path, far.port) as semel:
        async with client(semel.url(), LEGACY) as at:
            await times_out(at, *LONG)
            assert "completed" in (await call(at, *LONG)).text
        assert far.sent_up.count(CALLED) == 1


async def test_its_client_takes_up_a_lost_stream(tmp_path: Path, everything_port: int) -> None:
    """The events have ids, so the client asks for the rest of its stream and has its answer; the operation
    runs once, also for whoever asks again."""
    async with Tap(everything_port) as far, inside(tmp_path, far.port) as semel, Tap(semel.port) as near:
        async with client(f"{near.url}{semel.path()}", LEGACY) as at:
            calling = asyncio.create_task(call(at, *LONG))
            await until(lambda: b"notifications/progress" in b"".join(each.down for each in near.passages))
            near.cut()
            told = await calling
            assert "completed" in told.text
            assert b"last-event-id" in near.sent_up.lower()
            assert await call(at, *LONG) == told
        assert far.sent_up.count(CALLED) == 1


async def test_a_question_to_the_client(tmp_path: Path, everything_port: int) -> None:
    """It passes, there and back; nobody else can be given what came of it."""
    tool = "trigger-elicitation-request"
    async with Tap(everything_port) as far, inside(tmp_path, far.port) as semel:
        async with Client(semel.url(), mode=LEGACY, elicitation_callback=agree, cache=None) as at:
            result = await at.call_tool(tool, {})
            assert not result.is_error
        async with Client(semel.url(), mode=LEGACY, elicitation_callback=agree, cache=None) as at:
            assert (await problem_of(at, tool, {}))["type"] == "urn:semel:answer-unavailable"
        assert far.sent_up.count(CALLED) == 1


@pytest.fixture
def sdk(everything_program: Path) -> Path:
    """It came with the server, which is written with it."""
    (modules,) = [folder for folder in everything_program.parents if folder.name == "node_modules"]
    return modules / "@modelcontextprotocol" / "sdk"


async def ts_agent(sdk: Path, url: str, calls: list[tuple[str, dict[str, Any], int]]) -> list[Any]:
    node = shutil.which("node")
    assert node is not None
    process = await asyncio.create_subprocess_exec(
        node, str(AGENT), str(sdk), url,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, err = await process.communicate(json.dumps(calls).encode() + b"\n")
    assert process.returncode == 0, err.decode()
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("run", ["", "night+a1"], ids=["outside", "in a run"])
async def test_the_other_sdks_client(tmp_path: Path, shop: Shop, sdk: Path, run: str) -> None:
    """It gives up after a while, says so to its server, and calls again: one payment."""
    order = {"order": "1", "dawdle": 0.8}
    async with inside(tmp_path, shop.ports["sse"]) as semel:
        told = await ts_agent(sdk, semel.url(run), [("pay", order, 300), ("pay", order, 20_000)])
        assert told == [{"code": -32001, "data": {"timeout": 300}}, "payment 1"]
        again = await ts_agent(sdk, semel.url(run.replace("a1", "a2")), [("pay", order, 20_000)])
        assert again == ["payment 1"]
    assert shop.ledger.lines == ["pay 1"]


async def test_the_other_sdks_client_is_told(tmp_path: Path, shop: Shop, sdk: Path) -> None:
    """What semel refuses is an error of the protocol there too."""
    deny = 'rules:\n  - name: no\n    match: {tool: "pay*"}\n    mode: deny\n'
    async with inside(tmp_path, shop.ports["sse"], deny) as semel:
        (told,) = await ts_agent(sdk, semel.url(), [("pay", {"order": "1"}, 20_000)])
    assert (told["code"], told["data"]["type"]) == (-32080, "urn:semel:denied")
    assert shop.ledger.lines == []
