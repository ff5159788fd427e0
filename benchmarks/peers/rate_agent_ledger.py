"""agent-ledger on PostgreSQL, as its README has it: `ledger.run(ToolCall(...), handler)`, here with a pool of
connections that is large enough to commit together. The handler posts over connections that it keeps."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, cast

from agent_ledger import Effect, EffectLedger, EffectLedgerOptions, ToolCall
from agent_ledger.stores.postgres import SCHEMA_SQL, PostgresStore
from psycopg_pool import AsyncConnectionPool

from benchmarks.bodies import request
from benchmarks.peers.rating import Order, calls, ordered, result, serve

POOL = 16


class Connection(asyncio.Protocol):
    """One request at a time; the answer has a Content-Length."""

    def __init__(self) -> None:
        self._pending = b""
        self._answer: asyncio.Future[dict[str, Any]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def post(self, body: bytes) -> asyncio.Future[dict[str, Any]]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request("/pay", body))
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._pending += data
        head, found, body = self._pending.partition(b"\r\n\r\n")
        if not found or self._answer is None:
            return
        lowered = head.lower()
        length = int(lowered[lowered.index(b"content-length:") + 15 :].split(b"\r\n", 1)[0])
        if len(body) >= length:
            self._pending = b""
            self._answer.set_result(result(int(head[9:12]), body))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the upstream closed the connection"))


class Ledger:
    """The library, and connections to the upstream that are lent to one call at a time."""

    def __init__(self, order: Order, store: object) -> None:
        self._order = order
        self._ledger: Any = EffectLedger(EffectLedgerOptions(store=store))
        self._idle: list[Connection] = []

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self._order.callers):
            _, connection = await loop.create_connection(Connection, "127.0.0.1", self._order.port)
            self._idle.append(connection)

    async def pay(self, arguments: dict[str, Any]) -> None:
        async def handler(_: Effect) -> dict[str, Any]:
            connection = self._idle.pop()
            try:
                return await connection.post(json.dumps(arguments).encode())
            finally:
                self._idle.append(connection)

        call = ToolCall(workflow_id="rates", tool="pay", args=arguments)
        await self._ledger.run(call, handler=handler)

    async def work(self, seed: str, number: int) -> float:
        left = calls(seed, number)

        async def caller() -> None:
            for arguments in left:
                await self.pay(arguments)

        began = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(self._order.callers)))
        return time.perf_counter() - began


if __name__ == "__main__":
    start = ordered()
    with asyncio.Runner() as runner:

        async def opened() -> tuple[Ledger, Any]:
            pool: Any = AsyncConnectionPool(conninfo=start.store, min_size=POOL, max_size=POOL, open=False)
            await pool.open(wait=True)
            async with pool.connection() as connection:
                await connection.execute(SCHEMA_SQL)
            ledger = Ledger(start, PostgresStore(pool=pool))
            await ledger.connect()
            return ledger, pool

        ledger, pool = runner.run(opened())
        serve(lambda seed, number: runner.run(ledger.work(seed, number)))
        runner.run(pool.close())
