"""The PostgreSQL store as the source of a copy: one connection that only asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg

from proxy.errors import ConfigurationError
from proxy.store.archive import (
    CALL,
    ENTRY,
    EXCHANGE,
    LINE,
    MARK,
    PORTION,
    RUN,
    SPENDING,
    BudgetDump,
    CallDump,
    Cursor,
    ExchangeDump,
    Kind,
    Portion,
    RunDump,
    Standing,
    portions,
)
from proxy.store.base import BlobRef
from proxy.store.copying import beating
from proxy.store.heartbeats import Beat
from proxy.store.postgres_blobs import FIND, PostgresBlobs
from proxy.store.postgres_calls import stored, stored_row
from proxy.store.postgres_line import LONG, Address, Lines, Row
from proxy.store.postgres_owners import ALL
from proxy.store.postgres_schema import require_present


def listed(names: Sequence[str], before: str = "") -> str:
    return ", ".join(f'{before}"{name}"' for name in names)


_META = "SELECT value FROM semel.meta WHERE name = $1"
_EMPTY = "SELECT NOT EXISTS (SELECT 1 FROM semel.calls) AND NOT EXISTS (SELECT 1 FROM semel.runs)"
# Every change of a call takes a number for its line of history; those of runs and exchanges raise a pulse.
_TIDE = (
    "SELECT pg_sequence_last_value('semel.events_n_seq'::regclass), "
    "pg_sequence_last_value('semel.run_events_n_seq'::regclass), (SELECT count(*) FROM semel.calls), "
    "(SELECT sum(version + pulse)::bigint FROM semel.runs), (SELECT sum(replays)::bigint FROM semel.marks)"
)
_TOTALS = {
    Kind.RUNS: "SELECT count(*) FROM semel.runs",
    Kind.EXCHANGES: "SELECT count(*) FROM semel.exchanges",
    Kind.BUDGETS: "SELECT count(*) FROM semel.spending",
    Kind.BLOBS: "SELECT count(*) FROM semel.blobs",
    Kind.CALLS: "SELECT coalesce(sum(n), 0)::bigint FROM semel.counts",
}
_CALL_SIZES = (
    "SELECT id, length(request) + coalesce(length(answer_head), 0) + coalesce(length(answer_body), 0) "
    "FROM semel.calls WHERE id > $1 ORDER BY id LIMIT $2"
)
_READ_CALLS = (
    f"SELECT c.id, c.pulse, coalesce(m.replays, 0), coalesce(m.last_at, 0), {listed(CALL.names, 'c.')} "  # noqa: S608 (constants, here and below)
    "FROM semel.calls AS c LEFT JOIN semel.marks AS m ON m.key = c.key WHERE c.id = ANY ($1) ORDER BY c.id"
)
_READ_LINES = f"SELECT call, {listed(ENTRY.names)} FROM semel.events WHERE call = ANY ($1) ORDER BY call, n"  # noqa: S608
_READ_RUNS = f"SELECT id, cleared, {listed(RUN.names)} FROM semel.runs WHERE id = ANY ($1) ORDER BY id"  # noqa: S608
_RUN_IDS = "SELECT id FROM semel.runs WHERE id > $1 ORDER BY id LIMIT $2"
_READ_RUN_LINES = (
    f"SELECT run, {listed(LINE.names)} FROM semel.run_events WHERE run = ANY ($1) ORDER BY run, n"  # noqa: S608
)
_EXCHANGE_NAME = "x.run, x.attempt, x.call, x.number, x.owner"
READ_EXCHANGES = (
    f"SELECT {_EXCHANGE_NAME}, x.pulse, r.tenant, r.name, {listed(EXCHANGE.names, 'x.')} "  # noqa: S608
    "FROM semel.exchanges AS x JOIN semel.runs AS r ON r.id = x.run "
)
_EXCHANGE_PAGE = (
    f"{READ_EXCHANGES} WHERE ({_EXCHANGE_NAME}) > ($1::bigint, $2::text, $3::bytea, $4::bigint, $5::text) "
    f"ORDER BY {_EXCHANGE_NAME} LIMIT $6"
)
_BUCKET_NAME = listed(SPENDING.names[:6])
READ_BUCKETS = f"SELECT {listed(SPENDING.names)} FROM semel.spending"  # noqa: S608
_BUCKET_PAGE = (
    f"{READ_BUCKETS} WHERE ({_BUCKET_NAME}) > ($1::text, $2::text, $3::text, $4::text, $5::text, $6::bigint) "
    f"ORDER BY {_BUCKET_NAME} LIMIT $7"
)
_NAMES = " UNION ".join(
    f"(SELECT DISTINCT {column} AS digest FROM semel.calls "  # noqa: S608
    f"WHERE {column} <> '' AND {column} > $1 ORDER BY 1 LIMIT $2)"
    for column in ("request_blob", "answer_blob")
)
_BLOB_NAMES = f"SELECT digest FROM ({_NAMES}) AS named ORDER BY 1 LIMIT $2"  # noqa: S608


class PostgresSource:
    def __init__(self, address: Address, connection: psycopg.AsyncConnection[Row]) -> None:
        self._address = address
        self._connection = connection
        self._lines = Lines(address, 1, patience=LONG)
        self._blobs = PostgresBlobs(self._lines, lambda: None)
        self._silent: dict[str, int] = {}
        self.shown = address.shown

    async def ask(self, text: str, *values: object) -> list[Row]:
        try:
            cursor = await self._connection.execute(text.encode(), values, binary=True)
            return await cursor.fetchall() if cursor.description else []
        except (psycopg.Error, UnicodeError, OSError) as error:
            raise self._address.unavailable(error) from None

    async def one(self, text: str, *values: object) -> Any:  # noqa: ANN401 (an SQL value)
        rows = await self.ask(text, *values)
        return rows[0][0] if rows else None

    async def standing(self) -> Standing:
        mark = await self.one(_META, MARK)
        return Standing(
            secret=bytes(await self.one(_META, "secret")),
            unfinished=None if mark is None else bytes(mark).decode(),
            empty=await self.one(_EMPTY),
        )

    async def living(self) -> int:
        return await beating(self._beats, self._silent)

    async def _beats(self) -> list[Beat]:
        return [Beat(*row) for row in await self.ask(ALL)]

    async def tide(self) -> object:
        return await self.ask(_TIDE)

    async def totals(self) -> dict[Kind, int]:
        return {kind: await self.one(text) for kind, text in _TOTALS.items()}

    async def read(self, kind: Kind, after: Cursor) -> Portion:
        pages = {
            Kind.RUNS: self._run_page,
            Kind.EXCHANGES: self._exchange_page,
            Kind.BUDGETS: self._bucket_page,
            Kind.CALLS: self._call_page,
        }
        return await pages[kind](after)

    async def _call_page(self, after: Cursor) -> Portion:
        sizes = await self.ask(_CALL_SIZES, after[0] if after else 0, PORTION)
        ids = portions((id_, size) for id_, size in sizes)
        more = len(ids) < len(sizes) or len(sizes) == PORTION
        return Portion([*await self.calls(ids)], (ids[-1],) if more else None)

    async def calls(self, ids: list[int]) -> list[CallDump]:
        lines: dict[int, list[Row]] = {id_: [] for id_ in ids}
        for call, *line in await self.ask(_READ_LINES, ids):
            at, actor, event, before, after, why, fence = line
            lines[call].append(ENTRY.of((at, stored(actor), event, before, after, stored(why), fence)))
        return [
            CallDump(CALL.of(stored_row(row)), pulse, tuple(lines[id_]), replays, at)
            for id_, pulse, replays, at, *row in await self.ask(_READ_CALLS, ids)
        ]

    async def _run_page(self, after: Cursor) -> Portion:
        ids = [id_ for (id_,) in await self.ask(_RUN_IDS, after[0] if after else 0, PORTION)]
        return Portion([*await self.runs(ids)], (ids[-1],) if len(ids) == PORTION else None)

    async def runs(self, ids: list[int]) -> list[RunDump]:
        lines: dict[int, list[Row]] = {id_: [] for id_ in ids}
        for run, at, actor, event, why in await self.ask(_READ_RUN_LINES, ids):
            lines[run].append(LINE.of((at, stored(actor), event, stored(why))))
        return [
            RunDump(RUN.of(row), cleared, tuple(lines[id_]))
            for id_, cleared, *row in await self.ask(_READ_RUNS, ids)
        ]

    async def _exchange_page(self, after: Cursor) -> Portion:
        rows = await self.ask(_EXCHANGE_PAGE, *(after or (0, "", b"", 0, "")), PORTION)
        return Portion([exchange_of(row) for row in rows], rows[-1][:5] if len(rows) == PORTION else None)

    async def _bucket_page(self, after: Cursor) -> Portion:
        rows = await self.ask(_BUCKET_PAGE, *(after or ("", "", "", "", "", 0)), PORTION)
        return Portion([*map(bucket_of, rows)], rows[-1][:6] if len(rows) == PORTION else None)

    async def blob_names(self, after: str) -> list[str]:
        return [digest for (digest,) in await self.ask(_BLOB_NAMES, after, PORTION)]

    async def blob_size(self, digest: str) -> int | None:
        return next((int(size) for _, size in await self.ask(FIND, digest)), None)

    def read_blob(self, ref: BlobRef) -> AsyncIterator[bytes]:
        return self._blobs.read(ref)

    async def close(self) -> None:
        await self._lines.close()
        await self._connection.close()


def exchange_of(row: Row) -> ExchangeDump:
    _, _, call, _, _, pulse, tenant, name, *values = row
    return ExchangeDump(tenant, name, bytes(call), pulse, EXCHANGE.of(values))


def bucket_of(row: Row) -> BudgetDump:
    return BudgetDump(SPENDING.of((*map(stored, row[:5]), *row[5:])))


async def connected(address: Address) -> psycopg.AsyncConnection[Row]:
    try:
        return await address.connect()
    except (psycopg.Error, OSError, TimeoutError) as error:
        raise ConfigurationError(
            f"{address.shown} cannot be reached: {address.unavailable(error).detail}. Is the server running, "
            "and may this user connect?"
        ) from None


async def open_source(url: str) -> PostgresSource:
    """ConfigurationError if there is no record, or one of another version."""
    address = Address(url)
    source = PostgresSource(address, await connected(address))
    try:
        await require_present(source.one, address.shown)
    except BaseException:
        await source.close()
        raise
    return source
