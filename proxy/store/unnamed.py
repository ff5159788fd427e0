"""Blobs that no row names, and temporary files that a crash left: found in rounds, a portion at a time.

A blob is there before the row that names it, so a name that is missing proves nothing for a while. But
whoever is about to name a blob has put it first, and a put renews the file's time, also where the content was
there before. So what nobody has touched for an hour, and no row names, is needed by nobody. The time is
looked at under a lock that every put takes for its renaming: no file is renewed between the look and the
removal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from proxy.faults import Point, reach

# Longer than any body takes to be copied to a disk and then to be named by a row.
UNTOUCHED = 3600.0
TEMPORARY = "tmp"
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`more`: the round is not at its end."""

    files: int
    bytes: int
    more: bool = False


class Unnamed:
    """One round at a time, by whoever calls `remove`: one at a time, too."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._round: Iterator[Path] | None = None

    def count(self, is_named: Callable[[str], bool]) -> Found:
        """A whole round that removes nothing."""
        sizes = [size for path in self._files() if (size := self._removable(path, is_named)) is not None]
        return Found(files=len(sizes), bytes=sum(sizes))

    def remove(self, limit: int, is_named: Callable[[str], bool]) -> Found:
        """Look at the next `limit` files of the round, or begin one."""
        here, self._round = self._round or self._files(), None
        portion = list(islice(here, limit))
        sizes = [
            size
            for path in portion
            if (size := self._removable(path, is_named)) is not None and self._remove(path)
        ]
        more = len(portion) == limit
        self._round = here if more else None  # after trouble the next portion begins a new round
        return Found(files=len(sizes), bytes=sum(sizes), more=more)

    def _files(self) -> Iterator[Path]:
        for parent in sorted(self._directory.iterdir()):
            if parent.is_dir():
                # Names at once: no directory stays open between portions. What is no file is not ours.
                yield from [path for path in parent.iterdir() if path.is_file()]

    def _removable(self, path: Path, is_named: Callable[[str], bool]) -> int | None:
        """Its size. None: it is young, or named, or not ours to judge."""
        size = _untouched(path)
        if path.parent.name == TEMPORARY or size is None:
            return size
        if not DIGEST.fullmatch(path.name) or path.parent.name != path.name[:2]:
            return None
        return None if is_named(path.name) else size

    def _remove(self, path: Path) -> bool:
        with putting(self._directory, fcntl.LOCK_EX):
            if _untouched(path) is None:
                return False  # somebody has put it meanwhile, and is about to name it
            path.unlink(missing_ok=True)
        reach(Point.BLOB_COLLECTED)
        return True


@contextlib.contextmanager
def putting(directory: Path, how: int = fcntl.LOCK_SH) -> Iterator[None]:
    """Held for a moment: shared by all who give a blob its name, by nobody beside one who removes."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)


def _untouched(path: Path) -> int | None:
    """The size of a file that nobody has touched for so long."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size if found.st_mtime < time.time() - UNTOUCHED else None
