"""What is past its time goes, in transactions so small that nobody waits for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from proxy.faults import Point, reach
from proxy.store import postgres_calls as statements
from proxy.store.base import Collected
from proxy.store.postgres_blobs import PostgresBlobs
from proxy.store.postgres_line import LONG, Lines

# Of one transaction: it keeps others waiting, and their log.
MOST_BYTES = 4 * 1024 * 1024


class Collector:
    def __init__(self, lines: Lines, blobs: PostgresBlobs, gone: Callable[[Sequence[bytes]], None]) -> None:
        self._lines = lines
        self._blobs = blobs
        self._gone = gone
        self._turn = asyncio.Lock()

    async def collect(self, now: float, limit: int, runs_before: float) -> Collected:
        async with self._turn:
            calls, size, more, _ = await self._portion(statements.COLLECT, now, limit)
            runs = 0
            if not more and runs_before:
                room = max(1, limit - calls)
                in_runs, bytes_, more, runs = await self._portion(statements.COLLECT_RUNS, runs_before, room)
                calls, size = calls + in_runs, size + bytes_
            reach(Point.CALLS_COLLECTED)
            if not more:
                ((gone,),) = await self._lines.ask(
                    statements.COLLECT_SPENDING, (int(now * 1000), limit), patience=LONG
                )
                more = gone == limit
            # Blobs come when no call is left to go: a round over them then meets what those have named.
            blobs = 0
            if not more:
                blobs, bytes_, more = await self._blobs.collect(limit)
                size += bytes_
                if blobs:
                    reach(Point.BLOB_COLLECTED)
        return Collected(calls=calls, blobs=blobs, bytes=size, more=more, runs=runs)

    async def _portion(self, text: str, before: float, limit: int) -> tuple[int, int, bool, int]:
        """How many calls, their bytes, whether there are more, and how many runs have ended."""
        ((keys, size, more, runs),) = await self._lines.ask(text, (before, limit, MOST_BYTES), patience=LONG)
        self._gone(keys)
        return len(keys), size, more, runs

    async def count(self, now: float, runs_before: float) -> Collected:
        """What would go in the end."""
        ((calls, size),) = await self._lines.ask(statements.EXPIRED_IN_ALL, (now,), again=True, patience=LONG)
        over = await self._lines.ask(statements.OVER_IN_ALL, (runs_before,), again=True, patience=LONG)
        ((in_runs, bytes_, runs),) = over
        blobs, blob_bytes = await self._blobs.count(now, runs_before)
        return Collected(
            calls=calls + in_runs, blobs=blobs, bytes=size + bytes_ + blob_bytes, more=False, runs=runs
        )
