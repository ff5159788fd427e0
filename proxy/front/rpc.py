"""A tool of an MCP server is called: its name and its arguments name the call, the message is what goes out.

No header of the message takes part in the name but for credentials, a key of the client's own, and what a
rule names: sessions and accepted types change when a client comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple
from urllib.parse import quote

from proxy.core.headers import Headers
from proxy.core.hints import Hints
from proxy.core.identity import KEYED_HEADERS, KEYED_PREFIX
from proxy.core.jsonrpc import Id, ToolCall
from proxy.core.mcp_again import Again
from proxy.spool import Spool

_JSON = (b"Content-Type", b"application/json")
# A task is answered otherwise than a call, at once: the wish for one is part of what is asked.
_AS_TASK = (b"Prefer", b"task")
SESSION = b"mcp-session-id"
# From 2026-07-28 on a server may want arguments to be repeated in headers of such names.
_ARGUMENT = b"mcp-param-"


def _nothing_to_check() -> None:
    """Any time will do."""


class Message(NamedTuple):
    """How a tool's call really goes out. `check`: asked directly before it would be claimed."""

    call: ToolCall
    method: str
    raw_path: str
    headers: Headers
    body: Spool
    hints: Hints | None = None
    check: Callable[[], None] = _nothing_to_check
    aloft: AbstractContextManager[object] = nullcontext()  # entered for as long as it is under way

    @property
    def id(self) -> Id:
        return self.call.id

    @property
    def again(self) -> Again:
        return Again(self.call.id, self.call.progress, self.call.modern)

    # ---- as it is named ----

    @property
    def tool_path(self) -> str:
        return f"/{quote(self.call.tool, safe='')}"

    @property
    def counted_headers(self) -> Headers:
        counted = as_counted(self.headers)
        return (*counted, _AS_TASK) if self.call.as_task else counted

    @property
    def arguments(self) -> Spool:
        return Spool.of(self.call.arguments)


def endpoint_of(raw_path: str, base_path: str) -> str:
    """The base_url itself is meant by a slash alone: most servers have one address, with none behind it."""
    return "" if raw_path == "/" and base_path else raw_path


def as_counted(headers: Headers) -> Headers:
    """Of a message's headers those that may name the call: of the body only the arguments do."""
    return (*(pair for pair in headers if not _is_replaced(pair[0].lower())), _JSON)


def _is_replaced(name: bytes) -> bool:
    of_the_body = name.startswith(b"content-")
    return name in KEYED_HEADERS or name.startswith(KEYED_PREFIX) or of_the_body


def without_arguments(headers: Headers) -> Headers:
    """What a rule hides among the arguments must not be told by a header."""
    return tuple([pair for pair in headers if not pair[0].lower().startswith(_ARGUMENT)])


def session_of(headers: Headers) -> bytes:
    return next((value for name, value in headers if name.lower() == SESSION), b"")
