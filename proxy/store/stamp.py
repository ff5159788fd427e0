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
