"""Replay counts on their way to the disk: coalesced in memory, written in small portions, never urgent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

# Marks ride on a transaction that others wait for: this many cost well under a millisecond.
PORTION = 128
# With the disk gone for long, the oldest counts are dropped rather than memory filled.
MOST = 200_000


class Marks:
    """`add` belongs to the event loop, everything else to the writer's thread; they share the deque."""

    def __init__(self) -> None:
        self._arrived: deque[tuple[bytes, float]] = deque(maxlen=MOST)
        self._waiting: dict[bytes, tuple[int, float]] = {}

    def add(self, key: bytes, at: float) -> None:
        self._arrived.append((key, at))

    def gather(self) -> None:
        """Coalesce what has arrived."""
        for _ in range(len(self._arrived)):
            key, at = self._arrived.popleft()
            self._count(key, 1, at)

    def take(self) -> list[tuple[bytes, int, float]]:
        portion = list(islice(self._waiting, PORTION))
        return [(key, *self._waiting.pop(key)) for key in portion]

    def put_back(self, marks: list[tuple[bytes, int, float]]) -> None:
        for key, count, at in marks:
            self._count(key, count, at)

    def drop(self, keys: Iterable[bytes]) -> None:
        """Their calls are gone."""
        for key in keys:
            self._waiting.pop(key, None)

    def __len__(self) -> int:
        return len(self._waiting)

    def _count(self, key: bytes, count: int, at: float) -> None:
        before, latest = self._waiting.get(key, (0, at))
        if before or len(self._waiting) < MOST:
            self._waiting[key] = (before + count, max(latest, at))
