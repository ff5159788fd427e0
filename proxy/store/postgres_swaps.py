"""What becomes of a batch: one statement, one commit, an answer for each.

A batch that the server refused changed nothing: it is tried again after a deadlock, and in halves where one
job cannot be stored, so that the others have nothing to do with it. A batch whose answer was lost may have
been committed: every one of its callers is told that the store is not available, and reads the row again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import orjson

from proxy.core.budget import Spent
from proxy.core.intent import Call, Entry
from proxy.errors import StoreUnavailable
from proxy.faults import Point, reach
from proxy.store import postgres_calls as statements
from proxy.store.base import Swap, Told
from proxy.store.codec import DamagedRecord
from proxy.store.postgres_batch import Batches
from proxy.store.postgres_line import DEADLOCKS, MOST_TRIES, Line, Refused, Row
from proxy.store.telling import tell


class SwapsSoon:
    """What the store does itself, with whoever need not await it."""

    _swaps: Batches[statements.SwapJob]

    def swap_soon(self, call: Call, entry: Entry, *, expected: int, told: Told) -> None:
        future = self._swaps.submit(statements.SwapJob(call, entry, None, None))
        future.add_done_callback(partial(tell, told))


class Swaps:
    def __init__(self, line: Line, wrote: Callable[[Sequence[tuple[bytes, int]]], None]) -> None:
        self._line = line
        self._wrote = wrote

    async def perform(self, jobs: Sequence[statements.SwapJob]) -> list[Any]:
        order = sorted(range(len(jobs)), key=lambda n: jobs[n].place)
        outcomes = await self._in_order([jobs[n] for n in order])
        return [outcome for _, outcome in sorted(zip(order, outcomes, strict=True), key=lambda pair: pair[0])]

    async def _in_order(self, jobs: list[statements.SwapJob]) -> list[Any]:
        for tries_left in reversed(range(MOST_TRIES)):
            try:
                return await self._commit(jobs)
            except Refused as error:
                refused = error
                if error.code in DEADLOCKS and tries_left:
                    continue
                break
        if len(jobs) == 1 or not _is_about_values(refused):
            return [StoreUnavailable(str(refused)) for _ in jobs]
        middle = len(jobs) // 2
        return await self._in_order(jobs[:middle]) + await self._in_order(jobs[middle:])

    async def _commit(self, jobs: list[statements.SwapJob]) -> list[Any]:
        text, values = statements.swap(jobs)
        reach(Point.COMMIT_BEGUN)
        rows = await self._line.attempt(text, values)
        reach(Point.COMMITTED)
        won = [job.call for job, (outcome, *_) in zip(jobs, rows, strict=True) if outcome == "won"]
        if won:
            self._wrote([(call.key, call.version) for call in won])
        lost = [job.call.key for job, (outcome, *_) in zip(jobs, rows, strict=True) if outcome == "lost"]
        present = await self._present(lost) if lost else {}
        return [_outcome(job, present, *row) for job, row in zip(jobs, rows, strict=True)]

    async def _present(self, keys: list[bytes]) -> dict[bytes, Any]:
        """What stands in the way of the losers. If that cannot be read, only they are told."""
        try:
            rows = await self._line.ask(statements.GET, (keys,), again=True)
        except StoreUnavailable as error:
            return dict.fromkeys(keys, error)
        return {statements.key_of(row): _read(row) for row in rows}


def _outcome(
    job: statements.SwapJob, present: dict[bytes, Any], outcome: str, place: int, held: str | None
) -> Any:  # noqa: ANN401 (a swap, or why it is none)
    if outcome == "won":
        return Swap(True, seq=place if job.call.run else 0)
    if held is not None:
        return Swap(False, exceeded=tuple(Spent(*row) for row in orjson.loads(held)))
    if outcome == "absent":
        return StoreUnavailable("the store is not available: the run is not there")
    stands = present.get(job.call.key)
    return stands if isinstance(stands, Exception) else Swap(False, stands)


def _read(row: Row) -> Any:  # noqa: ANN401 (a call, or why it is none)
    try:
        return statements.call_of(row)
    except DamagedRecord as error:
        return StoreUnavailable(f"the store is not available: {error}")


def _is_about_values(error: Refused) -> bool:
    """Classes 22 and 23, or refused before anything was sent: the values of some job are the reason."""
    return not error.code or error.code.startswith(("22", "23"))


class Reads:
    """Rows as they come; who asked makes a call of it."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def get(self, keys: Sequence[bytes]) -> list[Row | None]:
        rows = {statements.key_of(row): row for row in await self._ask(statements.GET, keys)}
        return [rows.get(key) for key in keys]

    async def versions(self, keys: Sequence[bytes]) -> list[tuple[int, float] | None]:
        found = {key: (version, born) for key, version, born in await self._ask(statements.VERSIONS, keys)}
        return [found.get(key) for key in keys]

    async def _ask(self, text: str, keys: Sequence[bytes]) -> list[Row]:
        return await self._line.ask(text, (list(set(keys)),), again=True)
