"""The part of the embedded store that removes what is past its time. embedded.py says how it works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import apsw

from proxy.faults import Point, reach
from proxy.store import run_statements, statements
from proxy.store.base import Collected
from proxy.store.blobs import Blobs
from proxy.store.unnamed import Found, Unnamed
from proxy.store.writer import Writer

NO_RUNS: frozenset[tuple[str, str]] = frozenset()
T = TypeVar("T")


class EmbeddedCollecting:
    """What it takes for granted is EmbeddedStore's."""

    _writer: Writer
    _blobs: Blobs
    _unnamed: Unnamed
    _collecting: asyncio.Lock

    async def _apart(self, perform: Callable[..., T], *args: object) -> T:
        raise NotImplementedError

    async def collect(
        self, now: float, *, limit: int = 500, dry_run: bool = False, runs_before: float = 0.0
    ) -> Collected:
        if dry_run:
            return await self._apart(self._count_collectable, now, runs_before)
        async with self._collecting:
            removed: statements.Removed = await self._writer.collect(now, limit, runs_before)
            reach(Point.CALLS_COLLECTED)
            # Blobs come when no call is left to go: a round over them then meets what those have named.
            found = Found(files=0, bytes=0)
            if not removed.more:
                found = await self._apart(
                    lambda reading: self._unnamed.remove(limit, partial(statements.names_blob, reading))
                )
        self._blobs.shrunk(found.bytes)
        return Collected(
            calls=len(removed.keys),
            blobs=found.files,
            bytes=removed.bytes + found.bytes,
            more=removed.more or found.more,
            runs=removed.runs,
        )

    def _count_collectable(self, connection: apsw.Connection, now: float, runs_before: float) -> Collected:
        alone, size = statements.expired_in_all(connection, now)
        ending, over = run_statements.over_in_all(connection, runs_before) if runs_before else (0, NO_RUNS)
        in_runs, size_in_runs = run_statements.calls_of(connection, over)
        found = self._unnamed.count(partial(statements.will_name_blob, connection, now, over))
        return Collected(
            calls=alone + in_runs,
            blobs=found.files,
            bytes=size + size_in_runs + found.bytes,
            more=False,
            runs=ending,
        )
