"""A disk that can lose its power, be full, or fail to sync, as a SQLite VFS.

Writes reach the real file at once, as they reach the page cache. Beside it this keeps, for every file, what
a sync has made durable and what was written since. At a power loss each sector written since survives or
not, by the toss of a seeded coin, which also tears writes in two.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw

SECTOR = 512


@dataclass(slots=True)
class Image:
    """One file: its durable bytes, and the writes and truncations since the last sync."""

    durable: bytearray = field(default_factory=bytearray)
    since: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut to that offset

    def sync(self) -> None:
        for offset, data in self.since:
            _apply(self.durable, offset, data)
        self.since.clear()

    def after_loss(self, coin: random.Random) -> bytes:
        content = bytearray(self.durable)
        luck = coin.choice((0.0, 0.1, 0.5, 0.9, 1.0))  # all lost and all kept are cases too
        for offset, data in self.since:
            if data is None:
                if coin.random() < luck:
                    _apply(content, offset, None)
                continue
            for start in range(0, len(data), SECTOR):
                if coin.random() < luck:
                    _apply(content, offset + start, data[start : start + SECTOR])
        return bytes(content)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class Disk:
    """The state of all files behind one VFS, and the switches for trouble."""

    def __init__(self) -> None:
        self.images: dict[str, Image] = {}
        self.operations = 0
        self.lose_power_at: int | None = None
        self.on_power_loss: Callable[[], None] = lambda: None
        self.full = False
        self.sync_fails = False
        self.sync_fails_for = ""  # only files whose name ends so
        self._lock = threading.RLock()

    def image(self, name: str) -> Image:
        with self._lock:
            if name not in self.images:
                path = Path(name)
                self.images[name] = Image(bytearray(path.read_bytes() if path.exists() else b""))
            return self.images[name]

    def operation(self) -> None:
        """Counted before it takes effect: a loss at operation n happens just before it."""
        with self._lock:
            self.operations += 1
            if self.operations == self.lose_power_at:
                self.on_power_loss()

    def write(self, name: str, data: bytes, offset: int) -> None:
        with self._lock:
            self.operation()
            if self.full:
                raise apsw.FullError("no space left on the test's disk")
            self.image(name).since.append((offset, data))

    def truncate(self, name: str, size: int) -> None:
        with self._lock:
            self.operation()
            self.image(name).since.append((size, None))

    def sync(self, name: str) -> None:
        with self._lock:
            self.operation()
            if self.sync_fails and name.endswith(self.sync_fails_for):
                # As Linux does it: the error is told once, and what was not written counts as clean.
                self.image(name).since.clear()
                raise apsw.IOError("the test's disk failed to sync")
            self.image(name).sync()

    def delete(self, name: str) -> None:
        """Taken as durable at once: SQLite syncs the directory where it matters."""
        with self._lock:
            self.operation()
            self.images.pop(name, None)

    def after_power_loss(self, coin: random.Random) -> dict[str, bytes]:
        with self._lock:
            return {Path(name).name: image.after_loss(coin) for name, image in self.images.items()}


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, filename: str | apsw.URIFilename, flags: list[int]) -> None:
        self._disk = disk
        self._name = filename.filename() if isinstance(filename, apsw.URIFilename) else filename
        disk.image(self._name)
        super().__init__("", filename, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.write(self._name, bytes(data), offset)
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.truncate(self._name, newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.sync(self._name)  # and no real sync: the test's disk is the one that counts


class _VFS(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        self._disk = disk
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        assert name is not None
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._disk.delete(filename)
        super().xDelete(filename, syncdir)


@contextmanager
def faulty_disk(name: str) -> Iterator[Disk]:
    """A VFS of that name over a new Disk, registered for the time of the block."""
    disk = Disk()
    vfs = _VFS(name, disk)
    try:
        yield disk
    finally:
        vfs.unregister()
