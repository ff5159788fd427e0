"""The shared cache, for answers that may be lost: diskcache, reduced to bytes and kept off the event loop.

Whatever goes wrong here is a miss or a no-op, never the failure of a call. diskcache would unpickle what it
finds marked so, which runs the code of whoever wrote it; the `Disk` below cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import diskcache
import xxhash

# Larger values are files of their own.
MIN_FILE_SIZE = 32 * 1024
# A cache that answers later than this is no use; a lock held by another process is not waited for longer.
PATIENCE = 1.0
# With so many requests waiting for the one thread, another one is a miss at once.
MOST_WAITING = 512
# After a failed opening, so long until the next try.
RETRY_AFTER = 10.0
_FILE_NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{28}\.val")
_CHECKSUM = 8


class BytesDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache has no types
    """Bytes in, bytes out, private files. Anything else in the directory is somebody else's and is not read.
    An OSError from `fetch` is what diskcache takes for a miss."""

    def put(self, key: object) -> tuple[memoryview, bool]:
        if not isinstance(key, bytes):
            raise TypeError("a key is bytes")
        return memoryview(key), True

    def get(self, key: object, raw: bool) -> bytes:
        if not raw or not isinstance(key, bytes):
            raise OSError("not a key of ours")
        return key

    def store(self, value: object, read: bool, key: object = None) -> tuple[int, int, str | None, Any]:
        if not isinstance(value, bytes) or read:
            raise TypeError("a value is bytes")
        if len(value) < self.min_file_size:
            return 0, diskcache.core.MODE_RAW, None, memoryview(value)
        name, path = self.filename()
        _write_private(Path(path), value)
        return len(value), diskcache.core.MODE_BINARY, name, None

    def fetch(self, mode: int, filename: str | None, value: object, read: bool) -> bytes:
        if mode == diskcache.core.MODE_RAW and isinstance(value, bytes):
            return value
        if mode == diskcache.core.MODE_BINARY and filename and _FILE_NAME.fullmatch(filename):
            return (Path(self._directory) / filename).read_bytes()
        raise OSError("not a value of ours")


class SharedCache:
    def __init__(self, directory: Path, limit: int) -> None:
        self.evictions = 0  # for want of room; what merely expired does not count
        self._directory = directory
        self._limit = limit
        self._cache: diskcache.Cache | None = None
        self._retry_at = 0.0
        self._waiting = 0
        self._volume = 0
        # One thread: diskcache keeps a connection for each, and SQLite lets one write at a time anyway.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="semel-cache")

    async def put(self, key: bytes, value: bytes, ttl: float) -> None:
        await self._ask(self._put, key, value, ttl)

    async def get(self, key: bytes) -> bytes | None:
        value: bytes | None = await self._ask(self._get, key)
        return value

    async def bytes_used(self) -> int:
        """As it was last known, where it does not answer. Looking makes no cache."""
        if self._directory.exists():
            volume: int | None = await self._ask(diskcache.Cache.volume)
            self._volume = self._volume if volume is None else volume
        return self._volume

    async def clear(self) -> None:
        """What was in it is gone from its file too. Takes the time it takes."""
        with contextlib.suppress(RuntimeError):  # closed
            await asyncio.get_running_loop().run_in_executor(self._thread, self._attempt, self._clear)

    async def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # closed twice
            self._thread.submit(self._close)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def _ask(self, work: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        """None when it fails, when it takes too long, and when too many wait already."""
        if self._waiting >= MOST_WAITING:
            return None
        self._waiting += 1
        try:
            job = asyncio.get_running_loop().run_in_executor(self._thread, self._attempt, work, *args)
            async with asyncio.timeout(PATIENCE):
                return await job
        except (TimeoutError, RuntimeError):  # RuntimeError: the thread has been shut down
            return None
        finally:
            self._waiting -= 1

    # --- in the thread -------------------------------------------------------------------------------

    def _attempt(self, work: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        try:
            return work(self._cache or self._open(), *args)
        except Exception as error:  # a cache has no failure worth a call
            if _is_damage(error):
                self._recreate()
            return None

    def _open(self) -> diskcache.Cache:
        now = time.monotonic()
        if now < self._retry_at:
            raise OSError("opening failed a moment ago")
        self._retry_at = now + RETRY_AFTER
        if os.path.expandvars(str(self._directory)) != str(self._directory):
            raise OSError("diskcache would read a variable's name in this path and go elsewhere")
        self._directory.mkdir(mode=0o700, exist_ok=True)
        # SQLite gives its other files the mode of this one. One that is there is not opened: closing it would
        # take away the locks that another cache of this process has on it, and files would be cut under its
        # hands.
        with contextlib.suppress(FileExistsError):
            flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(self._directory / diskcache.core.DBNAME, flags, 0o600))
        self._cache = diskcache.Cache(
            self._directory,
            timeout=PATIENCE,
            disk=BytesDisk,
            size_limit=self._limit,
            cull_limit=0,  # we cull, to count
            eviction_policy="least-recently-stored",  # a hit then writes nothing
            disk_min_file_size=MIN_FILE_SIZE,
            sqlite_mmap_size=0,  # a file that gets shorter would be a SIGBUS, and not an exception
            statistics=0,
            tag_index=0,
        )
        self._retry_at = 0.0
        return self._cache

    def _put(self, cache: diskcache.Cache, key: bytes, value: bytes, ttl: float) -> None:
        cache.set(key, xxhash.xxh3_64_digest(value) + value, expire=ttl)
        if cache.volume() > self._limit:
            cache.expire()
            self.evictions += cache.cull()

    def _get(self, cache: diskcache.Cache, key: bytes) -> bytes | None:
        stored = cache.get(key)
        if not isinstance(stored, bytes):
            return None
        value = stored[_CHECKSUM:]
        return value if xxhash.xxh3_64_digest(value) == stored[:_CHECKSUM] else None

    def _clear(self, cache: diskcache.Cache) -> None:
        cache.clear()
        path = self._directory / diskcache.core.DBNAME
        with contextlib.closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _recreate(self) -> None:
        """Another process that still has the old files open goes on with them; it loses what may be lost."""
        with contextlib.suppress(Exception):
            self._close()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._retry_at = 0.0

    def _close(self) -> None:
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.close()


def _is_damage(error: Exception) -> bool:
    """A lock or a full disk passes; a file that is no database, or lacks its tables, does not."""
    if isinstance(error, sqlite3.OperationalError):
        return "no such" in str(error)
    return isinstance(error, sqlite3.DatabaseError | TypeError | ValueError | KeyError)


def _write_private(path: Path, value: bytes) -> None:
    for parent in (path.parent.parent, path.parent):
        parent.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(value)
