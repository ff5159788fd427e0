"""Large bodies as files named by their digest.

A blob is written under a temporary name, fsynced, renamed, and its directory fsynced, before any row may
name it. A reader never takes a damaged blob for a whole one: the last chunk is withheld until the digest
fits.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TypeVar

from proxy.errors import StoreUnavailable
from proxy.faults import Point, reach
from proxy.store.base import BlobLost, BlobRef
from proxy.store.unnamed import DIGEST, TEMPORARY, putting

CHUNK = 256 * 1024
# How old the figure of bytes may be before the files are counted again, in the background.
RECOUNT = 900.0
# Enough to keep several fsyncs under way, few enough not to drown the disk.
THREADS = 4

T = TypeVar("T")


class Blobs:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._temporary = directory / TEMPORARY
        directory.mkdir(mode=0o700, exist_ok=True)
        self._temporary.mkdir(mode=0o700, exist_ok=True)
        self._numbers = count()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="semel-blobs")
        self._bytes = 0
        self._counted_at = -RECOUNT
        self._lock = threading.Lock()
        self._closed = False

    async def put(self, chunks: Iterable[bytes]) -> BlobRef:
        """Goes on to its end when the waiter is cancelled; a blob that no row names is collected later."""
        return await self._in_thread(self._put, chunks)

    async def read(self, ref: BlobRef) -> AsyncIterator[bytes]:
        file = await self._in_thread(self._open, ref)
        try:
            digest = hashlib.blake2b(digest_size=32)
            left = ref.size
            while left:
                chunk = await self._in_thread(_read, file, min(CHUNK, left))
                left -= len(chunk)
                digest.update(chunk)
                if not chunk or (not left and digest.hexdigest() != ref.digest):
                    raise BlobLost(f"blob {ref.digest} is damaged")
                yield chunk
            if not ref.size and digest.hexdigest() != ref.digest:
                raise BlobLost(f"blob {ref.digest} is damaged")
        finally:
            del file  # not with the frame: an exception may keep that for long

    def bytes_used(self) -> int:
        """Cheap: the last count and what this process added since. A new count is begun when that is old.
        What is added while a count is under way may be in it twice, until the next one."""
        with self._lock:
            due = not self._closed and time.monotonic() - self._counted_at > RECOUNT
            if due:
                self._counted_at = time.monotonic()
                self._threads.submit(self._recount)
            return self._bytes

    def shrunk(self, by: int) -> None:
        with self._lock:
            self._bytes = max(0, self._bytes - by)

    async def close(self) -> None:
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)

    def _in_thread(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        try:
            return asyncio.get_running_loop().run_in_executor(self._threads, work, *args)
        except RuntimeError as error:  # no thread to be had
            raise StoreUnavailable(f"the store is not available: {error}") from error

    # --- in a thread ---------------------------------------------------------------------------------

    def _put(self, chunks: Iterable[bytes]) -> BlobRef:
        # A name of this process and this moment: two that write the same content never meet.
        temporary = self._temporary / f"{time.time_ns()}-{os.getpid()}-{next(self._numbers)}"
        try:
            ref = _write(temporary, chunks)
            reach(Point.BLOB_WRITTEN)
            self._name(temporary, ref)
        except OSError as error:
            raise StoreUnavailable(f"the store is not available: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        return ref

    def _name(self, temporary: Path, ref: BlobRef) -> None:
        """An existing file of that name is replaced: its content is the same, unless it was damaged, and the
        fresh time says that somebody is about to refer to it."""
        path = self._path(ref.digest)
        self._make_parent(path.parent)
        known = path.exists()
        with putting(self.directory):
            temporary.rename(path)
        reach(Point.BLOB_RENAMED)
        _sync_directory(path.parent)
        if not known:
            with self._lock:
                self._bytes += ref.size

    def _make_parent(self, parent: Path) -> None:
        with contextlib.suppress(FileExistsError):
            parent.mkdir(mode=0o700)
        # Also when it was there: whoever made it may not have come to this line yet.
        _sync_directory(self.directory)

    def _open(self, ref: BlobRef) -> _OpenFile:
        if not DIGEST.fullmatch(ref.digest):
            raise BlobLost("not the name of a blob")
        try:
            file = _OpenFile(self._path(ref.digest))
        except FileNotFoundError:
            raise BlobLost(f"blob {ref.digest} is missing") from None
        except OSError as error:
            raise StoreUnavailable(f"the store is not available: {error.strerror}") from error
        if os.fstat(file.fd).st_size != ref.size:
            raise BlobLost(f"blob {ref.digest} has the wrong size")
        return file

    def _recount(self) -> None:
        """A pause after each directory: a million files must not be felt."""
        total = 0
        for parent in self.directory.iterdir():
            with contextlib.suppress(OSError), os.scandir(parent) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        total += entry.stat().st_size
            if self._closed:
                return
            time.sleep(0.001)
        with self._lock:
            self._bytes = total

    def _path(self, digest: str) -> Path:
        return self.directory / digest[:2] / digest


class _OpenFile:
    """Open for as long as anybody refers to it. A job in a thread goes on when its waiter has left: what it
    opens must not be lost, and what it reads must not be closed, and its number given to another file, under
    its hands."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.fd)


def _write(path: Path, chunks: Iterable[bytes]) -> BlobRef:
    digest, size = hashlib.blake2b(digest_size=32), 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    return BlobRef(digest.hexdigest(), size)


def _read(file: _OpenFile, length: int) -> bytes:
    try:
        return os.read(file.fd, length)
    except OSError as error:
        raise StoreUnavailable(f"the store is not available: {error.strerror}") from error


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
