"""Every statement on calls, and how calls become rows of PostgreSQL and back. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from proxy.core.budget import Account, Charge
from proxy.core.intent import Call, Entry, State
from proxy.core.run_record import Serving
from proxy.errors import StoreUnavailable
from proxy.store.base import Census, Query, takes_seq
from proxy.store.codec import (
    CALL_COLUMNS,
    ENTRY_COLUMNS,
    DamagedRecord,
    Row,
    call_to_row,
    row_to_call,
    row_to_entry,
)
from proxy.store.run_codec import exchange_to_row

COLUMNS = ", ".join(CALL_COLUMNS)
_KEY = CALL_COLUMNS.index("key")
# PostgreSQL has no place for U+0000 in text, and what an upstream said may hold one.
_FREE = tuple(
    CALL_COLUMNS.index(name)
    for name in (
        "tenant", "run", "attempt", "upstream", "rule", "tool", "answer_why_nowhere", "doubt_reason",
        "doubt_excerpt",
    )
)  # fmt: skip
_LINE_WIDTH = len(ENTRY_COLUMNS)
_JOB_WIDTH = len(CALL_COLUMNS) + _LINE_WIDTH + 1
_SERVING_WIDTH, _POSTING_WIDTH = 14, 12

GET = f"SELECT {COLUMNS} FROM semel.calls WHERE key = ANY ($1)"  # noqa: S608 (constants, here and below)
VERSIONS = "SELECT key, version, born FROM semel.calls WHERE key = ANY ($1)"
NOTE = (
    "WITH durable AS (SELECT semel.be_durable()) "  # noqa: S608
    f"INSERT INTO semel.events (call, {', '.join(ENTRY_COLUMNS)}) "
    "SELECT id, $2::float8, $3::text, $4::text, $5::text, $6::text, $7::text, $8::bigint "
    "FROM semel.calls, durable WHERE key = $1"
)
HISTORY = (
    f"SELECT {', '.join(f'e.{name}' for name in ENTRY_COLUMNS)} FROM semel.calls AS c "  # noqa: S608
    "JOIN semel.events AS e ON e.call = c.id WHERE c.key = $1 ORDER BY e.n"
)
MARK = (
    "INSERT INTO semel.marks AS m (key, replays, last_at) "
    "SELECT n.key, n.replays, n.at "
    "FROM unnest($1::bytea[], $2::bigint[], $3::float8[]) AS n (key, replays, at) "
    "WHERE EXISTS (SELECT 1 FROM semel.calls AS c WHERE c.key = n.key) ORDER BY n.key "
    "ON CONFLICT (key) DO UPDATE SET replays = m.replays + excluded.replays, "
    "last_at = greatest(m.last_at, excluded.last_at)"
)
REPLAYS = "SELECT replays FROM semel.marks WHERE key = $1"
# With the words of the partial indexes, so that they are seen to fit.
_ASIDE = "state IN ('released', 'awaiting_approval', 'denied')"
_AMONG = {
    State.RELEASED: f"{_ASIDE} AND state = 'released'",
    State.AWAITING_APPROVAL: f"{_ASIDE} AND state = 'awaiting_approval'",
    State.DENIED: f"{_ASIDE} AND state = 'denied'",
}
AMONG = {state: _AMONG.get(state, f"state = '{state.value}'") for state in State}
PENDING_OWNERS = "SELECT DISTINCT owner FROM semel.calls WHERE state = 'pending'"
PENDING_OF = f"SELECT {COLUMNS} FROM semel.calls WHERE state = 'pending' AND owner = ANY ($1) ORDER BY id"  # noqa: S608
LIVE_CALLS = (
    "SELECT count(*) FROM semel.calls WHERE upstream = $1 AND rule = $2 "
    "AND (expires_at IS NULL OR expires_at > $3 OR state IN ('pending', 'in_doubt'))"
)
COUNTS = "SELECT state, sum(n)::bigint FROM semel.counts GROUP BY state"
OLDEST_DOUBT = "SELECT min(doubt_since) FROM semel.calls WHERE state = 'in_doubt'"
OLDEST_QUESTION = f"SELECT min(created_at) FROM semel.calls WHERE {AMONG[State.AWAITING_APPROVAL]}"  # noqa: S608
BYTES_USED = (
    "SELECT CASE WHEN relname IN ('blobs', 'parts', 'uploads') THEN 'blobs' "
    "WHEN relname = 'cache' THEN 'cache' ELSE 'rows' END AS part, "
    "sum(pg_total_relation_size(oid))::bigint FROM pg_class "
    "WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'semel.calls'::regclass) "
    "AND relkind = 'r' GROUP BY part"
)
CENSUS = (COUNTS, OLDEST_DOUBT, OLDEST_QUESTION, BYTES_USED)  # what `census` is told
_EXPIRED = (
    "state IN ('done', 'released', 'denied') AND expires_at IS NOT NULL AND run = '' AND expires_at < $1"
)
_SIZE = "length(request) + coalesce(length(answer_head), 0) + coalesce(length(answer_body), 0)"
EXPIRED_IN_ALL = f"SELECT count(*), coalesce(sum({_SIZE}), 0)::bigint FROM semel.calls WHERE {_EXPIRED}"  # noqa: S608
# Of runs that collecting would end or clear, with the time before which they were last active.
_OVER = (
    "$1::float8 > 0 AND CASE WHEN r.state = 'expired' THEN NOT r.cleared "
    "ELSE r.active_at < $1 AND NOT EXISTS (SELECT 1 FROM semel.runs AS kin WHERE kin.tenant = r.tenant "
    "AND kin.root = r.root AND kin.state <> 'expired' AND kin.active_at >= $1) END"
)
_ITS_CALLS = "c.run <> '' AND c.tenant = r.tenant AND c.run = r.name"
OVER_IN_ALL = (
    f"SELECT count(*), coalesce(sum({_SIZE}), 0)::bigint, "  # noqa: S608
    f"(SELECT count(*) FROM semel.runs AS r WHERE r.state <> 'expired' AND {_OVER}) "
    f"FROM semel.runs AS r JOIN semel.calls AS c ON {_ITS_CALLS} "
    f"WHERE c.state NOT IN ('pending', 'in_doubt') AND {_OVER}"
)
# Blobs that no row names any more when what goes has gone: $1 as above, $2 the time for calls outside runs.
UNNAMED_IN_ALL = (
    "SELECT count(*), coalesce(sum(size), 0)::bigint FROM semel.blobs AS b "  # noqa: S608
    "WHERE touched_at < now() - $3::interval AND "
    + " AND ".join(
        f"NOT EXISTS (SELECT 1 FROM semel.calls AS c WHERE {column} <> '' AND {column} = b.digest "  # noqa: S608
        f"AND NOT CASE WHEN c.run = '' THEN {_EXPIRED.replace('$1', '$2')} "
        "ELSE c.state NOT IN ('pending', 'in_doubt') AND "
        f"EXISTS (SELECT 1 FROM semel.runs AS r WHERE {_ITS_CALLS} AND {_OVER}) END)"
        for column in ("request_blob", "answer_blob")
    )
)
SPENT = (
    "SELECT meter, bucket, amount, peak FROM semel.spending "
    "WHERE tenant = $1 AND run = $2 AND upstream = $3 AND rule = $4 ORDER BY meter, bucket"
)
COLLECT_SPENDING = "SELECT semel.collect_spending($1, $2)"
COLLECT = "SELECT keys, bytes, more, 0 FROM semel.collect_calls($1, $2, $3)"
COLLECT_RUNS = "SELECT keys, bytes, more, ended FROM semel.collect_runs($1, $2, $3)"
FOLD = "SELECT semel.fold_counts()"
PING = "SELECT semel.be_durable()"


class SwapJob(NamedTuple):
    call: Call
    entry: Entry
    served: Serving | None
    charge: Charge | None = None

    @property
    def place(self) -> tuple[str, str, bytes]:
        """Locks are taken in this order, by everybody."""
        return (self.call.tenant, self.call.run, self.call.key)

    @property
    def size(self) -> int:
        answer = self.call.answer
        return len(self.call.request) + (len(answer.head) + len(answer.body) if answer else 0)


def swap(jobs: Sequence[SwapJob]) -> tuple[str, list[object]]:
    """The statement for all of them, which are sorted, and its values."""
    values: list[object] = []
    servings: list[object] = []
    postings: list[object] = []
    served = posted = 0
    for n, job in enumerate(jobs, 1):
        values += call_values(job.call)
        values += line_values(job.entry)
        values.append(takes_seq(job.call, job.entry))
        if job.served is not None:
            served += 1
            servings += serving_values(job.served, n)
        if job.charge is not None:
            posted += len(job.charge.postings)
            postings += _posting_values(job.charge, n)
    return _swap_text(len(jobs), served, posted), values + servings + postings


@cache
def _swap_text(jobs: int, served: int, posted: int) -> str:
    before = jobs * _JOB_WIDTH, jobs * _JOB_WIDTH + served * _SERVING_WIDTH
    return (
        f"SELECT outcome, place, held FROM semel.swap({_records(jobs, _JOB_WIDTH, 'semel.job')}, "  # noqa: S608
        f"{_records(served, _SERVING_WIDTH, 'semel.serving', after=before[0])}, "
        f"{_records(posted, _POSTING_WIDTH, 'semel.posting', after=before[1])})"
    )


def account_values(account: Account) -> tuple[str, ...]:
    return tuple(map(storable, account))


def _posting_values(charge: Charge, job: int) -> list[object]:
    account = account_values(charge.account)
    return [
        value
        for p in charge.postings
        for value in (
            job, *account, p.meter.value, p.bucket, p.amount, p.peak, p.since, p.most, p.expires,
        )
    ]  # fmt: skip


def serve(servings: Sequence[Serving]) -> tuple[str, list[object]]:
    values = [value for served in servings for value in serving_values(served, 0)]
    return f"SELECT semel.serve({_records(len(servings), _SERVING_WIDTH, 'semel.serving')})", values


def _records(number: int, width: int, kind: str, *, after: int = 0) -> str:
    """An array of so many records, of values numbered from there on."""
    rows = [
        f"ROW({', '.join(f'${after + n * width + i}' for i in range(1, width + 1))})" for n in range(number)
    ]
    return f"ARRAY[{', '.join(rows)}]::{kind}[]"


def call_values(call: Call) -> list[object]:
    return storable_row(call_to_row(call))


def storable_row(row: Row) -> list[object]:
    values = list(row)
    for index in _FREE:
        if values[index]:
            values[index] = storable(values[index])
    return values


def line_values(entry: Entry) -> tuple[object, ...]:
    before = None if entry.before is None else entry.before.value
    after = None if entry.after is None else entry.after.value
    texts = (storable(entry.actor), str(entry.event), before, after, storable(entry.why))
    return (entry.at, *texts, entry.fence)


def serving_values(served: Serving, job: int) -> list[object]:
    return [job, served.tenant, served.run, served.key, *exchange_to_row(served.exchange)]


def call_of(row: Row) -> Call:
    """DamagedRecord if it is not one."""
    return row_to_call(stored_row(row))


def readable(row: Row) -> Call:
    try:
        return call_of(row)
    except DamagedRecord as error:
        raise StoreUnavailable(f"the store is not available: {error}") from error


def readable_among(rows: Iterable[Row]) -> tuple[list[Call], dict[str, str]]:
    """One that cannot be read does not stand before the others, and is named with its reason."""
    found, unreadable = [], {}
    for row in rows:
        try:
            found.append(call_of(row))
        except DamagedRecord as error:
            unreadable[key_of(row).hex()] = str(error)
    return found, unreadable


def stored_row(row: Sequence[Any]) -> Row:
    values = list(row)
    for index in _FREE:
        value = values[index]
        if value and "\x01" in value:
            values[index] = stored(value)
    return tuple(values)


def entry_of(row: Row) -> Entry:
    at, actor, event, before, after, why, fence = row
    return row_to_entry((at, stored(actor), event, before, after, stored(why), fence))


def storable(text: str) -> str:
    if "\x00" in text or "\x01" in text:
        return text.replace("\x01", "\x01\x02").replace("\x00", "\x01\x03")
    return text


def stored(text: str) -> str:
    return text.replace("\x01\x03", "\x00").replace("\x01\x02", "\x01") if "\x01" in text else text


def find(query: Query) -> tuple[str, list[object]]:
    """Only what is asked for stands in the text, so that an index is found that fits; with the newest first
    every one of them gives the order too."""
    asked = {"tenant": query.tenant, "upstream": query.upstream, "tool": query.tool, "run": query.run}
    values: list[object] = [query.limit + 1]
    where = []
    if query.state is not None:
        where.append(AMONG[query.state])
    for column, value in asked.items():
        if value:
            values.append(storable(value))
            where.append(f"{column} = ${len(values)}")
    if query.run:
        where.append("run <> ''")
    if query.after is not None:
        values.append(query.after)
        where.append(f"id < ${len(values)}")
    condition = " AND ".join(where) or "true"
    return (
        f"SELECT id, {COLUMNS} FROM semel.calls WHERE {condition} ORDER BY id DESC LIMIT $1",  # noqa: S608
        values,
    )


def key_of(row: Row) -> bytes:
    key: bytes = row[_KEY]
    return key


def census(
    counts: Iterable[Row],
    doubt: Sequence[Row],
    question: Sequence[Row],
    sizes: Iterable[Row],
    *,
    owners: int,
) -> Census:
    counted: dict[str, int] = dict(counts)
    parts: dict[str, int] = dict(sizes)
    return Census(
        by_state={state: counted.get(state.value, 0) for state in State},
        oldest_doubt_at=doubt[0][0],
        oldest_question_at=question[0][0],
        bytes_used=sum(parts.values()),
        parts=parts,
        owners=owners,
    )
