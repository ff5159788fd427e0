"""The part of the embedded store that is about runs. embedded.py says how it reads and writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from proxy.core.run_record import Changes, How, Run, RunEntry, Serving, Tally
from proxy.store import run_statements
from proxy.store.base import RunPage, RunQuery
from proxy.store.reader import Reader
from proxy.store.stamp import ForeignStamp
from proxy.store.writer import Writer

T = TypeVar("T")


class EmbeddedRuns:
    """What it takes for granted is EmbeddedStore's."""

    _reader: Reader
    _writer: Writer
    _runs_stamp: ForeignStamp
    _closed: bool
    _marks_come: Callable[[], None]
    _flush_all_marks: Callable[[], Awaitable[None]]

    async def _apart(self, perform: Callable[..., T], *args: object) -> T:
        raise NotImplementedError

    async def open_run(self, tenant: str, name: str, attempt: str, now: float) -> Run:
        run: Run = await self._writer.submit(run_statements.open_run, tenant, name, attempt, now)
        return run

    def runs_stamp(self) -> int | None:
        return None if self._closed else self._runs_stamp.generation()

    async def get_run(self, tenant: str, name: str) -> Run | None:
        run: Run | None = await self._reader.submit(run_statements.get_run, tenant, name)
        return run

    async def swap_run(self, run: Run, entry: RunEntry, *, expected: int) -> bool:
        won: bool = await self._writer.submit(run_statements.swap_run, run, entry, expected)
        return won

    async def run_changes(self, tenant: str, name: str, attempt: str, since: int) -> Changes | None:
        perform = run_statements.changes
        changes: Changes | None = await self._reader.submit(perform, tenant, name, attempt, since)
        return changes

    def mark_served(self, served: Serving) -> None:
        self._writer.served.add(served)
        self._marks_come()

    async def note_run(self, tenant: str, name: str, entry: RunEntry) -> None:
        await self._writer.submit(run_statements.note_run, tenant, name, entry)

    async def run_history(self, tenant: str, name: str) -> list[RunEntry]:
        return await self._apart(run_statements.run_history, tenant, name)

    async def list_runs(self, query: RunQuery) -> RunPage:
        return await self._apart(run_statements.list_runs, query)

    async def run_sums(self, tenant: str, name: str) -> dict[str, Counter[How]]:
        await self._flush_all_marks()
        return await self._apart(run_statements.sums, tenant, name)

    async def run_asked(self, tenant: str, name: str, attempt: str) -> frozenset[bytes]:
        await self._flush_all_marks()
        return await self._apart(run_statements.asked, tenant, name, attempt)

    async def run_tallies(self, tenant: str, name: str) -> list[Tally]:
        await self._flush_all_marks()
        return await self._apart(run_statements.tallies, tenant, name)

    async def tenants_of(self, name: str) -> list[str]:
        return await self._apart(run_statements.tenants_of, name)
