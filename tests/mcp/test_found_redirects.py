"""A server that has another address than the client was given says so with a redirect, and clients follow.
What they would call there, nobody has on record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.inside import call as http
from tests.mcp.clients import MODERN
from tests.mcp.scene import inside
from tests.mcp.servers import Shop


@asynccontextmanager
async def redirecting(where: str, status: int = 307) -> AsyncIterator[int]:
    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": where})

    runner = web.ServerRunner(web.Server(serve), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("run", ["", "night+a1"])
async def test_a_client_is_not_led_past_semel(tmp_path: Path, shop: Shop, status: int, run: str) -> None:
    """The call was not made, and is told to be elsewhere: but not where."""
    where = f"http://127.0.0.1:{shop.ports['json']}/mcp"
    async with redirecting(where, status) as port, inside(tmp_path, port) as semel:
        wire = await semel.wire(MODERN, run)
        for id_ in (1, 2):
            heard = await wire.call("pay", {"order": "1"}, id_)
            assert (heard.status, heard.answer.get("Location")) == (status, None)
        assert set(await semel.states()) == {"released"}
        assert (await http(semel.port, "GET", semel.path(run))).get("Location") == where, "no call"
    assert shop.ledger.lines == []
