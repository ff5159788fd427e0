"""Bytes that grow: in memory up to a limit, beyond it in a temporary file that has no name.

The file is written without fsync: it is working space, gone with the process. What must last goes
through the store.
"""

from __future__ import annotations

import os
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import RLock, Thread

CHUNK = 256 * 1024
# A file without a name goes when it is closed, and freeing its pages takes a tenth of a millisecond for every
# few megabytes. Neither the event loop nor whoever has its core next shall wait for all of it.
STEP, PAUSE = 1024 * 1024, 0.002


class _Closing:
    """One thread gives back all that wait for it, a bit at a time, and ends when none is left."""

    def __init__(self) -> None:
        # A finalizer may run in the midst of another in the same thread.
        self._lock = RLock()
        self._waiting: deque[int] = deque()
        self._at_work = False

    def close(self, fd: int) -> None:
        with self._lock:
            self._waiting.append(fd)
            idle, self._at_work = not self._at_work, True
        if not idle:
            return
        try:
            Thread(target=self._give_back_all, name="semel-spool", daemon=True).start()
        except RuntimeError:  # the interpreter is on its way out, or no thread is to be had
            while (left := self._next()) is not None:
                _close(left)

    def _next(self) -> int | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._at_work = False
            return None

    def _give_back_all(self) -> None:
        while (fd := self._next()) is not None:
            with suppress(OSError):  # what cannot be shortened goes in one piece
                for size in range(os.fstat(fd).st_size - STEP, 0, -STEP):
                    os.ftruncate(fd, size)
                    time.sleep(PAUSE)
            _close(fd)


def _close(fd: int) -> None:
    """Whatever it says: the descriptor is gone, and others wait for theirs."""
    with suppress(OSError):
        os.close(fd)


_CLOSING = _Closing()


class Spool:
    __slots__ = ("__weakref__", "_directory", "_fd", "_first", "_memory", "_memory_limit", "size")

    def __init__(self, memory_limit: int = 1024 * 1024, directory: Path | None = None) -> None:
        self._first = b""
        self._memory = bytearray()
        self._memory_limit = memory_limit
        self._directory = directory
        self._fd = -1
        self.size = 0

    @classmethod
    def of(cls, data: bytes) -> Spool:
        spool = cls(len(data))
        spool._first, spool.size = bytes(data), len(data)
        return spool

    def append(self, data: bytes) -> None:
        """Raises OSError, of a full disk for example: nothing is added then, and what was there stays."""
        if self._fd < 0 and self.size + len(data) > self._memory_limit:
            self._spill()
        if self._fd >= 0:
            _write(self._fd, data, self.size)
        elif self.size == 0:
            self._first = bytes(data)  # mostly there is only one piece: it is never copied
        else:
            self._memory += self._first + data
            self._first = b""
        self.size += len(data)

    def read(self, offset: int, length: int) -> bytes:
        if self._fd >= 0:
            return os.pread(self._fd, length, offset)
        if self._first:
            return (
                self._first if offset == 0 and length >= self.size else self._first[offset : offset + length]
            )
        return bytes(self._memory[offset : offset + length])

    def chunks(self) -> Iterator[bytes]:
        for offset in range(0, self.size, CHUNK):
            yield self.read(offset, CHUNK)

    def whole(self) -> bytes:
        return self._first or self.read(0, self.size)

    @property
    def on_disk(self) -> bool:
        return self._fd >= 0

    def _spill(self) -> None:
        # mkstemp makes it 0600; without a name nothing is left behind by a crash.
        fd, name = tempfile.mkstemp(prefix="semel-spool-", dir=self._directory)
        try:
            os.unlink(name)  # noqa: PTH108 (a plain string is what mkstemp gives)
            _write(fd, self._first or bytes(self._memory), 0)
        except BaseException:
            os.close(fd)
            raise
        weakref.finalize(self, _CLOSING.close, fd).atexit = False  # the system closes it then
        self._fd = fd
        self._first, self._memory = b"", bytearray()


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
