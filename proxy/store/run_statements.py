"""Every statement on runs, named, run by the writer or the reader like those of statements.py.

A change of a run's call raises the run's pulse in the same transaction, so that whoever knows a run up to a
pulse reads only what came after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import apsw

from proxy.core.budget import Charge
from proxy.core.run_record import Attempt, Changes, How, Run, RunEntry, RunState, Serving, Tally
from proxy.store import statements
from proxy.store.base import RunPage, RunQuery, Swap
from proxy.store.codec import CALL_COLUMNS, Row
from proxy.store.run_codec import (
    EXCHANGE_COLUMNS,
    RUN_COLUMNS,
    STEP_COLUMNS,
    exchange_to_row,
    row_to_exchange,
    row_to_run,
    row_to_step,
    run_to_row,
)
from proxy.store.spending_statements import REMOVE_OF_RUN

_RUN = ", ".join(RUN_COLUMNS)
_STEP = ", ".join(STEP_COLUMNS)
_EXCHANGE = ", ".join(EXCHANGE_COLUMNS)
_SEQ, _TENANT, _NAME = (CALL_COLUMNS.index(name) for name in ("seq", "tenant", "run"))

GET_RUN = f"SELECT {_RUN} FROM runs WHERE tenant = ? AND name = ?"  # noqa: S608 (constants, here and below)
INSERT_RUN = (
    f"INSERT INTO runs ({_RUN}) VALUES ({', '.join('?' * len(RUN_COLUMNS))}) "  # noqa: S608
    "ON CONFLICT (tenant, name) DO NOTHING"
)
UPDATE_RUN = (
    "UPDATE runs SET state = ?3, version = ?4, record = ?5, active_at = max(active_at, ?6), "
    "pulse = pulse + 1 WHERE tenant = ?1 AND name = ?2 AND version = ?4 - 1"
)
IS_EXPIRED = "SELECT 1 FROM runs WHERE tenant = ? AND name = ? AND state = 'expired'"
COUNTERS = "SELECT id, pulse, last_seq FROM runs WHERE tenant = ? AND name = ?"
# A run that is over has no exchanges any more.
LIVING_COUNTERS = f"{COUNTERS} AND state <> 'expired'"
BEAT = "UPDATE runs SET pulse = ?2, last_seq = ?3, active_at = max(active_at, ?4) WHERE id = ?1"
STAMP_CALL = "UPDATE calls SET seq = ?2, pulse = ?3 WHERE key = ?1"
PUT_EXCHANGE = (
    f"INSERT INTO exchanges (run, call, pulse, {_EXCHANGE}) "  # noqa: S608
    f"VALUES (?1, ?2, ?3, {', '.join(f'?{n}' for n in range(4, len(EXCHANGE_COLUMNS) + 4))}) "
    "ON CONFLICT (run, attempt, call, number, owner) DO UPDATE SET "
    "fence = excluded.fence, end = excluded.end, final = excluded.final, how = excluded.how, "
    "pulse = excluded.pulse"
)
STEPS = (
    f"SELECT {_STEP} FROM calls INDEXED BY calls_of_runs "  # noqa: S608
    "WHERE run <> '' AND tenant = ?1 AND run = ?2 AND pulse > ?3 ORDER BY pulse"
)
EXCHANGES = f"SELECT call, {_EXCHANGE} FROM exchanges WHERE run = ?1 AND attempt = ?2 AND pulse > ?3"  # noqa: S608
SUMS = "SELECT attempt, how, count(*), max(at) FROM exchanges WHERE run = ? GROUP BY attempt, how"
TALLIES = (
    "SELECT attempt, call, how, count(*), max(at) FROM exchanges WHERE run = ? "
    "GROUP BY attempt, call, how ORDER BY attempt, call, how"
)
TENANTS_OF = "SELECT tenant FROM runs WHERE name = ? ORDER BY tenant"
ASKED = "SELECT DISTINCT call FROM exchanges WHERE run = ?1 AND attempt = ?2"
NOTE_RUN = (
    "INSERT INTO run_events (run, n, at, actor, event, why) "
    "SELECT id, (SELECT coalesce(max(n), 0) + 1 FROM run_events WHERE run = id), ?3, ?4, ?5, ?6 "
    "FROM runs WHERE tenant = ?1 AND name = ?2"
)
RUN_HISTORY = (
    "SELECT at, actor, event, why FROM run_events JOIN runs ON runs.id = run_events.run "
    "WHERE tenant = ? AND name = ? ORDER BY n"
)
LIST_RUNS = (
    f"SELECT id, {_RUN} FROM runs WHERE id < ?1 AND (?2 = '' OR tenant = ?2) "  # noqa: S608
    "AND (?3 = '' OR state = ?3) ORDER BY id DESC LIMIT ?4"
)
# Runs whose time is over. A fork refers to what came before it, so relatives (one origin) go together.
OVER = (
    "SELECT id, tenant, name FROM runs INDEXED BY runs_by_activity WHERE state <> 'expired' "
    "AND active_at < ?1 AND NOT EXISTS (SELECT 1 FROM runs AS kin WHERE kin.tenant = runs.tenant "
    "AND kin.state <> 'expired' AND kin.active_at >= ?1 "
    "AND coalesce(kin.record ->> '$.origin', kin.name) = coalesce(runs.record ->> '$.origin', runs.name)) "
    "ORDER BY active_at LIMIT ?2"
)
CALLS_OVER = (
    "SELECT id, key, state = 'done', "
    "length(request) + coalesce(length(answer_head), 0) + coalesce(length(answer_body), 0) AS size "
    "FROM calls INDEXED BY calls_of_runs WHERE run <> '' AND tenant = ?1 AND run = ?2 "
    "AND state NOT IN ('pending', 'in_doubt') ORDER BY pulse LIMIT ?3"
)
# Far smaller than calls: so many for each of a portion.
EXCHANGES_PER_CALL = 5
REMOVE_EXCHANGES = (
    "DELETE FROM exchanges WHERE (run, attempt, call, number, owner) IN "
    "(SELECT run, attempt, call, number, owner FROM exchanges WHERE run = ?1 LIMIT ?2)"
)
# First of all, so that nobody goes on with a run of which a part is gone.
EXPIRE_RUN = "UPDATE runs SET state = 'expired', version = version + 1, pulse = pulse + 1 WHERE id = ?"
_TO_CLEAR = "FROM runs INDEXED BY runs_to_clear WHERE state = 'expired' AND NOT cleared"
_ITS_CALLS = (
    "SELECT 1 FROM calls INDEXED BY calls_of_runs WHERE run <> '' AND calls.tenant = runs.tenant "
    "AND run = runs.name"
)
# What is open stays until it is settled, and goes then.
TO_CLEAR = (
    f"SELECT id, tenant, name {_TO_CLEAR} "
    f"AND EXISTS ({_ITS_CALLS} AND calls.state NOT IN ('pending', 'in_doubt')) LIMIT 1"
)
_ITS_EXCHANGES = "SELECT 1 FROM exchanges WHERE exchanges.run = runs.id"
# A fork may have been served by its parent's calls alone.
TO_FORGET = f"SELECT id {_TO_CLEAR} AND EXISTS ({_ITS_EXCHANGES}) LIMIT 1"
ALL_TO_CLEAR = f"SELECT tenant, name {_TO_CLEAR}"
CLEARED = f"UPDATE runs SET cleared = 1 WHERE id IN (SELECT id {_TO_CLEAR} AND NOT EXISTS ({_ITS_CALLS}))"  # noqa: S608


def open_run(connection: apsw.Connection, tenant: str, name: str, attempt: str, now: float) -> Run:
    """The run, made if it is new, with the attempt listed in it."""
    run = get_run(connection, tenant, name)
    first = (Attempt(name=attempt, first_at=now),) if attempt else ()
    if run is None:
        run = Run(tenant=tenant, name=name, created_at=now, active_at=now, attempts=first)
        connection.execute(INSERT_RUN, run_to_row(run))
    elif attempt and attempt not in run.attempt_names and run.state is not RunState.EXPIRED:
        # Complete, and started again: it is open as before.
        run = replace(run, attempts=(*run.attempts, *first), version=run.version + 1, state=RunState.OPEN)
        _update(connection, run, active_at=now)
        run = get_run(connection, tenant, name) or run  # with the store's own counters
    return run


def get_run(connection: apsw.Connection, tenant: str, name: str) -> Run | None:
    for row in connection.execute(GET_RUN, (tenant, name)):
        return row_to_run(row)
    return None


def swap_run(connection: apsw.Connection, run: Run, entry: RunEntry, expected: int) -> bool:
    """`run` has the version after `expected`; 0: there is none yet."""
    if expected == 0:
        connection.execute(INSERT_RUN, run_to_row(run))
    else:
        _update(connection, run, active_at=run.active_at)
    if not connection.changes():
        return False
    note_run(connection, run.tenant, run.name, entry)
    return True


def _update(connection: apsw.Connection, run: Run, *, active_at: float) -> None:
    record = run_to_row(run)[-1]
    connection.execute(UPDATE_RUN, (run.tenant, run.name, run.state.value, run.version, record, active_at))


def swap_in_run(
    connection: apsw.Connection, row: Row, entry: Row, expected: int, now: float, takes_seq: bool,
    served: Serving | None, charge: Charge | None = None,
) -> Swap:  # fmt: skip
    """A swap of a run's call: its place in the order of claims, and who is served by it, in one step."""
    if takes_seq and is_expired(connection, row[_TENANT], row[_NAME]):
        return Swap(False, statements.get(connection, row[0]))  # nothing is begun in it any more
    for run, pulse, last_seq in connection.execute(COUNTERS, (row[_TENANT], row[_NAME])):
        swap = statements.swap(connection, row, entry, expected, charge)
        if not swap.won:
            return swap
        pulse += 1
        seq = row[_SEQ]
        if takes_seq:
            seq = last_seq = last_seq + 1
        connection.execute(STAMP_CALL, (row[0], seq, pulse))
        connection.execute(BEAT, (run, pulse, last_seq, now))
        if served is not None:  # in a fork it is another run than the row's
            mark_served(connection, [served])
        return Swap(True, seq=seq)
    raise ValueError("the run is not there")  # it is opened before anything is asked in it


def is_expired(connection: apsw.Connection, tenant: str, name: str) -> bool:
    return any(connection.execute(IS_EXPIRED, (tenant, name)))


def swap_in_run_settled(
    connection: apsw.Connection, row: Row, entry: Row, expected: int, now: float, takes_seq: bool,
    served: Serving | None, charge: Charge | None = None,
) -> Swap:  # fmt: skip
    """The same over a row that may be done: the writer lets everybody know."""
    return swap_in_run(connection, row, entry, expected, now, takes_seq, served, charge)


def mark_served(connection: apsw.Connection, marks: Iterable[Serving]) -> None:
    """Lazily: one more pulse for each run among them."""
    beats: dict[tuple[str, str], tuple[int, int, int, float]] = {}
    for served in marks:
        name = (served.tenant, served.run)
        if name not in beats:
            for run, pulse, last_seq in connection.execute(LIVING_COUNTERS, name):
                beats[name] = (run, pulse + 1, last_seq, served.exchange.at)
        if name in beats:
            run, pulse, last_seq, at = beats[name]
            beats[name] = (run, pulse, last_seq, max(at, served.exchange.at))
            connection.execute(PUT_EXCHANGE, (run, served.key, pulse, *exchange_to_row(served.exchange)))
    connection.executemany(BEAT, beats.values())


def changes(connection: apsw.Connection, tenant: str, name: str, attempt: str, since: int) -> Changes | None:
    run = get_run(connection, tenant, name)
    if run is None:
        return None
    if run.pulse == since:
        return Changes(run, [], [])
    steps = [row_to_step(row) for row in connection.execute(STEPS, (tenant, name, since))]
    number = _id(connection, tenant, name)
    exchanges = [
        (row[0], row_to_exchange(row[1:]))
        for row in (connection.execute(EXCHANGES, (number, attempt, since)) if attempt else ())
    ]
    return Changes(run, steps, exchanges)


def _id(connection: apsw.Connection, tenant: str, name: str) -> int | None:
    for number, _, _ in connection.execute(COUNTERS, (tenant, name)):
        return int(number)
    return None


def note_run(connection: apsw.Connection, tenant: str, name: str, entry: RunEntry) -> None:
    connection.execute(NOTE_RUN, (tenant, name, *entry))


def run_history(connection: apsw.Connection, tenant: str, name: str) -> list[RunEntry]:
    return [RunEntry(*row) for row in connection.execute(RUN_HISTORY, (tenant, name))]


def list_runs(connection: apsw.Connection, query: RunQuery) -> RunPage:
    newest = statements.BEYOND if query.after is None else query.after
    bindings: tuple[Any, ...] = (newest, query.tenant, query.state or "", query.limit + 1)
    found = [(row[0], row_to_run(row[1:])) for row in connection.execute(LIST_RUNS, bindings)]
    page = found[: query.limit]
    return RunPage(runs=[run for _, run in page], next=page[-1][0] if len(found) > len(page) else None)


def sums(connection: apsw.Connection, tenant: str, name: str) -> dict[str, Counter[How]]:
    counted: dict[str, Counter[How]] = {}
    for attempt, how, number, _ in connection.execute(SUMS, (_id(connection, tenant, name),)):
        counted.setdefault(attempt, Counter())[How(how)] = number
    return counted


def asked(connection: apsw.Connection, tenant: str, name: str, attempt: str) -> frozenset[bytes]:
    number = _id(connection, tenant, name)
    return frozenset(key for (key,) in connection.execute(ASKED, (number, attempt)))


def tallies(connection: apsw.Connection, tenant: str, name: str) -> list[Tally]:
    rows = connection.execute(TALLIES, (_id(connection, tenant, name),))
    return [Tally(attempt, call, How(how), number, at) for attempt, call, how, number, at in rows]


def tenants_of(connection: apsw.Connection, name: str) -> list[str]:
    return [tenant for (tenant,) in connection.execute(TENANTS_OF, (name,))]


def collect_runs(connection: apsw.Connection, before: float, limit: int) -> statements.Removed:
    """Runs that were last active before then are expired, then cleared portion by portion."""
    over = list(connection.execute(OVER, (before, limit)))
    connection.executemany(EXPIRE_RUN, [(run,) for run, _, _ in over])
    connection.executemany(REMOVE_OF_RUN, [(tenant, name) for _, tenant, name in over])
    for _, tenant, name in list(connection.execute(TO_CLEAR)):
        removed = statements.remove(connection, CALLS_OVER, (tenant, name, limit + 1), limit)
        return replace(removed, more=True, runs=len(over))
    forgetting = list(connection.execute(TO_FORGET))
    for (run,) in forgetting:
        connection.execute(REMOVE_EXCHANGES, (run, limit * EXCHANGES_PER_CALL))
    if not forgetting:
        connection.execute(CLEARED)
    more = bool(over or forgetting)
    return statements.Removed(keys=[], done=False, bytes=0, more=more, runs=len(over))


def over_in_all(connection: apsw.Connection, before: float) -> tuple[int, frozenset[tuple[str, str]]]:
    """How many runs `collect_runs` would end, and those it would clear."""
    over = [(tenant, name) for _, tenant, name in connection.execute(OVER, (before, -1))]
    return len(over), frozenset([*over, *connection.execute(ALL_TO_CLEAR)])


def calls_of(connection: apsw.Connection, runs: Iterable[tuple[str, str]]) -> tuple[int, int]:
    """How many calls would go with these runs, and their bytes."""
    sizes = [size for run in runs for *_, size in connection.execute(CALLS_OVER, (*run, -1))]
    return len(sizes), sum(sizes)
