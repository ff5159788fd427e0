"""The embedded store as the source of a copy: opened for reading alone, not even its log is emptied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from proxy.errors import ConfigurationError, NoRecord, StoreUnavailable
from proxy.store import owners
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
    Dump,
    ExchangeDump,
    Kind,
    Portion,
    RunDump,
    Standing,
    portions,
)
from proxy.store.base import BlobLost, BlobRef
from proxy.store.blobs import Blobs
from proxy.store.database import FILE_NAME, Database, Patience, close_quietly, unavailable
from proxy.store.schema import KNOWN_VERSION, refuse_newer
from proxy.store.statements import TOTAL

T = TypeVar("T")


def listed(names: Sequence[str], before: str = "") -> str:
    return ", ".join(before + name for name in names)


_META = "SELECT value FROM meta WHERE name = ?"
_EMPTY = "SELECT NOT EXISTS (SELECT 1 FROM calls) AND NOT EXISTS (SELECT 1 FROM runs)"
_TOTALS = {
    Kind.RUNS: "SELECT count(*) FROM runs",
    Kind.EXCHANGES: "SELECT count(*) FROM exchanges",
    Kind.BUDGETS: "SELECT count(*) FROM spending",
    Kind.BLOBS: (
        "SELECT (SELECT count(*) FROM calls INDEXED BY calls_request_blob WHERE request_blob <> '') "
        "+ (SELECT count(*) FROM calls INDEXED BY calls_answer_blob WHERE answer_blob <> '')"
    ),
    Kind.CALLS: TOTAL,
}
_CALL_SIZES = (
    "SELECT id, length(request) + coalesce(length(answer_head), 0) + coalesce(length(answer_body), 0) "
    "FROM calls WHERE id > ? ORDER BY id LIMIT ?"
)
_READ_CALL = (
    f"SELECT calls.pulse, coalesce(replays, 0), coalesce(last_at, 0.0), {listed(CALL.names, 'calls.')} "  # noqa: S608 (constants, here and below)
    "FROM calls LEFT JOIN marks ON marks.key = calls.key WHERE calls.id = ?"
)
_READ_LINES = f"SELECT {listed(ENTRY.names)} FROM events WHERE call = ? ORDER BY n"  # noqa: S608
CALL_ID = "SELECT id FROM calls WHERE key = ?"
_READ_RUN = f"SELECT id, cleared, {listed(RUN.names)} FROM runs"  # noqa: S608
_RUN_PAGE = f"{_READ_RUN} WHERE id > ? ORDER BY id LIMIT ?"
RUN_NAMED = f"{_READ_RUN} WHERE tenant = ? AND name = ?"
_READ_RUN_LINES = f"SELECT {listed(LINE.names)} FROM run_events WHERE run = ? ORDER BY n"  # noqa: S608
_EXCHANGE_NAME = "exchanges.run, exchanges.attempt, exchanges.call, exchanges.number, exchanges.owner"
_READ_EXCHANGE = (
    f"SELECT {_EXCHANGE_NAME}, exchanges.pulse, runs.tenant, runs.name, "  # noqa: S608
    f"{listed(EXCHANGE.names, 'exchanges.')} FROM exchanges JOIN runs ON runs.id = exchanges.run"
)
_EXCHANGE_PAGE = (
    f"{_READ_EXCHANGE} WHERE ({_EXCHANGE_NAME}) > (?, ?, ?, ?, ?) ORDER BY {_EXCHANGE_NAME} LIMIT ?"
)
EXCHANGE_NAMED = (
    f"{_READ_EXCHANGE} WHERE exchanges.run = (SELECT id FROM runs WHERE tenant = ? AND name = ?) "  # noqa: S608
    "AND exchanges.attempt = ? AND exchanges.call = ? AND exchanges.number = ? AND exchanges.owner = ?"
)
_BUCKET_NAME = listed(SPENDING.names[:6])
_READ_BUCKET = f"SELECT {listed(SPENDING.names)} FROM spending WHERE ({_BUCKET_NAME})"  # noqa: S608
_BUCKET_PAGE = f"{_READ_BUCKET} > (?, ?, ?, ?, ?, ?) ORDER BY {_BUCKET_NAME} LIMIT ?"
BUCKET_NAMED = f"{_READ_BUCKET} = (?, ?, ?, ?, ?, ?)"
_NAMES = " UNION ".join(
    f"SELECT * FROM (SELECT DISTINCT {column} FROM calls INDEXED BY calls_{column} "  # noqa: S608
    f"WHERE {column} <> '' AND {column} > ?1 ORDER BY {column} LIMIT ?2)"
    for column in ("request_blob", "answer_blob")
)
_BLOB_NAMES = f"SELECT * FROM ({_NAMES}) ORDER BY 1 LIMIT ?2"  # noqa: S608


class EmbeddedSource:
    def __init__(self, directory: Path, connection: apsw.Connection, blobs: Blobs | None) -> None:
        self._directory = directory
        self._connection = connection
        self._blobs = blobs
        self.shown = str(directory)

    async def _do(self, work: Callable[..., T], *args: object) -> T:
        """In a thread, one at a time: whoever copies waits for each."""
        return await asyncio.to_thread(_told, work, *args)

    def one(self, text: str, *values: object) -> Any:  # noqa: ANN401 (an SQL value)
        return next((value for (value,) in self._connection.execute(text, values)), None)

    async def standing(self) -> Standing:
        return await self._do(self._standing)

    def _standing(self) -> Standing:
        mark = self.one(_META, MARK)
        return Standing(
            secret=self.one(_META, "secret"),
            unfinished=None if mark is None else bytes(mark).decode(),
            empty=bool(self.one(_EMPTY)),
        )

    async def living(self) -> int:
        return await self._do(owners.living, self._directory / "owners")

    async def tide(self) -> object:
        return await self._do(self._connection.pragma, "data_version")

    async def totals(self) -> dict[Kind, int]:
        return await self._do(lambda: {kind: self.one(text) or 0 for kind, text in _TOTALS.items()})

    async def read(self, kind: Kind, after: Cursor) -> Portion:
        pages = {
            Kind.RUNS: self._runs,
            Kind.EXCHANGES: self._exchanges,
            Kind.BUDGETS: self._buckets,
            Kind.CALLS: self._calls,
        }
        return await self._do(pages[kind], after)

    def _calls(self, after: Cursor) -> Portion:
        sizes = list(self._connection.execute(_CALL_SIZES, (after[0] if after else 0, PORTION)))
        ids = portions(sizes)
        more = len(ids) < len(sizes) or len(sizes) == PORTION
        return Portion([self._call(id_) for id_ in ids], (ids[-1],) if more else None)

    def _call(self, id_: int) -> CallDump:
        try:
            ((pulse, replays, at, *row),) = self._connection.execute(_READ_CALL, (id_,))
            lines = tuple(ENTRY.of(line) for line in self._connection.execute(_READ_LINES, (id_,)))
        except UnicodeDecodeError as error:
            key = self.one("SELECT hex(key) FROM calls WHERE id = ?", id_)
            raise StoreUnavailable(
                f"call {str(key).lower()} in {self.shown} is damaged: restore it from a backup"
            ) from error
        return CallDump(CALL.of(row), pulse, lines, replays, at)

    def _runs(self, after: Cursor) -> Portion:
        rows = list(self._connection.execute(_RUN_PAGE, (after[0] if after else 0, PORTION)))
        return Portion([self._run(row) for row in rows], (rows[-1][0],) if len(rows) == PORTION else None)

    def _run(self, row: tuple[Any, ...]) -> RunDump:
        id_, cleared, *values = row
        lines = tuple(LINE.of(line) for line in self._connection.execute(_READ_RUN_LINES, (id_,)))
        return RunDump(RUN.of(values), bool(cleared), lines)

    def _exchanges(self, after: Cursor) -> Portion:
        rows = list(self._connection.execute(_EXCHANGE_PAGE, (*(after or (0, "", b"", 0, "")), PORTION)))
        return Portion([exchange_of(row) for row in rows], rows[-1][:5] if len(rows) == PORTION else None)

    def _buckets(self, after: Cursor) -> Portion:
        rows = list(self._connection.execute(_BUCKET_PAGE, (*(after or ("", "", "", "", "", 0)), PORTION)))
        dumps: list[Dump] = [BudgetDump(SPENDING.of(row)) for row in rows]
        return Portion(dumps, rows[-1][:6] if len(rows) == PORTION else None)

    async def blob_names(self, after: str) -> list[str]:
        return await self._do(
            lambda: [name for (name,) in self._connection.execute(_BLOB_NAMES, (after, PORTION))]
        )

    async def blob_size(self, digest: str) -> int | None:
        return await self._do(self._blob_size, digest)

    def _blob_size(self, digest: str) -> int | None:
        try:
            return (self._directory / "blobs" / digest[:2] / digest).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def read_blob(self, ref: BlobRef) -> AsyncIterator[bytes]:
        if self._blobs is None:
            raise BlobLost(f"blob {ref.digest} is missing")
        async for chunk in self._blobs.read(ref):
            yield chunk

    async def close(self) -> None:
        if self._blobs is not None:
            await self._blobs.close()
        close_quietly(self._connection)


def exchange_of(row: tuple[Any, ...]) -> ExchangeDump:
    _, _, call, _, _, pulse, tenant, name, *values = row
    return ExchangeDump(tenant, name, call, pulse, EXCHANGE.of(values))


def _told(work: Callable[..., T], *args: object) -> T:
    try:
        return work(*args)
    except (apsw.Error, OSError) as error:
        raise unavailable(error) from error


async def open_source(directory: Path) -> EmbeddedSource:
    """ConfigurationError if there is no record, or one of another version."""
    return await asyncio.to_thread(_open_source, directory)


def _open_source(directory: Path) -> EmbeddedSource:
    path = directory / FILE_NAME
    if not path.is_file():
        raise NoRecord(f"There is no record in {directory}.")
    refuse_newer(path)
    connection = None
    try:
        connection = _reading(Database(path=path))
        if connection.pragma("user_version") != KNOWN_VERSION:
            raise ConfigurationError(
                f"{directory} was written by an older semel, and a source is only read. Bring it up to date "
                f"first: semel gc --state-dir {directory}"
            )
    except BaseException as error:
        close_quietly(connection)
        if isinstance(error, apsw.Error):
            raise ConfigurationError(
                f"{path} cannot be opened: {error}. If it is damaged, restore it from a backup."
            ) from error
        raise
    blobs = directory / "blobs"
    return EmbeddedSource(directory, connection, Blobs(blobs) if (blobs / "tmp").is_dir() else None)


def _reading(database: Database) -> apsw.Connection:
    connection = database.connect(Patience(), reading=True)
    # Or whoever closes last would write what is in the log into the database.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection
