"""A payment is made, its answer is late, the client gives up and calls again, as clients do: one payment.

In the old era the client tells the server that it gave up, in the new one it closes the stream. Without semel
either makes two payments (test_servers).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.inside import until
from tests.mcp.clients import DOORS, ERAS, LEGACY, Told, call, client, times_out
from tests.mcp.ledger import CANCELLED
from tests.mcp.scene import Behind, behind
from tests.mcp.servers import Shop

# One answers with a stream through that door in either era, one without.
TOOL = {"json": "pay", "sse": "pay_in_steps"}


@ERAS
@DOORS
async def test_a_late_answer_is_one_payment(
    tmp_path: Path, shop: Shop, era: str, door: str, any_store: None
) -> None:
    """Whether the second call comes before the answer or after it, in a run or in none."""
    tool, paid = TOOL[door], 0
    async with behind(tmp_path, shop.ports[door]) as semel:
        for run in ("", "night+a1"):
            async with client(semel.url(run), era) as at:
                for when in ("before", "after"):
                    order = {"order": f"{when} {run}"}
                    shop.ledger.holds()
                    await times_out(at, tool, order)
                    paid += 1
                    await until(lambda: shop.ledger.count(tool) == paid)  # noqa: B023 (awaited at once)
                    if when == "after":
                        shop.ledger.lets_go()
                        await until_done(semel, paid)
                    again = asyncio.create_task(call(at, tool, order))
                    if when == "before":
                        await asyncio.sleep(0.1)  # to join; if it comes too late, it is the other case
                        shop.ledger.lets_go()
                    assert await again == Told(f"payment {paid}")
    assert shop.ledger.count() == paid
    assert CANCELLED not in shop.ledger.lines


async def until_done(semel: Behind, calls: int) -> None:
    for _ in range(200):
        if (await semel.states()).count("done") == calls:
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"not all calls were done: {await semel.calls()}")


@ERAS
async def test_the_next_attempt_has_the_late_answer(tmp_path: Path, shop: Shop, era: str) -> None:
    """The client is gone altogether, without a word; the one in its place asks in a new session."""
    shop.ledger.holds()
    async with behind(tmp_path, shop.ports["sse"]) as semel:
        gone = streamable_http_client(semel.url("night+a1"), terminate_on_close=False)
        async with Client(gone, mode=era, cache=None) as at:
            await times_out(at, "pay_in_steps", {"order": "1"})
        shop.ledger.lets_go()
        async with client(semel.url("night+a2"), era) as at:
            assert await call(at, "pay_in_steps", {"order": "1"}) == Told("payment 1")
    assert shop.ledger.lines == ["pay_in_steps 1"]


async def test_a_client_that_ends_its_session_in_the_middle(tmp_path: Path, shop: Shop) -> None:
    """The old era: after it gave up it says DELETE, which would end the call too. That waits for the call,
    and whoever takes its place has the answer."""
    shop.ledger.holds()
    async with behind(tmp_path, shop.ports["sse"]) as semel:
        leaving = asyncio.create_task(gives_up(semel.url("night+a1")))
        await until(lambda: shop.ledger.count("pay"))
        async with client(semel.url("night+a2"), LEGACY) as at:
            again = asyncio.create_task(call(at, "pay", {"order": "1"}))
            await asyncio.wait([leaving], timeout=1.5)  # long enough to have said so
            shop.ledger.lets_go()
            assert await again == Told("payment 1")
        await leaving
    assert shop.ledger.lines == ["pay 1"]


async def gives_up(url: str) -> None:
    async with client(url, LEGACY) as at:
        await times_out(at, "pay", {"order": "1"})
