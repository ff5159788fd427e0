"""Replay counts and ends of exchanges on their way to the disk: coalesced in memory, written in small
portions, never urgent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from proxy.core.run_record import Serving

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


class ServedMarks:
    """The same for exchanges: of each only how it stands last."""

    def __init__(self) -> None:
        self._arrived: deque[Serving] = deque(maxlen=MOST)
        self._waiting: dict[tuple[str, str, str, bytes, int, str], Serving] = {}

    def add(self, served: Serving) -> None:
        self._arrived.append(served)

    def gather(self) -> None:
        for _ in range(len(self._arrived)):
            self._put(self._arrived.popleft())

    def take(self) -> list[Serving]:
        return [self._waiting.pop(name) for name in list(islice(self._waiting, PORTION))]

    def put_back(self, marks: list[Serving]) -> None:
        """A later word on the same exchange stands."""
        for served in marks:
            if _name(served) not in self._waiting:
                self._put(served)

    def __len__(self) -> int:
        return len(self._waiting)

    def _put(self, served: Serving) -> None:
        if len(self._waiting) < MOST:
            self._waiting[_name(served)] = served


def _name(served: Serving) -> tuple[str, str, str, bytes, int, str]:
    """Each attempt numbers its own exchanges: two that live at once use the same numbers."""
    exchange = served.exchange
    return (served.tenant, served.run, exchange.attempt, served.key, exchange.number, exchange.owner)
