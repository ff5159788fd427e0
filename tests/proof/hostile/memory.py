"""What a process and those below it take of memory at their highest, as the kernel counts it.

The highest, not what is left: memory that was taken for a moment and given back was taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# To /proc/PID/clear_refs: the highest so far is forgotten, what is taken now stands for it.
FORGET_THE_HIGHEST = "5"


@dataclass(frozen=True, slots=True)
class Marked:
    """A process from this moment on. Where the kernel does not let us forget what it took earlier, only what
    is above that is seen."""

    pid: int
    before: Mapping[int, int]  # bytes, by process

    @classmethod
    def now(cls, pid: int) -> Self:
        for one in _family(pid):
            with contextlib.suppress(OSError):
                Path(f"/proc/{one}/clear_refs").write_text(FORGET_THE_HIGHEST)
        return cls(pid, {one: highest(one) for one in _family(pid)})

    def growth(self) -> int:
        """Of all of them together, each at its own highest: no less than they ever had at one time. One that
        came later counts as a whole; one that has ended can be asked no more: ProcessLookupError."""
        there = {*self.before, *_family(self.pid)}
        return sum(highest(one) - self.before.get(one, 0) for one in there)


def highest(pid: int) -> int:
    with contextlib.suppress(FileNotFoundError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"no process {pid}")


def _family(pid: int) -> Iterator[int]:
    """It, and all below it: its workers, if it has some."""
    yield pid
    with contextlib.suppress(FileNotFoundError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _family(int(child))
