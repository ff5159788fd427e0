"""The embedded store as the target of a copy: opened as by any process, which keeps a second copy out; a page
is one transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import apsw

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
    Dump,
    ExchangeDump,
    Kind,
    RunDump,
    Written,
)
from proxy.store.base import BlobRef
from proxy.store.database import close_quietly
from proxy.store.embedded_source import (
    BUCKET_NAMED,
    CALL_ID,
    EXCHANGE_NAMED,
    RUN_NAMED,
    EmbeddedSource,
    exchange_of,
    listed,
)
from proxy.store.premises import Premises, move_in

# The log is emptied into the database when it has grown so large.
LOG = 64 * 1024 * 1024


def _holes(number: int) -> str:
    return ", ".join("?" * number)


_SET = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_UNSET = "DELETE FROM meta WHERE name = ?"
_PUT_CALL = (
    f"INSERT INTO calls (pulse, {listed(CALL.names)}) SELECT {_holes(1 + len(CALL.names))} "  # noqa: S608
    "WHERE NOT EXISTS (SELECT 1 FROM calls WHERE key = ?)"
)
_PUT_LINE = f"INSERT INTO events (call, n, {listed(ENTRY.names)}) VALUES ({_holes(2 + len(ENTRY.names))})"  # noqa: S608
_PUT_MARK = "INSERT INTO marks (key, replays, last_at) VALUES (?, ?, ?)"
_PUT_RUN = (
    f"INSERT INTO runs (cleared, {listed(RUN.names)}) VALUES ({_holes(1 + len(RUN.names))}) "  # noqa: S608
    "ON CONFLICT (tenant, name) DO NOTHING"
)
_PUT_RUN_LINE = (
    f"INSERT INTO run_events (run, n, {listed(LINE.names)}) VALUES ({_holes(2 + len(LINE.names))})"  # noqa: S608
)
_PUT_EXCHANGE = (
    f"INSERT INTO exchanges (run, call, pulse, {listed(EXCHANGE.names)}) "  # noqa: S608
    f"SELECT id, {_holes(2 + len(EXCHANGE.names))} FROM runs WHERE tenant = ? AND name = ? "
    "ON CONFLICT (run, attempt, call, number, owner) DO NOTHING"
)

_PUT_BUCKET = (
    f"INSERT INTO spending ({listed(SPENDING.names)}) VALUES ({_holes(len(SPENDING.names))}) "  # noqa: S608
    f"ON CONFLICT ({listed(SPENDING.names[:6])}) DO NOTHING"
)


class EmbeddedTarget(EmbeddedSource):
    def __init__(self, premises: Premises) -> None:
        super().__init__(premises.directory, premises.writing, premises.blobs)
        self._premises = premises
        self._puts = premises.blobs

    async def living(self) -> int:
        return await super().living() - 1  # this process holds a lock there, too

    async def begin(self, origin: str) -> None:
        await self._do(self._transact, lambda: self._connection.execute(_SET, (MARK, origin.encode())))

    async def adopt(self, secret: bytes) -> None:
        await self._do(self._transact, lambda: self._connection.execute(_SET, ("secret", secret)))

    async def write(self, kind: Kind, dumps: Sequence[Dump]) -> Written:
        return await self._do(self._write, kind, dumps)

    def _write(self, kind: Kind, dumps: Sequence[Dump]) -> Written:
        puts = {
            Kind.RUNS: self._put_run,
            Kind.EXCHANGES: self._put_exchange,
            Kind.BUDGETS: self._put_bucket,
            Kind.CALLS: self._put_call,
        }
        present: list[Dump] = []

        def put_all() -> None:
            for dump in dumps:
                stands = puts[kind](dump)  # type: ignore[operator]  # each of its own kind
                if stands is not None:
                    present.append(stands)

        self._transact(put_all)
        if self._premises.database.log_size() > LOG:
            with contextlib.suppress(apsw.BusyError):
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return Written(len(dumps) - len(present), present)

    def _put_call(self, dump: CallDump) -> CallDump | None:
        self._connection.execute(_PUT_CALL, (dump.pulse, *dump.row, dump.key))
        if not self._connection.changes():
            return self._call(self.one(CALL_ID, dump.key))
        id_ = self._connection.last_insert_rowid()
        self._connection.executemany(_PUT_LINE, [(id_, n, *line) for n, line in enumerate(dump.history, 1)])
        if dump.replays:
            self._connection.execute(_PUT_MARK, (dump.key, dump.replays, dump.replayed_at))
        return None

    def _put_run(self, dump: RunDump) -> RunDump | None:
        self._connection.execute(_PUT_RUN, (dump.cleared, *dump.row))
        if not self._connection.changes():
            (row,) = self._connection.execute(RUN_NAMED, dump.row[:2])
            return self._run(row)
        id_ = self._connection.last_insert_rowid()
        lines = [(id_, n, *line) for n, line in enumerate(dump.history, 1)]
        self._connection.executemany(_PUT_RUN_LINE, lines)
        return None

    def _put_exchange(self, dump: ExchangeDump) -> ExchangeDump | None:
        values = (dump.call, dump.pulse, *dump.row, dump.tenant, dump.run)
        self._connection.execute(_PUT_EXCHANGE, values)
        if self._connection.changes():
            return None
        (row,) = self._connection.execute(EXCHANGE_NAMED, (dump.tenant, dump.run, *dump.name))
        return exchange_of(row)

    def _put_bucket(self, dump: BudgetDump) -> BudgetDump | None:
        self._connection.execute(_PUT_BUCKET, dump.row)
        if self._connection.changes():
            return None
        (row,) = self._connection.execute(BUCKET_NAMED, dump.row[:6])
        return BudgetDump(SPENDING.of(row))

    async def put_blob(self, chunks: Iterable[bytes]) -> BlobRef:
        return await self._puts.put(chunks)

    async def finish(self) -> None:
        await self._do(self._transact, lambda: self._connection.execute(_UNSET, (MARK,)))

    def _transact(self, work: Callable[[], object]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            work()
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    async def close(self) -> None:
        close_quietly(self._premises.reading)
        await super().close()
        self._premises.owner.release()
        self._premises.stamp.close()
        self._premises.runs_stamp.close()


async def open_target(directory: Path) -> EmbeddedTarget:
    """Made if it is not there."""
    return EmbeddedTarget(await asyncio.to_thread(move_in, directory, None, {}, unfinished=True))
