"""MCP by hand: exact bodies over HTTP, and exactly what comes back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.inside import Answer, call
from tests.mcp.clients import LEGACY, MODERN

BOTH = "application/json, text/event-stream"
CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}}


class Heard(NamedTuple):
    """`messages`: those of a body, in this order, whether it is a stream or not."""

    status: int
    semel: str | None
    messages: list[Any]
    answer: Answer

    @property
    def last(self) -> dict[str, Any]:
        said: dict[str, Any] = self.messages[-1]
        return said

    @property
    def is_stream(self) -> bool:
        return (self.answer.get("Content-Type") or "").startswith("text/event-stream")


def heard(answer: Answer) -> Heard:
    texts = [answer.body]
    if (answer.get("Content-Type") or "").startswith("text/event-stream"):
        texts = [
            data for event in answer.body.replace(b"\r\n", b"\n").split(b"\n\n") if (data := _data(event))
        ]
    return Heard(answer.status, answer.semel, [json.loads(text) for text in texts if text.strip()], answer)


def _data(event: bytes) -> bytes:
    lines = [line for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(line.removeprefix(b"data:").removeprefix(b" ") for line in lines)


@dataclass
class Wire:
    """One client of one server, at semel or not. `path` as in the client's address."""

    port: int
    path: str
    era: str = LEGACY
    headers: dict[str, str] = field(default_factory=dict)

    async def opened(self) -> Wire:
        """In the old era: with a session."""
        if self.era == MODERN:
            return self
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": CAPABILITIES,
            "clientInfo": {"name": "by hand", "version": "1"},
        }
        answer = (await self.ask("initialize", params, id=0)).answer
        session = answer.get("Mcp-Session-Id")
        assert session is not None, answer
        self.headers |= {"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25"}
        assert (await self.say("notifications/initialized")).status == 202
        return self

    def body(self, method: str, params: dict[str, Any] | None = None, **members: Any) -> bytes:
        """With `id` among the members it is a request."""
        said = dict(params or {})
        if self.era == MODERN:
            meta = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
            }
            said = {"_meta": {**meta, **said.pop("_meta", {})}, **said}
        named = {"params": said} if said or params is not None else {}
        return json.dumps({"jsonrpc": "2.0", **members, "method": method, **named}).encode()

    def call_body(self, tool: str, arguments: dict[str, Any], id: object = 1, **params: Any) -> bytes:  # noqa: A002
        return self.body("tools/call", {"name": tool, "arguments": arguments, **params}, id=id)

    async def post(self, body: bytes, headers: dict[str, str] | None = None) -> Heard:
        sent = {"Content-Type": "application/json", "Accept": BOTH, **self.headers, **(headers or {})}
        return heard(await call(self.port, "POST", self.path, sent, body))

    async def ask(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        id: object = 1,  # noqa: A002 (its name)
        headers: dict[str, str] | None = None,
    ) -> Heard:
        """A request."""
        body = self.body(method, params, id=id)
        return await self.post(body, {**self._routing(method, params), **(headers or {})})

    async def say(self, method: str, params: dict[str, Any] | None = None) -> Heard:
        """A notification."""
        return await self.post(self.body(method, params), self._routing(method, params))

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        id: object = 1,  # noqa: A002 (its name)
        headers: dict[str, str] | None = None,
        **params: Any,
    ) -> Heard:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments, **params}, id, headers)

    def calling(self, tool: str, arguments: dict[str, Any], id: object = 1) -> asyncio.Task[Heard]:  # noqa: A002
        """In the background."""
        return asyncio.create_task(self.call(tool, arguments, id))

    def _routing(self, method: str, params: dict[str, Any] | None) -> dict[str, str]:
        if self.era != MODERN:
            return {}
        name = (params or {}).get("name") or (params or {}).get("uri")
        named = {"Mcp-Name": str(name)} if name else {}
        return {"Mcp-Protocol-Version": MODERN, "Mcp-Method": method, **named}
