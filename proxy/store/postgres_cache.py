"""The shared cache in PostgreSQL: a table that is not logged, because all of it may be lost.

It has no failure worth a call: whatever goes wrong is a miss.
"""

from __future__ import annotations

import contextlib
import time

from proxy.errors import StoreUnavailable
from proxy.store.postgres_line import Line

PUT = (
    "INSERT INTO semel.cache (key, value, expires_at, size) VALUES ($1, $2::bytea, $3, length($2::bytea)) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at, "
    "size = excluded.size"
)
CLEAR = "DELETE FROM semel.cache"
GET = "SELECT value FROM semel.cache WHERE key = $1 AND expires_at > $2"
# What has expired, and of the rest what expires first, as far as it is over the limit; a little at a time.
TRIM = """
WITH expired AS (
  DELETE FROM semel.cache WHERE key IN (
    SELECT key FROM semel.cache WHERE expires_at <= $1 ORDER BY expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED)
), kept AS (
  SELECT key, expires_at, sum(size) OVER (ORDER BY expires_at DESC, key) AS total
  FROM semel.cache WHERE expires_at > $1 AND (SELECT sum(size) FROM semel.cache) > $2
), evicted AS (
  DELETE FROM semel.cache WHERE key IN (SELECT key FROM kept WHERE total > $2 ORDER BY expires_at LIMIT 1000)
  RETURNING key
)
SELECT count(*) FROM evicted
"""


class PostgresCache:
    def __init__(self, line: Line, limit: int) -> None:
        self.evictions = 0  # for want of room; what merely expired does not count
        self._line = line
        self._limit = limit

    async def put(self, key: bytes, value: bytes, ttl: float) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._line.ask(PUT, (key, value, time.time() + ttl))

    async def get(self, key: bytes) -> bytes | None:
        with contextlib.suppress(StoreUnavailable):
            for (value,) in await self._line.ask(GET, (key, time.time()), again=True):
                return bytes(value)
        return None

    async def trim(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            ((evicted,),) = await self._line.ask(TRIM, (time.time(), self._limit))
            self.evictions += evicted

    async def clear(self) -> None:
        await self._line.ask(CLEAR)

    async def close(self) -> None:
        await self._line.close()
