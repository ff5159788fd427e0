"""What an attack on `stateful: true` found, outside runs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from aiohttp import web

from tests.inside import call as http
from tests.inside import until
from tests.mcp.scene import inside


@dataclass
class Slow:
    """A server that answers when it is let."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    orders: list[str] = field(default_factory=list)
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
        said = json.loads(await request.read())
        self.orders.append(said["params"]["arguments"]["order"])
        await self.go.wait()
        return web.json_response({"jsonrpc": "2.0", "id": said["id"], "result": {"content": []}})


def request(session: str, order: str) -> tuple[dict[str, str], bytes]:
    params = {"name": "pay", "arguments": {"order": order}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return {"Content-Type": "application/json", "Mcp-Session-Id": session}, json.dumps(body).encode()


async def test_a_session_that_joined_anothers_call(tmp_path: Path) -> None:
    """Its server has not seen that call either, so the next one is refused as after a replay."""
    async with Slow() as slow, inside(tmp_path, slow.port, "stateful: true") as semel:
        first = asyncio.create_task(http(semel.port, "POST", semel.path(), *request("A", "1")))
        await until(lambda: slow.orders)
        second = asyncio.create_task(http(semel.port, "POST", semel.path(), *request("B", "1")))
        await asyncio.sleep(0.2)
        slow.go.set()
        assert ((await first).semel, (await second).semel) == ("executed", "joined")
        assert (await http(semel.port, "POST", semel.path(), *request("B", "2"))).semel == "refused"


async def test_a_client_that_gave_up_and_asked_again(tmp_path: Path) -> None:
    """In one session: the call is its own, and the next one is made."""
    async with Slow() as slow, inside(tmp_path, slow.port, "stateful: true") as semel:
        first = asyncio.create_task(http(semel.port, "POST", semel.path(), *request("A", "1")))
        await until(lambda: slow.orders)
        first.cancel()
        await asyncio.sleep(0.2)
        slow.go.set()
        await asyncio.sleep(0.2)
        assert (await http(semel.port, "POST", semel.path(), *request("A", "1"))).semel == "replayed"
        assert (await http(semel.port, "POST", semel.path(), *request("A", "2"))).semel == "executed"
