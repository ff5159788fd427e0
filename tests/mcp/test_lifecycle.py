"""What is no call of a tool passes as if semel were not there, and leaves nothing on record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mcp import Client, MCPError
from mcp_types import EmptyResult, PingRequest

from tests.inside import call as http
from tests.inside import until
from tests.mcp.clients import DOORS, ERAS, LEGACY, MODERN, agree, call
from tests.mcp.recorded import Compared, normal
from tests.mcp.scene import Behind, inside
from tests.mcp.servers import Shop
from tests.mcp.tap import Tap
from tests.mcp.wire import heard


async def a_session(at: Client, era: str, *, asks: bool) -> None:
    """Some of everything, one after the other."""
    await at.list_tools()
    await at.list_resources()
    await at.list_resource_templates()
    await at.list_prompts()
    await at.read_resource("stock://all")
    with pytest.raises(MCPError):
        await at.read_resource("stock://none")
    await at.get_prompt("greet", {"name": "Ada"})
    if era == LEGACY:
        await at.session.send_request(PingRequest(), EmptyResult)
    await call(at, "pay", {"order": "1"})
    await call(at, "pay_in_steps", {"order": "1"})
    await call(at, "pay_and_fail", {"order": "1"})
    with pytest.raises(MCPError):
        await call(at, "pay_and_break", {"order": "1"})
    await call(at, "no_such_tool", {"order": "1"})
    if asks:
        await call(at, "pay_if_agreed", {"order": "1"})


async def recorded(url: str, tap: Tap, era: str, *, asks: bool, ports: tuple[int, ...]) -> list[Compared]:
    async with Client(url, mode=era, cache=None, elicitation_callback=agree) as at:
        await a_session(at, era, asks=asks)
    return normal(await tap.exchanges(), *ports)


@ERAS
@DOORS
@pytest.mark.parametrize("run", ["", "night+a1"], ids=["outside", "in a run"])
async def test_a_session_through_semel_is_the_same_session(
    tmp_path: Path, shop: Shop, era: str, door: str, run: str
) -> None:
    """Recorded on both sides of semel, and without it: the server is asked the same, in the same words, and
    the client hears the same, byte by byte but for the session's name."""
    asks = (era, door) != (LEGACY, "json")
    ports = (shop.ports[door],)
    async with Tap(shop.ports[door]) as tap:
        direct = await recorded(f"{tap.url}/mcp", tap, era, asks=asks, ports=(*ports, tap.port))
    shop.ledger.clear()
    async with (
        Tap(shop.ports[door]) as far,
        inside(tmp_path, far.port) as semel,
        Tap(semel.port) as near,
    ):
        url = f"{near.url}{semel.path(run)}"
        heard_by_client = await recorded(url, near, era, asks=asks, ports=(*ports, near.port, semel.port))
        asked_of_server = normal(await far.exchanges(), *ports, far.port)
    assert [each.answer for each in heard_by_client] == [each.answer for each in direct]
    assert [each.request for each in asked_of_server] == [each.request for each in direct]
    assert len(direct) >= 13


@ERAS
async def test_only_calls_of_tools_are_on_record(tmp_path: Path, shop: Shop, era: str) -> None:
    """Beginning, lists, resources, prompts, the end: `Semel-Status: passed` and nothing else."""
    async with inside(tmp_path, shop.ports["json"]) as semel:
        wire = await semel.wire(era, "night+a1")
        for method, params in (
            ("tools/list", {}),
            ("resources/list", {}),
            ("resources/read", {"uri": "stock://all"}),
            ("resources/templates/list", {}),
            ("prompts/list", {}),
            ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
            ("completion/complete", {}),
            ("server/discover" if era == MODERN else "ping", {}),
            ("no/such/method", {}),
        ):
            asked = await wire.ask(method, params, id=method)
            assert (asked.semel, asked.last["id"], method) == ("passed", method, method)
            assert asked.answer.get("Semel-Call") is None
        said = await wire.say("notifications/roots/list_changed")
        assert (said.status, said.semel) == (202, "passed")
        assert await semel.calls() == []
        if era == LEGACY:
            ended = await http(semel.port, "DELETE", wire.path, wire.headers)
            assert (ended.status, ended.semel) == (200, "passed")
            after = await wire.ask("tools/list", {})
            assert (after.status, after.semel) == (404, "passed")
    assert shop.ledger.lines == []


async def test_what_the_server_says_by_itself(tmp_path: Path, shop: Shop) -> None:
    """The old era's stream for that: it is open for as long as its client wants, and then it is closed."""
    async with Tap(shop.ports["sse"]) as far, inside(tmp_path, far.port) as semel:
        wire = await semel.wire(LEGACY)
        headers = {**wire.headers, "Accept": "text/event-stream"}
        listening = asyncio.create_task(http(semel.port, "GET", wire.path, headers))
        await until(lambda: b"GET /mcp" in far.sent_up)
        again = heard(await http(semel.port, "GET", wire.path, headers))
        assert (again.status, again.semel) == (409, "passed"), "it is open already"
        assert not listening.done()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await _is_free_again(semel, wire.path, headers)
        assert await semel.calls() == []


async def _is_free_again(semel: Behind, path: str, headers: dict[str, str]) -> None:
    """The server has noticed that the first one left."""
    for _ in range(100):
        opening = asyncio.create_task(http(semel.port, "GET", path, headers))
        done, _waiting = await asyncio.wait([opening], timeout=0.2)
        if not done:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            return
    pytest.fail("the server still has the stream of a client that has left")
