"""The PostgreSQL store as the target of a copy: a page is one transaction, and one lock keeps a second copy
out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson
import psycopg

from proxy.store.archive import (
    CALL,
    ENTRY,
    EXCHANGE,
    LINE,
    MARK,
    RUN,
    SPENDING,
    BudgetDump,
    CallDump,
    Columns,
    Dump,
    ExchangeDump,
    Kind,
    RunDump,
    Written,
    type_of,
)
from proxy.store.base import BlobRef
from proxy.store.copying import CopyRefused
from proxy.store.postgres_calls import storable, storable_row
from proxy.store.postgres_line import Address, Row
from proxy.store.postgres_schema import LOCK, move_in
from proxy.store.postgres_source import (
    READ_BUCKETS,
    READ_EXCHANGES,
    PostgresSource,
    bucket_of,
    connected,
    exchange_of,
    listed,
)

TRIES, PAUSE = 20, 0.25
_TYPES = {bytes: "bytea", str: "text", int: "bigint", float: "float8", bool: "boolean"}
_RECORD, _NAME = RUN.names.index("record"), RUN.names.index("name")


def _table(columns: Sequence[tuple[str, type]]) -> str:
    """Columns that are given as one array each, in their order."""
    arrays = ", ".join(f"${n}::{_TYPES[kind]}[]" for n, (_, kind) in enumerate(columns, 1))
    names = ", ".join(f'"{name}"' for name, _ in columns)
    return f"unnest({arrays}) WITH ORDINALITY AS given ({names}, place)"


def _typed(columns: Columns) -> list[tuple[str, type]]:
    return [(name, type_of(name)) for name in columns.names]


_TRY_LOCK = "SELECT pg_try_advisory_lock($1)"
_DURABLE = "SELECT semel.be_durable()"
_SET = "INSERT INTO semel.meta VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_UNSET = "DELETE FROM semel.meta WHERE name = $1"
_PUT_CALLS = (
    f"WITH made AS (INSERT INTO semel.calls (pulse, {listed(CALL.names)}) "  # noqa: S608 (constants, here and below)
    f"SELECT pulse, {listed(CALL.names)} FROM {_table([('pulse', int), *_typed(CALL)])} ORDER BY place "
    "ON CONFLICT (key) DO NOTHING RETURNING id, key, state), "
    "counted AS (INSERT INTO semel.counts (state, n) SELECT state, count(*) FROM made GROUP BY state) "
    "SELECT key, id FROM made"
)
_CALL_IDS = "SELECT id FROM semel.calls WHERE key = ANY ($1)"
_PUT_LINES = (
    f"INSERT INTO semel.events (call, {listed(ENTRY.names)}) SELECT call, {listed(ENTRY.names)} "  # noqa: S608
    f"FROM {_table([('call', int), *_typed(ENTRY)])} ORDER BY place"
)
_PUT_MARKS = (
    "INSERT INTO semel.marks (key, replays, last_at) SELECT key, replays, last_at "  # noqa: S608
    f"FROM {_table([('key', bytes), ('replays', int), ('last_at', float)])}"
)
_PUT_RUNS = (
    f"INSERT INTO semel.runs (root, cleared, {listed(RUN.names)}) "  # noqa: S608
    f"SELECT root, cleared, {listed(RUN.names)} "
    f"FROM {_table([('root', str), ('cleared', bool), *_typed(RUN)])} ORDER BY place "
    "ON CONFLICT (tenant, name) DO NOTHING RETURNING tenant, name, id"
)
_RUN_IDS = (
    "SELECT id FROM semel.runs JOIN unnest($1::text[], $2::text[]) AS asked (tenant, name) "
    "USING (tenant, name)"
)
_PUT_RUN_LINES = (
    f"INSERT INTO semel.run_events (run, {listed(LINE.names)}) SELECT run, {listed(LINE.names)} "  # noqa: S608
    f"FROM {_table([('run', int), *_typed(LINE)])} ORDER BY place"
)
_PUT_EXCHANGES = (
    f"INSERT INTO semel.exchanges (run, call, pulse, {listed(EXCHANGE.names)}) "  # noqa: S608
    f"SELECT r.id, g.call, g.pulse, {listed(EXCHANGE.names, 'g.')} FROM (SELECT * FROM "
    f"{_table([('tenant', str), ('run', str), ('call', bytes), ('pulse', int), *_typed(EXCHANGE)])}) AS g "
    "JOIN semel.runs AS r ON r.tenant = g.tenant AND r.name = g.run "
    "ON CONFLICT (run, attempt, call, number, owner) DO NOTHING "
    "RETURNING run, attempt, call, number, owner"
)
_EXCHANGES_NAMED = (
    f"{READ_EXCHANGES} JOIN unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bigint[], "
    "$6::text[]) AS asked (tenant, name, attempt, call, number, owner) ON asked.tenant = r.tenant "
    "AND asked.name = r.name AND asked.attempt = x.attempt AND asked.call = x.call "
    "AND asked.number = x.number AND asked.owner = x.owner"
)

_PUT_BUCKETS = (
    f"INSERT INTO semel.spending ({listed(SPENDING.names)}) SELECT {listed(SPENDING.names)} "  # noqa: S608
    f"FROM {_table(_typed(SPENDING))} ON CONFLICT ({listed(SPENDING.names[:6])}) DO NOTHING "
    f"RETURNING {listed(SPENDING.names[:6])}"
)
_BUCKETS_NAMED = (
    f"{READ_BUCKETS} WHERE ({listed(SPENDING.names[:6])}) IN (SELECT * FROM unnest($1::text[], $2::text[], "  # noqa: S608
    "$3::text[], $4::text[], $5::text[], $6::bigint[]))"
)


class PostgresTarget(PostgresSource):
    async def begin(self, origin: str) -> None:
        # The server may not have noticed yet that the one before was killed.
        for _ in range(TRIES):
            if await self.one(_TRY_LOCK, LOCK + 1):
                return await self._set(MARK, origin.encode())
            await asyncio.sleep(PAUSE)
        raise CopyRefused(f"Another copy into {self.shown} is under way: wait for it, or stop it.")

    async def adopt(self, secret: bytes) -> None:
        await self._set("secret", secret)

    async def _set(self, name: str, value: bytes) -> None:
        await self._transact([(_SET, (name, value))])

    async def finish(self) -> None:
        await self._transact([(_UNSET, (MARK,))])

    async def _transact(self, statements: Iterable[tuple[str, Sequence[object]]]) -> None:
        try:
            async with self._connection.transaction():
                await self.ask(_DURABLE)
                for text, values in statements:
                    await self.ask(text, *values)
        except psycopg.Error as error:
            raise self._address.unavailable(error) from None

    async def write(self, kind: Kind, dumps: Sequence[Dump]) -> Written:
        puts: dict[Kind, Callable[[Any], Any]] = {
            Kind.RUNS: self._put_runs,
            Kind.EXCHANGES: self._put_exchanges,
            Kind.BUDGETS: self._put_buckets,
            Kind.CALLS: self._put_calls,
        }
        try:
            async with self._connection.transaction():
                await self.ask(_DURABLE)
                written: Written = await puts[kind](dumps)
        except psycopg.Error as error:
            raise self._address.unavailable(error) from None
        return written

    async def _put_calls(self, dumps: Sequence[CallDump]) -> Written:
        rows = [(dump.pulse, *storable_row(dump.row)) for dump in dumps]
        ids = {bytes(key): id_ for key, id_ in await self.ask(_PUT_CALLS, *_columns(rows))}
        made = [(ids[dump.key], dump) for dump in dumps if dump.key in ids]
        lines = [(id_, *_storable_line(line)) for id_, dump in made for line in dump.history]
        if lines:
            await self.ask(_PUT_LINES, *_columns(lines))
        marks = [(dump.key, dump.replays, dump.replayed_at) for _, dump in made if dump.replays]
        if marks:
            await self.ask(_PUT_MARKS, *_columns(marks))
        there = [dump.key for dump in dumps if dump.key not in ids]
        present = [id_ for (id_,) in await self.ask(_CALL_IDS, there)] if there else []
        return Written(len(made), [*await self.calls(present)])

    async def _put_runs(self, dumps: Sequence[RunDump]) -> Written:
        rows = [(_root(dump.row), dump.cleared, *dump.row) for dump in dumps]
        ids = {(tenant, name): id_ for tenant, name, id_ in await self.ask(_PUT_RUNS, *_columns(rows))}
        lines = [
            (ids[dump.row[:2]], at, storable(actor), event, storable(why))
            for dump in dumps
            if dump.row[:2] in ids
            for at, actor, event, why in dump.history
        ]
        if lines:
            await self.ask(_PUT_RUN_LINES, *_columns(lines))
        there = [dump.row[:2] for dump in dumps if dump.row[:2] not in ids]
        present = [id_ for (id_,) in await self.ask(_RUN_IDS, *_columns(there))] if there else []
        return Written(len(ids), [*await self.runs(present)])

    async def _put_exchanges(self, dumps: Sequence[ExchangeDump]) -> Written:
        rows = [(dump.tenant, dump.run, dump.call, dump.pulse, *dump.row) for dump in dumps]
        made = await self.ask(_PUT_EXCHANGES, *_columns(rows))
        if len(made) == len(dumps):
            return Written(len(made), [])
        # One that was made now is found too: among several runs its name alone does not tell which.
        named = [(dump.tenant, dump.run, *dump.name) for dump in dumps]
        there = await self.ask(_EXCHANGES_NAMED, *_columns(named))
        return Written(len(made), [exchange_of(row) for row in there])

    async def _put_buckets(self, dumps: Sequence[BudgetDump]) -> Written:
        rows = [(*map(storable, dump.row[:5]), *dump.row[5:]) for dump in dumps]
        made = {tuple(name) for name in await self.ask(_PUT_BUCKETS, *_columns(rows))}
        there = [row[:6] for row in rows if row[:6] not in made]
        found = await self.ask(_BUCKETS_NAMED, *_columns(there)) if there else []
        return Written(len(made), [*map(bucket_of, found)])

    async def put_blob(self, chunks: Iterable[bytes]) -> BlobRef:
        return await self._blobs.put(chunks)


def _columns(rows: Sequence[Row]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _storable_line(line: Row) -> Row:
    at, actor, event, before, after, why, fence = line
    return (at, storable(actor), event, before, after, storable(why), fence)


def _root(row: Row) -> str:
    """Where its family began, as the store itself files it."""
    origin: str = orjson.loads(row[_RECORD]).get("origin") or row[_NAME]
    return origin


async def open_target(url: str, note: Callable[..., None]) -> PostgresTarget:
    """Made if it is not there."""
    address = Address(url)
    await move_in(address, note)
    return PostgresTarget(address, await connected(address))
