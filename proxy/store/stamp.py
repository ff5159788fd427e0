"""A number that all processes on one directory share: while it stands still, no settled row was changed.

So an answer that was given from a settled row can be given again without asking the database. The number is
odd while a change may be under way; nobody trusts it then. It is changed only under the database's write
lock: odd before such a change is committed, even again under the next lock, whoever takes it. A process that
dies in between leaves it odd, which costs time and never an answer.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

FILE_NAME = "settled.stamp"
RUNS_FILE_NAME = "runs.stamp"
_SIZE = 8


class Stamp:
    def __init__(self, path: Path) -> None:
        """Several processes may do this at once: whoever writes zeros finds no number there yet."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Written, not only extended: a hole in the file would need room on the disk later, when all that
            # could be said about it is SIGBUS.
            if os.fstat(fd).st_size < _SIZE:
                os.pwrite(fd, bytes(_SIZE), 0)
            self._map = mmap.mmap(fd, _SIZE)
        finally:
            os.close(fd)
        # One aligned word, read and written in one step by everybody.
        self._word = memoryview(self._map).cast("Q")

    def read(self) -> int | None:
        """None: a change may be under way."""
        value = self._word[0]
        return None if value & 1 else value

    @property
    def is_open(self) -> bool:
        return bool(self._word[0] & 1)

    def changing(self) -> None:
        """Under the write lock, before the commit."""
        self._word[0] |= 1

    def changed(self) -> None:
        """Under the write lock, when no change is waiting to be committed."""
        if self._word[0] & 1:
            self._word[0] += 1

    def close(self) -> None:
        self._word.release()
        self._map.close()


class ForeignStamp(Stamp):
    """The same for changes of runs, of which this process knows its own: only others' count.

    `_known` is the number up to which every change was this process's, or has been there to be read. It is
    moved along by this process's writer, and falls behind as soon as another one changes anything.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        value = self._word[0]
        self._known = None if value & 1 else value
        self._generation = 0

    def changing(self) -> None:
        before = self._word[0]
        super().changing()
        self._move_along(before)

    def changed(self) -> None:
        before = self._word[0]
        super().changed()
        self._move_along(before)

    def _move_along(self, before: int) -> None:
        if self._known == before:
            self._known = self._word[0]

    def generation(self) -> int | None:
        """Stands still while no other process has changed a run. None: one may be about to."""
        value = self._word[0]
        if value != self._known:
            self._generation += 1
            self._known = None if value & 1 else value
        return None if self._known is None else self._generation
