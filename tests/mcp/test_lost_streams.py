"""A connection breaks in the middle of a call, and the call is made again with a new id: one execution."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from mcp import MCPError

from tests.inside import until
from tests.mcp.clients import DOORS, ERAS, LEGACY, REFUSED, Told, call, client, problem_of
from tests.mcp.scene import inside
from tests.mcp.servers import Shop
from tests.mcp.tap import Tap
from tests.mcp.test_late_answers import TOOL
from tests.mcp.wire import Wire

RUNS = pytest.mark.parametrize("run", ["", "night+a1"], ids=["outside", "in a run"])
ORDER = {"order": "1"}


async def breaks(url: str, era: str, tool: str, cut: Callable[[], None], shop: Shop) -> MCPError | None:
    """A client whose call is cut off after the payment. How it takes that differs; it has no answer."""
    try:
        async with client(url, era) as at:
            calling = asyncio.create_task(call(at, tool, ORDER))
            await until(lambda: shop.ledger.count(tool) == 1)
            cut()
            with pytest.raises(MCPError) as caught:
                await calling
            return caught.value
    except (httpx2.HTTPError, ExceptionGroup) as lost:
        if not all(isinstance(each, httpx2.HTTPError) for each in leaves(lost)):
            raise
        return None


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]


@ERAS
@DOORS
@RUNS
async def test_lost_between_client_and_semel(
    tmp_path: Path, shop: Shop, era: str, door: str, run: str
) -> None:
    """semel goes on, and has the answer for whoever asks next."""
    tool = TOOL[door]
    shop.ledger.holds()
    async with inside(tmp_path, shop.ports[door]) as semel, Tap(semel.port) as tap:
        lost = await breaks(f"{tap.url}{semel.path(run)}", era, tool, tap.cut, shop)
        assert lost is None or lost.code != REFUSED
        shop.ledger.lets_go()
        async with client(semel.url(run), era) as at:
            assert await call(at, tool, ORDER) == Told("payment 1")
    assert shop.ledger.lines == [f"{tool} 1"]


@ERAS
@DOORS
@RUNS
async def test_lost_between_semel_and_the_server(
    tmp_path: Path, shop: Shop, era: str, door: str, run: str
) -> None:
    """Nobody can know what became of it: that is what the client is told, now and whenever it asks again."""
    tool = TOOL[door]
    shop.ledger.holds()
    async with Tap(shop.ports[door]) as tap, inside(tmp_path, tap.port) as semel:
        await breaks(semel.url(run), era, tool, tap.cut, shop)
        shop.ledger.lets_go()
        async with client(semel.url(run), era) as at:
            for _ in range(2):
                problem = await problem_of(at, tool, ORDER)
                assert (problem["type"], problem["status"]) == ("urn:semel:in-doubt", 409)
            assert await call(at, tool, {"order": "2"}) == Told("payment 2")
        assert await semel.states() == ["done", "in_doubt"]
    assert [line for line in shop.ledger.lines if line.startswith(tool)] == [f"{tool} 1", f"{tool} 2"]


async def test_what_whoever_waits_is_told(tmp_path: Path, shop: Shop) -> None:
    """Nothing of an answer had come yet: the first caller is told, by an error of the protocol."""
    shop.ledger.holds()
    async with Tap(shop.ports["json"]) as tap, inside(tmp_path, tap.port) as semel:
        wire: Wire = await semel.wire(LEGACY)
        calling = wire.calling("pay", ORDER, id="abc")
        await until(lambda: shop.ledger.count("pay") == 1)
        tap.cut()
        heard = await calling
    assert (heard.status, heard.semel, heard.last["id"]) == (200, "refused", "abc")
    assert heard.last["error"]["code"] == REFUSED
    assert heard.last["error"]["data"]["type"] == "urn:semel:in-doubt"
