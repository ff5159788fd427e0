"""Thirty tools, each called before a restart of the client and after it: thirty executions.

A new process has a new session and counts its requests from the start. The ids that it hears are its own.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.clients import DOORS, ERAS, LEGACY, MODERN, call, client
from tests.mcp.scene import behind, inside
from tests.mcp.servers import Shop
from tests.mcp.shop import MANY
from tests.process import ROOT

CALLS: list[tuple[str, dict[str, Any]]] = [(f"tool_{n:02}", {"order": f"order {n}"}) for n in range(MANY)]


async def killed_agent(url: str, era: str, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """A client in a process of its own that dies without a word, and what it heard before."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.mcp.agent", url, era, cwd=ROOT,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, err = await process.communicate(json.dumps(calls).encode() + b"\n")
    assert process.returncode == -signal.SIGKILL, err.decode()
    return [json.loads(line) for line in out.splitlines()]


async def agent(url: str, era: str, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """The one in its place: here, with a session and ids of its own."""
    async with client(url, era) as at:
        return [(await call(at, tool, arguments)).text for tool, arguments in calls]


@ERAS
@DOORS
async def test_thirty_tools_over_a_restart(
    tmp_path: Path, shop: Shop, era: str, door: str, any_store: None
) -> None:
    """The first client is killed after some of them; the second makes all, the third hears them again."""
    async with behind(tmp_path, shop.ports[door]) as semel:
        first = await killed_agent(semel.url("night+a1"), era, CALLS[:17])
        second = await agent(semel.url("night+a2"), era, CALLS)
        third = await agent(semel.url("night+a3"), era, CALLS[::-1])
        assert await semel.states() == ["done"] * MANY
    assert second == [f"{tool} 1" for tool, _ in CALLS]
    assert first == second[:17]
    assert third == second[::-1]
    assert sorted(shop.ledger.lines) == [f"{tool} {arguments['order']}" for tool, arguments in CALLS]


@ERAS
async def test_thirty_tools_outside_a_run(tmp_path: Path, shop: Shop, era: str) -> None:
    """The same without anything that a client would have to say: an identical call is the same call."""
    async with behind(tmp_path, shop.ports["sse"]) as semel:
        first = await killed_agent(semel.url(), era, CALLS)
        assert await agent(semel.url(), era, CALLS) == first
    assert shop.ledger.count() == MANY


IDS = [7, "abc", "7", 0, -3, 2**53 - 1, 'quo"te\\', "", "ünïcode"]


@pytest.mark.parametrize(
    ("era", "door", "tool", "is_stream"),
    [
        (LEGACY, "json", "pay", False),
        (LEGACY, "sse", "pay", True),
        (MODERN, "json", "pay", False),
        (MODERN, "sse", "pay_in_steps", True),
    ],
)
async def test_an_answer_bears_the_id_of_who_asks(
    tmp_path: Path, shop: Shop, era: str, door: str, tool: str, is_stream: bool
) -> None:
    """A number or a text, as asked, in a whole answer and in the events of a stream."""
    async with inside(tmp_path, shop.ports[door]) as semel:
        wire = await semel.wire(era)
        kinds = []
        for id_ in IDS:
            heard = await wire.call(tool, {"order": "1"}, id_, _meta={"progressToken": f"p{id_}"})
            kinds.append(heard.semel)
            said = heard.last
            assert said["id"] == id_
            assert type(said["id"]) is type(id_)
            assert said["result"]["content"][0]["text"] == "payment 1"
            assert heard.is_stream == is_stream
            assert b"\nid:" not in heard.answer.body.replace(b"\r", b"") or kinds == ["executed"]
            tokens = [each["params"]["progressToken"] for each in heard.messages[:-1]]
            assert tokens in ([], [f"p{id_}"] * 2)
        assert kinds == ["executed", *["replayed"] * (len(IDS) - 1)]
    assert shop.ledger.lines == [f"{tool} 1"]


@DOORS
async def test_who_joins_hears_its_own_id(tmp_path: Path, shop: Shop, door: str) -> None:
    """Many at once, each with its own."""
    shop.ledger.holds()
    async with inside(tmp_path, shop.ports[door]) as semel:
        wire = await semel.wire(MODERN)
        callers = [wire.calling(tool_of(door), {"order": "1"}, id_) for id_ in IDS]
        await asyncio.sleep(0.3)  # to join; who comes too late has a replay
        shop.ledger.lets_go()
        answers = await asyncio.gather(*callers)
    assert [answer.last["id"] for answer in answers] == IDS
    assert {answer.last["result"]["content"][0]["text"] for answer in answers} == {"payment 1"}
    assert [answer.semel for answer in answers].count("executed") == 1
    assert shop.ledger.count() == 1


def tool_of(door: str) -> str:
    return {"json": "pay", "sse": "pay_in_steps"}[door]
