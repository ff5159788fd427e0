"""A client that ends its session, and what else lives at a server's address."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inside import call, until
from tests.mcp.clients import DOORS, LEGACY
from tests.mcp.scene import inside
from tests.mcp.servers import Shop
from tests.mcp.tap import Tap
from tests.origin import READ_ALL, Origin, answer

TOKEN = b'{"access_token": "fresh"}'
FORM = "application/x-www-form-urlencoded"


@DOORS
@pytest.mark.parametrize("run", ["", "night+a1"], ids=["outside", "in a run"])
async def test_the_session_ends_when_its_calls_are_over(
    tmp_path: Path, shop: Shop, door: str, run: str
) -> None:
    """A server stops what belongs to a session that ends, and nobody could say afterwards how far it was. So
    the client hears at once that it may go, and the server hears of it later."""
    shop.ledger.holds()
    async with Tap(shop.ports[door]) as far, inside(tmp_path, far.port) as semel:
        wire = await semel.wire(LEGACY, run)
        first = wire.calling("pay", {"order": "1"}, 5)
        await until(lambda: shop.ledger.count("pay"))
        ended = await call(semel.port, "DELETE", semel.path(run), wire.headers)
        assert (ended.status, ended.body, ended.semel) == (202, b"", "refused")
        assert b"DELETE " not in far.sent_up
        shop.ledger.lets_go()
        assert (await first).last["result"]["content"][0]["text"] == "payment 1"
        await until(lambda: b"DELETE " in far.sent_up)
        assert await semel.states() == ["done"]
    assert shop.ledger.count("pay") == 1


async def test_a_session_without_calls_under_way_ends_at_once(tmp_path: Path, shop: Shop) -> None:
    async with inside(tmp_path, shop.ports["json"]) as semel:
        wire = await semel.wire(LEGACY)
        await wire.call("pay", {"order": "1"})
        ended = await call(semel.port, "DELETE", semel.path(), wire.headers)
        assert (ended.status, ended.semel) == (200, "passed")
        assert (await wire.ask("tools/list", id=9)).status == 404, "the server has forgotten it"


async def test_a_client_that_asks_for_a_token_speaks_no_json(tmp_path: Path) -> None:
    """Servers have their OAuth beside their tools. A form passes; what is neither is refused."""
    async with Origin([*READ_ALL, answer(200, TOKEN)]) as origin, inside(tmp_path, origin.port) as semel:
        body = b"grant_type=refresh_token&refresh_token=secret"
        got = await call(semel.port, "POST", "/shop/token", {"Content-Type": FORM}, body)
        assert (got.status, got.semel, got.body) == (200, "passed", TOKEN)
        other = await call(semel.port, "POST", "/shop/token", {"Content-Type": "text/plain"}, body)
        assert (other.status, other.semel) == (400, "refused")
        assert len(origin.requests) == 1
        assert await semel.calls() == []


async def test_a_message_is_one_whatever_its_type_says(tmp_path: Path, shop: Shop) -> None:
    """A form that is a call all the same is recorded as one."""
    async with inside(tmp_path, shop.ports["json"]) as semel:
        wire = await semel.wire(LEGACY)
        body = wire.body("tools/call", {"name": "pay", "arguments": {"order": "1"}}, id=1)
        await call(semel.port, "POST", semel.path(), {**wire.headers, "Content-Type": FORM}, body)
        assert [found["tool"] for found in await semel.calls()] == ["pay"]
