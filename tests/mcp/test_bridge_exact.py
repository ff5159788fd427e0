"""A session through `semel mcp` is the session: what the client says is what the server hears, byte for byte,
and the other way round. Calls that are executed are among it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ListRootsResult,
    PromptReference,
    Root,
    TextContent,
)
from pydantic import FileUrl

from tests.inside import until
from tests.mcp.bridging import Scene
from tests.mcp.clients import LEGACY, MODERN, agree, call, ignore
from tests.mcp.recorded import STATE
from tests.process import ROOT

# What a server of its own accord says differently each time: hours, and names of sessions.
VARIES = re.compile(rb"\d{1,2}:\d\d:\d\d( [AP]M)?|\d{4}-\d\d-\d\dT[\d:.]+Z|[0-9a-f]{8}-[0-9a-f-]{27}")


async def dream(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
    said = TextContent(type="text", text="a dream")
    return CreateMessageResult(role="assistant", content=said, model="m", stop_reason="endTurn")


ASKED: list[ClientRequestContext] = []


async def roots(context: ClientRequestContext) -> ListRootsResult:
    ASKED.append(context)
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///tmp/here"), name="here")])


async def log(params: Any) -> None:
    """Whoever listens is told."""


def teed(name: Path, command: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "tests.mcp.tee", str(name), *command]


def client(scene: Scene, command: Sequence[str], era: str) -> Client:
    ASKED.clear()
    program, *words = command
    server = StdioServerParameters(command=program, args=words, cwd=str(ROOT), env=scene.environment())
    return Client(
        server, mode=era, cache=None, read_timeout_seconds=30, elicitation_callback=agree,
        sampling_callback=dream, list_roots_callback=roots, logging_callback=log,
    )  # fmt: skip


async def everything(at: Client) -> None:
    """What the reference server can do. A while after the beginning it asks for roots: the ids of its further
    requests depend on that."""
    await until(lambda: ASKED)
    await at.list_tools()
    for resource in (await at.list_resources()).resources[:2]:
        await at.read_resource(str(resource.uri))
    await at.list_resource_templates()
    await at.list_prompts()
    await at.get_prompt("simple-prompt")
    await at.complete(PromptReference(name="completable-prompt"), {"name": "department", "value": "E"})
    await at.set_logging_level("error")
    await at.subscribe_resource("demo://resource/dynamic/text/1")
    await at.unsubscribe_resource("demo://resource/dynamic/text/1")
    await call(at, "echo", {"message": "héllo ✓"})
    await at.call_tool("get-sum", {"a": 1, "b": 2.50})
    await at.call_tool(
        "trigger-long-running-operation", {"duration": 0.2, "steps": 2}, progress_callback=ignore
    )
    await at.call_tool("trigger-sampling-request", {"prompt": "sleep", "maxTokens": 10})
    await at.call_tool("trigger-elicitation-request", {})
    await at.call_tool("get-roots-list", {})
    await at.call_tool("get-tiny-image", {})
    await at.call_tool("get-sum", {"a": "no number"})


async def shopping(at: Client) -> None:
    await at.list_tools()
    await at.list_resources()
    await at.read_resource("stock://all")
    await at.get_prompt("greet", {"name": "you"})
    for tool in ("pay", "pay_in_steps", "pay_if_agreed", "pay_and_fail"):
        await at.call_tool(tool, {"order": "1"}, progress_callback=ignore)
    await at.call_tool("no-such-tool", {})


def lines(name: Path, way: str) -> list[bytes]:
    return name.with_suffix(way).read_bytes().splitlines(keepends=True)


def seen(name: Path) -> tuple[list[bytes], list[bytes]]:
    """Of a whole session, with what varies made alike. A server says some things on its own time."""
    asked, told = (
        [STATE.sub(b"*", VARIES.sub(b"*", line)) for line in lines(name, way)] for way in (".in", ".out")
    )
    return sorted(asked), sorted(told)


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize(
    "session", ["everything", pytest.param("shop legacy", marks=pytest.mark.soak), "shop modern"]
)
async def test_a_session_is_the_same_session(
    scene: Scene, session: str, request: pytest.FixtureRequest
) -> None:
    """On both sides of the bridge; and as without it."""
    scene, era = replace(scene, server="shop"), MODERN if "modern" in session else LEGACY
    server, tour = scene.direct(), shopping
    if session == "everything":
        program: Path = request.getfixturevalue("everything_program")
        server, tour = ["node", str(program), "stdio"], everything
    near, far, direct = (scene.at / name for name in ("near", "far", "direct"))
    async with client(scene, teed(near, scene.command("night+a1", teed(far, server))), era) as at:
        await tour(at)
    assert lines(near, ".in") == lines(far, ".in")
    assert sorted(lines(near, ".out")) == sorted(lines(far, ".out"))
    others = [[line for line in lines(name, ".out") if b'"method"' in line] for name in (near, far)]
    assert others[0] == others[1], "what is no answer keeps its order"
    scene.ledger.clear()
    async with client(scene, teed(direct, server), era) as at:
        await tour(at)
    assert seen(direct) == seen(near)
