"""What the processes share that keep their record in memory."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from proxy.core.intent import Call, Entry, State
from proxy.store.base import Census
from proxy.store.memory_runs import RunsWorld
from proxy.store.memory_spending import Spending
from proxy.store.unnamed import UNTOUCHED
from proxy.store.watchers import Watchers


@dataclass(slots=True)
class World:
    """`clock` ages what lies in the cache."""

    clock: Callable[[], float] = time.time
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    calls: dict[bytes, Call] = field(default_factory=dict)  # in the order in which they were first seen
    numbers: dict[bytes, int] = field(default_factory=dict)  # never given twice, and growing
    events: dict[bytes, list[Entry]] = field(default_factory=dict)
    replays: dict[bytes, int] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    touched: dict[str, float] = field(default_factory=dict)  # by digest: when it was last put
    cache: dict[bytes, tuple[bytes, float]] = field(default_factory=dict)
    living: set[str] = field(default_factory=set)
    watchers: Watchers = field(default_factory=Watchers)
    runs: RunsWorld = field(default_factory=RunsWorld)
    spending: Spending = field(default_factory=Spending)
    settled_stamp: int = 0
    latest: float = 0.0  # the latest time that any process has told
    epochs: count[int] = field(default_factory=lambda: count(1))
    sights: count[int] = field(default_factory=lambda: count(1))

    def unnamed_blobs(self, calls: list[Call]) -> list[str]:
        """Those that none of these calls names and nobody has touched for so long."""
        named = {call.request_blob for call in calls} | {call.answer.blob for call in calls if call.answer}
        old = self.clock() - UNTOUCHED
        return [digest for digest, at in self.touched.items() if at < old and digest not in named]

    def census(self) -> Census:
        calls = self.calls.values()
        waiting = [call.created_at for call in calls if call.state is State.AWAITING_APPROVAL]
        doubts = [call.doubt.since for call in calls if call.state is State.IN_DOUBT and call.doubt]
        parts = {
            "rows": sum(map(size_of, calls)),
            "blobs": sum(map(len, self.blobs.values())),
            "cache": sum(len(value) for value, _ in self.cache.values()),
        }
        return Census(
            by_state={state: sum(call.state is state for call in calls) for state in State},
            oldest_doubt_at=min(doubts, default=None),
            oldest_question_at=min(waiting, default=None),
            bytes_used=sum(parts.values()),
            parts=parts,
            owners=len(self.living),
        )


def size_of(call: Call) -> int:
    answer = call.answer
    return len(call.request) + (len(answer.head) + len(answer.body) if answer else 0)
