"""How a connection to the ledger is opened, and what SQLite's errors mean to the rest of semel.

This is the one place where an apsw error becomes `StoreUnavailable`.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from proxy.errors import StoreUnavailable
from proxy.store.codec import DamagedRecord

FILE_NAME = "ledger.sqlite"

# How long to wait for another process's write transaction. They last milliseconds; who is still waiting
# after seconds is better told so than kept.
PATIENCE = 5.0
# apsw lets go of a prepared statement after so many uses of others, and a batch uses two of them hundreds of
# times: with fewer places those of its beginning and end are prepared anew for each. More would be looked
# through each time.
STATEMENTS = 256
# Between two tries. Short, because the other side's transaction is: one fsync and some statements.
PAUSE = 0.0005

# What every connection gets. Checkpoints are the writer's (writer.py), so the automatic ones are off.
# Page caches are small because the kernel's cache stands behind them; no memory map, because an I/O error
# in one is a SIGBUS and not an exception.
PRAGMAS = {
    "synchronous": "FULL",  # one fdatasync per commit; NORMAL loses acknowledged commits on power loss
    "fullfsync": 1,  # macOS: fsync alone does not reach the disk there
    "checkpoint_fullfsync": 1,
    "cache_size": -16 * 1024,  # KiB
    "mmap_size": 0,
    "temp_store": "MEMORY",
    "wal_autocheckpoint": 0,
    "journal_size_limit": 64 * 1024 * 1024,  # a log that once grew is cut back when it starts anew
    "trusted_schema": 0,
}
# 64 MiB hold the whole index of a million keys; a lookup then fetches one page instead of two.
READ_PRAGMAS: dict[str, str | int] = {"query_only": 1, "cache_size": -64 * 1024}


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where the ledger is and how to open it. `vfs` and `pragmas` are for tests: a disk that fails."""

    path: Path
    vfs: str | None = None
    pragmas: dict[str, str | int] = field(default_factory=dict)

    def connect(self, patience: Patience, *, reading: bool = False) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE  # never CREATE: the file is made beforehand, with its mode
        connection = apsw.Connection(str(self.path), flags=flags, vfs=self.vfs, statementcachesize=STATEMENTS)
        try:
            # Texts are constant and plans do not hang on values: else some are planned anew each time.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            connection.set_busy_handler(patience.wait)
            if connection.pragma("journal_mode") != "wal":
                connection.pragma("journal_mode", "wal")
            for name, value in (PRAGMAS | self.pragmas | (READ_PRAGMAS if reading else {})).items():
                connection.pragma(name, value)
        except BaseException:
            connection.close(True)
            raise
        return connection

    @property
    def log(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    def log_size(self) -> int:
        try:
            return self.log.stat().st_size
        except FileNotFoundError:
            return 0


@dataclass(slots=True)
class Patience:
    """A busy handler: short sleeps up to a bound, which its connection's thread may change."""

    bound: float = PATIENCE
    _until: float = 0.0

    def wait(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._until = now + self.bound
        if now >= self._until:
            return False
        time.sleep(PAUSE)
        return True


# In this order: the first class that fits says what happened.
_MEANING: tuple[tuple[type[BaseException], str], ...] = (
    (apsw.FullError, "the disk is full"),
    (apsw.BusyError, "another process has held the database for too long"),
    (apsw.LockedError, "another process has held the database for too long"),
    (apsw.CorruptError, "the database is damaged"),
    (apsw.NotADBError, "the database is damaged"),
    (apsw.CantOpenError, "the database cannot be opened"),
    (apsw.ReadOnlyError, "the database may not be written"),
    (apsw.PermissionsError, "the database may not be written"),
    (apsw.IOError, "the disk reports an error"),
    (apsw.TooBigError, "the record is too large to be stored"),
)

# Errors of one statement's values, or of the one row it met. The transaction is sound, the job is not.
OWN_FAULT: tuple[type[BaseException], ...] = (
    apsw.ConstraintError, apsw.MismatchError, apsw.RangeError, apsw.TooBigError, apsw.BindingsError,
    TypeError, ValueError, OverflowError, DamagedRecord,
)  # fmt: skip


def unavailable(error: BaseException) -> StoreUnavailable:
    """What the caller of a store is told. The cause travels along for the log."""
    meaning = next((text for kind, text in _MEANING if isinstance(error, kind)), None)
    told = StoreUnavailable(f"the store is not available: {meaning or error}")
    told.__cause__ = error
    return told


def close_quietly(connection: apsw.Connection | None) -> None:
    """After trouble: whatever closing says, the connection is not used again."""
    if connection is not None:
        with contextlib.suppress(apsw.Error):
            connection.close(True)
