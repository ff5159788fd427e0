"""Claims and settlements among a thousand and among a million rows, on every store.

The rows are put in past the store, as bulk; what is measured goes through the store. Rounds are taken on the
small and on the large one in turn.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import uvloop

from benchmarks import million, much
from benchmarks.judging import Found
from benchmarks.million import FEW
from benchmarks.running import Plan, say
from proxy.store.base import Store
from proxy.store.embedded import EmbeddedStore
from proxy.store.postgres import PostgresStore
from proxy.store.redis_store import open_redis
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import valkey
from tests.stores import calls, test_postgres_large, test_redis_size

CALLS, CALLERS = much(1000), 32


async def once(store: Store) -> float:
    """Seconds for so many claims, each settled by its caller."""
    left = iter(range(CALLS))

    async def caller() -> None:
        for _ in left:
            call, entry = calls.claim(store.owner)
            assert (await store.swap(call, entry, expected=0)).won
            assert (await store.swap(*calls.settle(call, b"y" * 450), expected=1)).won

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return time.perf_counter() - began


async def compared(stores: Sequence[Store], rounds: int) -> float:
    few, many = stores
    ratios = []
    for number in range(rounds + 1):
        small, large = await once(few), await once(many)
        if number:  # the first only warms up
            ratios.append(large / small)
    return statistics.median(ratios)


async def embedded(work: Path, count: int, rounds: int) -> float:
    async with AsyncExitStack() as stack:
        stores = []
        for number in (FEW, count):
            directory = await asyncio.to_thread(million.filled, work, number)
            stores.append(await EmbeddedStore.open(directory))
            stack.push_async_callback(stores[-1].close)
        return await compared(stores, rounds)


async def postgres(_: Path, count: int, rounds: int) -> float:
    server = PostgresServer()
    try:
        server.start()
        async with AsyncExitStack() as stack:
            stores = []
            for number in (FEW, count):
                database = server.new_database()
                stores.append(await PostgresStore.open(server.url(database), dead_after=600.0))
                stack.push_async_callback(stores[-1].close)
                await asyncio.to_thread(test_postgres_large.fill, server, database, 1, number)
            return await compared(stores, rounds)
    finally:
        server.remove()


async def redis(work: Path, count: int, rounds: int) -> float:
    with ExitStack() as servers:
        async with AsyncExitStack() as stack:
            stores = []
            for number in (FEW, count):
                server = servers.enter_context(valkey(work / f"valkey-{number}"))
                stores.append(await open_redis(server.url, dead_after=600.0))
                stack.push_async_callback(stores[-1].close)
                await test_redis_size.fill(server, stores[-1], number)
            return await compared(stores, rounds)


def measure(plan: Plan, found: Found) -> None:
    for name, measured in {"embedded": embedded, "PostgreSQL": postgres, "Valkey": redis}.items():
        say(f"claims among {plan.rows:,} rows: {name}")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            times = runner.run(measured(plan.work, plan.rows, plan.rounds))
        label = f"claim and settlement among {plan.rows:,} rows against {FEW:,}, {name}, times"
        found.judge(label, times, "at most", 1.3)
