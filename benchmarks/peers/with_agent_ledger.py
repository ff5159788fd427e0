"""agent-ledger on PostgreSQL, as its README has it: `ledger.run(ToolCall(...), handler)`.

`default` leaves the takeover of stale effects off, as it is by default. `recovery` turns it on
(StaleOptions.after_ms). `key` does so too, and passes `effect.idem_key` to the upstream, as is advised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agent_ledger import (
    ConcurrencyOptions,
    Effect,
    EffectLedger,
    EffectLedgerOptions,
    RunOptions,
    StaleOptions,
    ToolCall,
)
from agent_ledger.errors import EffectTimeoutError
from agent_ledger.stores.postgres import SCHEMA_SQL, PostgresStore
from psycopg_pool import AsyncConnectionPool

from benchmarks.peers.asking import Order, Told, answered, failed, main, passed, post

WAITS = 10.0  # by default 30: shorter, so that several fit into the time
STALE_MS = {"default": 0, "recovery": 5_000, "key": 5_000}


async def _ask(order: Order) -> Told:
    options = RunOptions(
        concurrency=ConcurrencyOptions(effect_timeout_s=WAITS),
        stale=StaleOptions(after_ms=STALE_MS[order.mode]),
    )

    async def handler(effect: Effect) -> dict[str, Any]:
        key = effect.idem_key if order.mode == "key" else None
        return await asyncio.to_thread(post, order.target, order.call, key)

    async with AsyncConnectionPool(conninfo=order.store, min_size=1, max_size=2, open=False) as pool:
        if order.setup:
            async with pool.connection() as connection:
                await connection.execute(SCHEMA_SQL)
        ledger: Any = EffectLedger(EffectLedgerOptions(store=PostgresStore(pool=pool)))
        call = ToolCall(workflow_id="peers", tool="act", args={"ref": order.call})
        try:
            answer = await ledger.run(call, handler=handler, run_options=options)
        except EffectTimeoutError as error:
            return failed(error, "wait")
        await asyncio.to_thread(passed, order)
        return answered(answer)


def prepare(order: Order) -> Callable[[], Told]:
    return lambda: asyncio.run(_ask(order))


if __name__ == "__main__":
    main(prepare)
