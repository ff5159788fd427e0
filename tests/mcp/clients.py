"""The `mcp` package's own client, in both eras of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent

REFUSED = -32080
TIMED_OUT = -32001
# As the client calls them.
LEGACY, MODERN = "legacy", "2026-07-28"
ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN], ids=["legacy", "modern"])
DOORS = pytest.mark.parametrize("door", ["json", "sse"])


async def agree(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"agreed": True})


async def ignore(progress: float, total: float | None, message: str | None) -> None:
    """Whoever hears of progress asks for it."""


def client(url: str, era: str, *, patience: float = 30.0) -> Client:
    return Client(url, mode=era, read_timeout_seconds=patience, elicitation_callback=agree, cache=None)


class Told(NamedTuple):
    """What one call came to."""

    text: str
    is_error: bool = False


def told(result: CallToolResult) -> Told:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return Told(content.text, bool(result.is_error))


async def call(at: Client, tool: str, arguments: Mapping[str, Any], *, patience: float | None = None) -> Told:
    asked = at.call_tool(tool, dict(arguments), read_timeout_seconds=patience, progress_callback=ignore)
    return told(await asked)


async def problem_of(at: Client, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What semel says instead of an answer: the members of its problem."""
    with pytest.raises(MCPError) as caught:
        await call(at, tool, arguments)
    assert caught.value.code == REFUSED, caught.value
    said: dict[str, Any] = caught.value.data
    return said


async def times_out(at: Client, tool: str, arguments: Mapping[str, Any], patience: float = 0.7) -> None:
    with pytest.raises(MCPError) as caught:
        await call(at, tool, arguments, patience=patience)
    assert caught.value.code == TIMED_OUT, caught.value
