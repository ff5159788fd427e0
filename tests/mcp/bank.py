"""A server that knows batches, and counts what it was asked to pay: 2025-03-26, without sessions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web


@dataclass
class Bank:
    """`events`: it answers in a stream. `loses`: the connection is cut when this order is paid."""

    events: bool = False
    loses: str = ""
    paid: list[str] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)  # every body
    port: int = 0

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.asked.append(body)
        messages = body if isinstance(body, list) else [body]
        said = [self._answer(each) for each in messages if "id" in each]
        if any(order_of(each) == self.loses for each in messages):
            assert request.transport is not None
            request.transport.abort()
        if not said:
            return web.Response(status=202)
        if self.events:
            text = "".join(f"event: message\ndata: {json.dumps(each)}\n\n" for each in said)
            return web.Response(text=text, content_type="text/event-stream")
        return web.json_response(said if isinstance(body, list) else said[0])

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        order = order_of(asked)
        if order is None:
            return {"jsonrpc": "2.0", "id": asked["id"], "result": {"method": asked["method"]}}
        self.paid.append(order)
        return {"jsonrpc": "2.0", "id": asked["id"], "result": {"paid": len(self.paid)}}


def order_of(message: dict[str, Any]) -> str | None:
    """What is to be paid, if it is a call."""
    if message["method"] != "tools/call":
        return None
    order: str = message["params"]["arguments"]["order"]
    return order
