"""MCP servers that are reached through semel as a proxy: the client's address is the server's own."""

from __future__ import annotations

from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.mcp.clients import ERAS, Told, agree, call
from tests.mcp.scene import inside
from tests.mcp.servers import Shop


@ERAS
async def test_by_the_servers_own_address(tmp_path: Path, shop: Shop, era: str) -> None:
    """The run is the proxy's user; tools are calls all the same."""
    port = shop.ports["sse"]
    async with inside(tmp_path, port, f"hosts: [127.0.0.1:{port}]") as semel:
        for attempt in ("a1", "a2"):
            proxy = f"http://night+{attempt}:-@127.0.0.1:{semel.port}"
            async with httpx2.AsyncClient(proxy=proxy, timeout=30) as http:
                transport = streamable_http_client(shop.url("sse"), http_client=http)
                async with Client(transport, mode=era, elicitation_callback=agree, cache=None) as at:
                    assert await call(at, "pay_in_steps", {"order": "1"}) == Told("payment 1")
        assert await semel.states() == ["done"]
    assert shop.ledger.lines == ["pay_in_steps 1"]
