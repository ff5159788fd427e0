"""The servers of these tests without semel: what they do, and what semel is to prevent."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client, MCPError

from tests.inside import until
from tests.mcp.clients import DOORS, ERAS, LEGACY, MODERN, Told, agree, call, client, times_out
from tests.mcp.everything import stdio_everything
from tests.mcp.ledger import CANCELLED, Ledger
from tests.mcp.servers import Shop, stdio_shop
from tests.mcp.shop import MANY, OWN_CODE


async def speaks(at: Client, ledger: Ledger, *, asks: bool = True) -> None:
    """Every kind of answer."""
    assert len((await at.list_tools()).tools) == MANY + 8
    assert await call(at, "pay", {"order": "1"}) == Told("payment 1")
    assert await call(at, "pay_in_steps", {"order": "1"}) == Told("payment 1")
    if asks:
        assert await call(at, "pay_if_agreed", {"order": "1"}) == Told("payment 1, agreed: True")
    failed = await call(at, "pay_and_fail", {"order": "1"})
    assert failed == Told("Error executing tool pay_and_fail: failure 1", is_error=True)
    with pytest.raises(MCPError) as caught:
        await call(at, "pay_and_break", {"order": "1"})
    assert (caught.value.code, caught.value.data) == (OWN_CODE, {"order": "1"})
    assert await call(at, "pay", {"order": "1"}) == Told("payment 2")
    assert ledger.count("pay") == 2
    assert ledger.count() == (7 if asks else 5)


@ERAS
@DOORS
async def test_over_http(shop: Shop, era: str, door: str) -> None:
    """In the old era a whole answer has no room for a question to the client."""
    async with client(shop.url(door), era) as at:
        await speaks(at, shop.ledger, asks=(era, door) != (LEGACY, "json"))


@ERAS
async def test_over_stdio(tmp_path: Path, era: str) -> None:
    """The same server as a child of its client."""
    ledger = Ledger(tmp_path / "ledger")
    mode = "auto" if era == MODERN else era
    async with Client(stdio_shop(ledger), mode=mode, elicitation_callback=agree, cache=None) as at:
        await speaks(at, ledger)


@ERAS
async def test_a_late_answer_is_a_second_payment(shop: Shop, era: str) -> None:
    """The client gives up and calls again, as clients do; its server is told so, and has paid already."""
    shop.ledger.holds()
    async with client(shop.url("sse"), era) as at:
        await times_out(at, "pay", {"order": "1"})
        await until(lambda: CANCELLED in shop.ledger.lines)
        shop.ledger.lets_go()
        assert await call(at, "pay", {"order": "1"}) == Told("payment 2")
    assert shop.ledger.count("pay") == 2


@pytest.mark.parametrize("over", ["http", "stdio"])
async def test_the_reference_server(over: str, request: pytest.FixtureRequest) -> None:
    """It runs, on loopback, and answers."""
    if over == "http":
        url = f"http://127.0.0.1:{request.getfixturevalue('everything_port')}/mcp"
        at = Client(url, mode=LEGACY, cache=None)
    else:
        program: Path = request.getfixturevalue("everything_program")
        at = Client(stdio_everything(program), mode=LEGACY, cache=None)
    async with at:
        assert await call(at, "echo", {"message": "hello"}) == Told("Echo: hello")
