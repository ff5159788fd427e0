"""Bytes that grow: in memory up to a limit, beyond it in a temporary file that has no name.

The file is written without fsync: it is working space, gone with the process. What must last goes
through the store.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

CHUNK = 256 * 1024


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
        spool = cls(memory_limit=len(data))
        spool.append(data)
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
        weakref.finalize(self, os.close, fd)
        self._fd = fd
        self._first, self._memory = b"", bytearray()


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
