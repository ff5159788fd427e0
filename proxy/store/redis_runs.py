"""The part of the Redis store that is about runs. Every change is one script, like that of a call."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import orjson

from proxy.core.run_record import Attempt, Changes, Exchange, How, Run, RunEntry, RunState, Serving, Tally
from proxy.errors import StoreUnavailable
from proxy.store.base import RunPage, RunQuery
from proxy.store.codec import DamagedRecord
from proxy.store.marks import ServedMarks
from proxy.store.redis_pipe import Pipe, unavailable
from proxy.store.redis_rows import attempt_mark, read_exchange, read_run, read_step, run_id, write_run
from proxy.store.redis_wire import Part

# Runs are listed in portions: each is one moment of the server's time.
PORTION = 200
BEYOND = 2**53


class RedisRuns:
    """What it takes for granted is RedisStore's."""

    _pipe: Pipe
    _tag: str
    _closed: bool
    _served: ServedMarks
    _marks_come: Callable[[], None]
    _flush_marks: Callable[[], Awaitable[None]]

    async def open_run(self, tenant: str, name: str, attempt: str, now: float) -> Run:
        first = (Attempt(name=attempt, first_at=now),) if attempt else ()
        while True:
            run = await self.get_run(tenant, name)
            if run is None:
                fresh = Run(tenant=tenant, name=name, created_at=now, active_at=now, attempts=first)
                if await self._swap_run(fresh, None, expected=0):
                    return fresh
            elif not attempt or attempt in run.attempt_names or run.state is RunState.EXPIRED:
                return run
            else:
                # Complete, and started again: it is open as before.
                attempts, version = (*run.attempts, *first), run.version + 1
                more = replace(run, attempts=attempts, version=version, state=RunState.OPEN, active_at=now)
                await self._swap_run(more, None, expected=run.version)

    def runs_stamp(self) -> int | None:
        """As for `settled_stamp`."""
        return None

    async def get_run(self, tenant: str, name: str) -> Run | None:
        (fields,) = await self._pipe.run("run_get", run_id(tenant, name))
        return None if fields is None else _readable(fields)[1]

    async def swap_run(self, run: Run, entry: RunEntry, *, expected: int) -> bool:
        return await self._swap_run(run, entry, expected=expected)

    async def _swap_run(self, run: Run, entry: RunEntry | None, *, expected: int) -> bool:
        try:
            written = write_run(run)
            line = b"" if entry is None else orjson.dumps(list(entry))
        except TypeError as error:
            raise unavailable(error) from error
        origin = run_id(run.tenant, run.origin or run.name)
        args: tuple[Part, ...] = (
            run_id(run.tenant, run.name), expected, run.tenant, run.name, origin, *written, line,
        )  # fmt: skip
        won = await self._pipe.run_in_time("run_swap", lambda: args)
        if won == -2:
            raise unavailable("the swap came too late and was not done")
        return bool(won)

    async def run_changes(self, tenant: str, name: str, attempt: str, since: int) -> Changes | None:
        mark = attempt_mark(attempt) if attempt else ""
        found = await self._pipe.run("run_changes", run_id(tenant, name), mark, since)
        if found is None:
            return None
        fields, rows, exchanges = found
        try:
            steps = [
                read_step(key, row) for key, row in zip(rows[::2], rows[1::2], strict=True) if row is not None
            ]
            served = [read_exchange(value) for value in exchanges[1::2] if value is not None]
        except (DamagedRecord, ValueError, KeyError) as error:
            raise unavailable(error) from error
        return Changes(_readable(fields)[1], steps, served)

    def mark_served(self, served: Serving) -> None:
        if not self._closed:
            self._served.add(served)
            self._marks_come()

    async def note_run(self, tenant: str, name: str, entry: RunEntry) -> None:
        await self._pipe.run("run_note", run_id(tenant, name), orjson.dumps(list(entry)))

    async def run_history(self, tenant: str, name: str) -> list[RunEntry]:
        lines = await self._pipe.ask("LRANGE", f"{self._tag}:re:{run_id(tenant, name)}", 0, -1)
        try:
            return [RunEntry(*orjson.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise unavailable(error) from error

    async def list_runs(self, query: RunQuery) -> RunPage:
        found: list[tuple[int, Run]] = []
        below = BEYOND if query.after is None else query.after
        while len(found) <= query.limit:
            portion = [_readable(fields) for fields in await self._pipe.run("runs_page", below, PORTION)]
            found += [(number, run) for number, run in portion if _fits(run, query)]
            if len(portion) < PORTION:
                break
            below = portion[-1][0]
        page = found[: query.limit]
        return RunPage(runs=[run for _, run in page], next=page[-1][0] if len(found) > len(page) else None)

    async def run_sums(self, tenant: str, name: str) -> dict[str, Counter[How]]:
        sums: dict[str, Counter[How]] = {}
        for _, exchange in await self._exchanges(tenant, name):
            sums.setdefault(exchange.attempt, Counter())[exchange.how] += 1
        return sums

    async def run_asked(self, tenant: str, name: str, attempt: str) -> frozenset[bytes]:
        exchanges = await self._exchanges(tenant, name)
        return frozenset(key for key, exchange in exchanges if exchange.attempt == attempt)

    async def run_tallies(self, tenant: str, name: str) -> list[Tally]:
        times: dict[tuple[str, bytes, How], list[float]] = {}
        for key, exchange in await self._exchanges(tenant, name):
            times.setdefault((exchange.attempt, key, exchange.how), []).append(exchange.at)
        return [Tally(*group, len(at), max(at)) for group, at in sorted(times.items())]

    async def _exchanges(self, tenant: str, name: str) -> list[tuple[bytes, Exchange]]:
        """Marks just made are among them."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        with contextlib.suppress(StoreUnavailable):
            await self._flush_marks()
        values = await self._pipe.ask("HVALS", f"{self._tag}:x:{run_id(tenant, name)}")
        try:
            return [read_exchange(value) for value in values]
        except (ValueError, KeyError) as error:
            raise unavailable(error) from error

    async def tenants_of(self, name: str) -> list[str]:
        found = await self._pipe.ask("SMEMBERS", f"{self._tag}:tenants:{name}")
        return sorted(tenant.decode() for tenant in found)


def _fits(run: Run, query: RunQuery) -> bool:
    return (not query.tenant or run.tenant == query.tenant) and (
        query.state is None or run.state is query.state
    )


def _readable(fields: list[bytes]) -> tuple[int, Run]:
    try:
        return read_run(fields)
    except DamagedRecord as error:
        raise unavailable(error) from error
