"""The part of the PostgreSQL store that is about runs, with its statements.

A run's row is locked from the first change of one of its calls until the commit. So pulses become visible in
their order: whoever has read a run up to a pulse finds everything later under higher ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

from proxy.core.run_record import Attempt, Changes, How, Run, RunEntry, RunState, Serving, Tally
from proxy.errors import StoreUnavailable
from proxy.store.base import RunPage, RunQuery
from proxy.store.postgres_calls import storable, stored
from proxy.store.postgres_lazily import Lazily
from proxy.store.postgres_line import LONG, Line, Lines, Row
from proxy.store.run_codec import (
    EXCHANGE_COLUMNS,
    RUN_COLUMNS,
    STEP_COLUMNS,
    row_to_exchange,
    row_to_run,
    row_to_step,
    run_to_row,
)

_RUN = ", ".join(RUN_COLUMNS)
_STEP = ", ".join(STEP_COLUMNS)
_STEP_TEXTS = tuple(STEP_COLUMNS.index(name) for name in ("run", "attempt", "upstream", "rule", "tool"))
_EXCHANGE = ", ".join(f'"{name}"' for name in EXCHANGE_COLUMNS)
_ID = "(SELECT id FROM semel.runs WHERE tenant = $1 AND name = $2)"
# Of `open_run`: others may list their attempts at the same moment, each once.
MOST_TRIES = 100

GET_RUN = f"SELECT {_RUN} FROM semel.runs WHERE tenant = $1 AND name = $2"  # noqa: S608 (constants, here and below)
INSERT_RUN = (
    "WITH durable AS (SELECT semel.be_durable()) "  # noqa: S608
    f"INSERT INTO semel.runs ({_RUN}, root) "
    "SELECT $1::text, $2::text, $3::float8, $4::float8, $5::text, $6::bigint, $7::bigint, $8::bigint, "
    "$9::text, $10::text FROM durable ON CONFLICT (tenant, name) DO NOTHING RETURNING id"
)
UPDATE_RUN = (
    "WITH durable AS (SELECT semel.be_durable()) "
    "UPDATE semel.runs SET state = $3, version = $4::bigint, record = $5, "
    "active_at = greatest(active_at, $6::float8), pulse = pulse + 1 FROM durable "
    "WHERE tenant = $1 AND name = $2 AND version = $4::bigint - 1 RETURNING "
)
_LINE = "INSERT INTO semel.run_events (run, at, actor, event, why) SELECT id, {values} FROM "
# The change and its line of history in one statement.
INSERT_WITH_LINE = (
    INSERT_RUN.replace("INSERT INTO semel.runs", ", made AS (INSERT INTO semel.runs", 1)
    + ") "
    + _LINE.format(values="$11::float8, $12::text, $13::text, $14::text")
    + "made RETURNING run"
)
UPDATE_WITH_LINE = (
    UPDATE_RUN.replace("UPDATE semel.runs", ", made AS (UPDATE semel.runs", 1)
    + "id) "
    + _LINE.format(values="$7::float8, $8::text, $9::text, $10::text")
    + "made RETURNING run"
)
NOTE_RUN = (
    "WITH durable AS (SELECT semel.be_durable()) "
    + _LINE.format(values="$3::float8, $4::text, $5::text, $6::text")
    + "semel.runs, durable WHERE tenant = $1 AND name = $2"
)
STEPS = (
    f"SELECT {_STEP} FROM semel.calls "  # noqa: S608
    "WHERE run <> '' AND tenant = $1 AND run = $2 AND pulse > $3 ORDER BY pulse"
)
EXCHANGES = f"SELECT call, {_EXCHANGE} FROM semel.exchanges WHERE run = {_ID} AND attempt = $3 AND pulse > $4"  # noqa: S608
SUMS = f"SELECT attempt, how, count(*) FROM semel.exchanges WHERE run = {_ID} GROUP BY attempt, how"  # noqa: S608
TALLIES = (
    f"SELECT attempt, call, how, count(*), max(at) FROM semel.exchanges WHERE run = {_ID} "  # noqa: S608
    "GROUP BY attempt, call, how ORDER BY attempt, call, how"
)
TENANTS_OF = "SELECT tenant FROM semel.runs WHERE name = $1 ORDER BY tenant"
ASKED = f"SELECT DISTINCT call FROM semel.exchanges WHERE run = {_ID} AND attempt = $3"  # noqa: S608
RUN_HISTORY = f"SELECT at, actor, event, why FROM semel.run_events WHERE run = {_ID} ORDER BY n"  # noqa: S608


class PostgresRuns:
    """What it takes for granted is PostgresStore's."""

    _reading: Line
    _lines: Lines
    _lazily: Lazily
    _write: Callable[..., Awaitable[list[Row]]]

    async def open_run(self, tenant: str, name: str, attempt: str, now: float) -> Run:
        first = (Attempt(name=attempt, first_at=now),) if attempt else ()
        for _ in range(MOST_TRIES):
            run = await self.get_run(tenant, name)
            if run is None:
                made = Run(tenant=tenant, name=name, created_at=now, active_at=now, attempts=first)
                if await self._write(INSERT_RUN, _values(made)):
                    return made
            elif not attempt or attempt in run.attempt_names or run.state is RunState.EXPIRED:
                return run
            else:
                # Complete, and started again: it is open as before.
                opened = replace(
                    run, attempts=(*run.attempts, *first), version=run.version + 1, state=RunState.OPEN
                )
                rows = await self._write(UPDATE_RUN + _RUN, _changed(replace(opened, active_at=now)))
                if rows:
                    return _run(rows[0])  # with the store's own counters
        raise StoreUnavailable("the store is not available: the run is changed without end")

    def runs_stamp(self) -> int | None:
        return None  # what other processes do is not known without asking

    async def get_run(self, tenant: str, name: str) -> Run | None:
        rows = await self._reading.ask(GET_RUN, (tenant, name), again=True)
        return _run(rows[0]) if rows else None

    async def swap_run(self, run: Run, entry: RunEntry, *, expected: int) -> bool:
        line = (entry.at, storable(entry.actor), entry.event, storable(entry.why))
        if expected == 0:
            return bool(await self._write(INSERT_WITH_LINE, (*_values(run), *line)))
        if run.version != expected + 1:
            raise ValueError("a swap writes the version after the expected one")
        return bool(await self._write(UPDATE_WITH_LINE, (*_changed(run), *line)))

    async def run_changes(self, tenant: str, name: str, attempt: str, since: int) -> Changes | None:
        """The run is read first: what is read after it is at least as new."""
        runs, steps, exchanges = await self._reading.ask_all(
            [
                (GET_RUN, (tenant, name)),
                (STEPS, (tenant, name, since)),
                (EXCHANGES, (tenant, name, attempt, since)),
            ],
            again=True,
        )
        if not runs:
            return None
        told = [(row[0], row_to_exchange(row[1:])) for row in exchanges] if attempt else []
        return Changes(_run(runs[0]), [row_to_step(_step(row)) for row in steps], told)

    def mark_served(self, served: Serving) -> None:
        self._lazily.served.add(served)
        self._lazily.come()

    async def note_run(self, tenant: str, name: str, entry: RunEntry) -> None:
        line = (entry.at, storable(entry.actor), entry.event, storable(entry.why))
        await self._write(NOTE_RUN, (tenant, name, *line))

    async def run_history(self, tenant: str, name: str) -> list[RunEntry]:
        rows = await self._lines.ask(RUN_HISTORY, (tenant, name), again=True)
        return [RunEntry(at, stored(actor), event, stored(why)) for at, actor, event, why in rows]

    async def list_runs(self, query: RunQuery) -> RunPage:
        values: list[object] = [query.limit + 1]
        where = ["true"]
        state = None if query.state is None else query.state.value
        for condition, value in (("tenant =", query.tenant), ("state =", state), ("id <", query.after)):
            if value not in ("", None):
                values.append(value)
                where.append(f"{condition} ${len(values)}")
        text = f"SELECT id, {_RUN} FROM semel.runs WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT $1"  # noqa: S608
        found = [
            (row[0], _run(row[1:])) for row in await self._lines.ask(text, values, again=True, patience=LONG)
        ]
        page = found[: query.limit]
        return RunPage(runs=[run for _, run in page], next=page[-1][0] if len(found) > len(page) else None)

    async def run_sums(self, tenant: str, name: str) -> dict[str, Counter[How]]:
        await self._lazily.flush()
        counted: dict[str, Counter[How]] = {}
        for attempt, how, number in await self._lines.ask(SUMS, (tenant, name), again=True):
            counted.setdefault(attempt, Counter())[How(how)] = number
        return counted

    async def run_asked(self, tenant: str, name: str, attempt: str) -> frozenset[bytes]:
        await self._lazily.flush()
        rows = await self._lines.ask(ASKED, (tenant, name, attempt), again=True)
        return frozenset(key for (key,) in rows)

    async def run_tallies(self, tenant: str, name: str) -> list[Tally]:
        await self._lazily.flush()
        rows = await self._lines.ask(TALLIES, (tenant, name), again=True)
        return [Tally(attempt, call, How(how), number, at) for attempt, call, how, number, at in rows]

    async def tenants_of(self, name: str) -> list[str]:
        return [tenant for (tenant,) in await self._lines.ask(TENANTS_OF, (name,), again=True)]


def _values(run: Run) -> Row:
    return (*run_to_row(run), run.origin or run.name)


def _changed(run: Run) -> Row:
    return (run.tenant, run.name, run.state.value, run.version, run_to_row(run)[-1], run.active_at)


def _run(row: Row) -> Run:
    return row_to_run(row)


def _step(row: Row) -> Row:
    values = list(row)
    for index in _STEP_TEXTS:
        values[index] = stored(values[index])
    return tuple(values)
