"""The directory of the embedded store: made, checked, locked, its database up to date.

Everything is private: directories 0700, files 0600. What cannot serve is refused with what to do about it,
and before anything in it is changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

import apsw

from proxy.errors import ConfigurationError
from proxy.store import meta_statements
from proxy.store.archive import not_whole
from proxy.store.blobs import Blobs
from proxy.store.checkpoints import PAGES
from proxy.store.database import FILE_NAME, PATIENCE, Database, Patience, close_quietly
from proxy.store.owners import Owner
from proxy.store.schema import migrate, refuse_newer
from proxy.store.stamp import FILE_NAME as STAMP
from proxy.store.stamp import RUNS_FILE_NAME as RUNS_STAMP
from proxy.store.stamp import ForeignStamp, Stamp

# Two processes that start together take turns. A migration of a large database may take this long.
OPENING = 120.0
_OPEN_LOCK = "open.lock"
# For the log, of whose pages each has some bytes before it. It is made where the disk has many times as much.
ROOM, PLENTY = PAGES * (4096 + 24), 10
# In pieces: of what is written in one go the kernel makes one large block, and each later write into that
# takes as long as the block is large.
ZEROS = bytes(4096)
# What may lie in a directory that is ours.
_OURS = frozenset(
    {
        FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm", STAMP, RUNS_STAMP, _OPEN_LOCK, "owners", "blobs",
        "cache", "ca", "tokens.json",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    directory: Path
    database: Database
    writing: apsw.Connection
    reading: apsw.Connection  # open from the start: with a full disk it could not be opened any more
    patience: Patience
    owner: Owner
    blobs: Blobs
    stamp: Stamp
    runs_stamp: ForeignStamp
    secret: bytes


def move_in(
    directory: Path, vfs: str | None, pragmas: dict[str, str | int], *, unfinished: bool = False
) -> Premises:
    """Open what is there, or make it. Safe when several processes do so at once. `unfinished`: also one into
    which a ledger is still being copied."""
    path = directory / FILE_NAME
    try:
        refuse_newer(path)
        _make_private(directory)
        with _Turn(directory / _OPEN_LOCK):
            refuse_newer(path)
            return _open(directory, Database(path=path, vfs=vfs, pragmas=pragmas), unfinished)
    except OSError as error:
        raise ConfigurationError(
            f"{directory} cannot be used to keep the record: {error.strerror}. "
            "Semel needs a directory that it may write; name another with --state-dir."
        ) from error


def _open(directory: Path, database: Database, unfinished: bool) -> Premises:
    _create_private(database.path)
    patience = Patience(OPENING)
    owner = Owner(directory / "owners")
    writing = reading = None
    try:
        writing = database.connect(patience)
        migrate(writing)
        _empty_log(writing, patience)
        _make_room(writing, database)
        secret = meta_statements.secret(writing)
        # Asked when this process is already to be seen among the living: a copy looks at them after its mark.
        origin = meta_statements.copied_from(writing)
        if origin is not None and not unfinished:
            raise not_whole(str(directory), origin)
        reading = database.connect(Patience(), reading=True)
        blobs = Blobs(directory / "blobs")
        stamp = Stamp(directory / STAMP)
        runs_stamp = ForeignStamp(directory / RUNS_STAMP)
    except BaseException as error:
        close_quietly(reading)
        close_quietly(writing)
        owner.release()
        if isinstance(error, apsw.Error):
            raise ConfigurationError(
                f"{database.path} cannot be opened: {error}. If it is damaged, restore it from a backup or "
                "move it away; calls recorded in it are then unknown to semel."
            ) from error
        raise
    return Premises(
        directory=directory, database=database, writing=writing, reading=reading, patience=patience,
        owner=owner, blobs=blobs, stamp=stamp, runs_stamp=runs_stamp, secret=secret,
    )  # fmt: skip


def _empty_log(connection: apsw.Connection, patience: Patience) -> None:
    """A log that is found here was left by a crash, or belongs to a living process. After a crash it may hold
    what a failed fsync never wrote; copied into the database it is written again. The living are not
    disturbed."""
    patience.bound = 0.1
    with contextlib.suppress(apsw.BusyError):
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    patience.bound = PATIENCE


def _make_room(connection: apsw.Connection, database: Database) -> None:
    """An empty log gets its usual length at once, in zeros that are written: while a file grows, or where its
    room was only set aside, each fsync has to write down that too, and takes up to twice as long. Nothing
    depends on it: where the disk has little room, that is left for what needs it."""
    if database.vfs is not None or not hasattr(os, "posix_fallocate"):
        return
    with contextlib.suppress(apsw.BusyError):
        connection.execute("BEGIN IMMEDIATE")  # nobody writes to it meanwhile
        try:
            with contextlib.suppress(OSError), database.log.open("r+b") as log:
                _lengthen(log.fileno())
        finally:
            connection.execute("ROLLBACK")


def _lengthen(log: int) -> None:
    disk = os.fstatvfs(log)
    if os.fstat(log).st_size or disk.f_bavail * disk.f_frsize < PLENTY * ROOM:
        return
    try:
        os.posix_fallocate(log, 0, ROOM)  # all of it or an error
        for at in range(0, ROOM, len(ZEROS)):
            os.pwrite(log, ZEROS[: ROOM - at], at)
        os.fsync(log)  # else the first commit would have to wait for it
    except OSError:
        os.ftruncate(log, 0)  # a part of it may have been had, and would be all that there was
        raise


def _make_private(directory: Path) -> None:
    """An empty directory, or one that is ours, is tightened: `mkdir` makes 0755 and nobody means that. One
    with other things in it is refused: to close somebody's shared directory would break what uses it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o077:
        strangers = {entry.name for entry in directory.iterdir()} - _OURS
        if strangers:
            raise ConfigurationError(
                f"{directory} may be entered by others (mode {mode:04o}) and holds things that are not "
                f"semel's ({min(strangers)}). Name a directory of its own with --state-dir."
            )
        directory.chmod(0o700)


def _create_private(path: Path) -> None:
    """SQLite gives its -wal and -shm files the mode of the database file, so that must be right first."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) & 0o177:
            os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


class _Turn:
    """Held while opening: making the database and migrating it are for one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + OPENING
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    os.close(self._fd)
                    raise ConfigurationError(
                        f"another process has been opening {self._path.parent} for {OPENING:.0f} seconds"
                    ) from None
                time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
