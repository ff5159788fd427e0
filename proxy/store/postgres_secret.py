"""The secret of a PostgreSQL store, and what a change of keys leaves behind."""

from __future__ import annotations

from proxy.store.postgres_cache import PostgresCache
from proxy.store.postgres_line import LONG, Line, Lines

_SECRET = "SELECT value FROM semel.meta WHERE name = 'secret'"  # noqa: S105 (a statement, not a password)
_SWAP = "UPDATE semel.meta SET value = $2 WHERE name = 'secret' AND value = $1"
_VACUUM = "VACUUM semel.calls, semel.cache"
LEFT = (
    "PostgreSQL writes over old versions of rows in its own time, and its log and backups have them too: for "
    "the tables, VACUUM FULL semel.calls at a quiet hour sees to it"
)


class PostgresSecret:
    """What it takes for granted is PostgresStore's."""

    secret: bytes
    _reading: Line
    _lines: Lines
    _cache: PostgresCache

    async def swap_secret(self, old: bytes, new: bytes) -> bytes:
        await self._reading.ask(_SWAP, (old, new), again=True)
        ((secret,),) = await self._reading.ask(_SECRET, again=True)
        self.secret = bytes(secret)
        return self.secret

    async def scrub(self) -> str:
        await self._cache.clear()
        await self._lines.ask(_VACUUM, again=True, patience=LONG)
        return LEFT
