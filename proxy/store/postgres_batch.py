"""Group commit over the network: what waits while a batch is under way goes with the next one.

One batch at a time, one round trip and one commit for each. The first job of a quiet moment goes at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from proxy.errors import StoreUnavailable
from proxy.store.base import Batched, uncounted

J = TypeVar("J")

# Per batch; a statement has at most 65,535 values, and others wait for it meanwhile.
MOST_JOBS = 256
MOST_BYTES = 4 * 1024 * 1024


class Batches(Generic[J]):
    """`perform` gets jobs, of which no two have the same `key` if one is given, and gives for each what
    becomes of it: a result, or an exception for that job alone. What it raises is everybody's."""

    def __init__(
        self,
        perform: Callable[[Sequence[J]], Awaitable[Sequence[Any]]],
        *,
        key: Callable[[J], object] | None = None,
        size: Callable[[J], int] = lambda _: 0,
        most: int = MOST_JOBS,
        batched: Batched = uncounted,
    ) -> None:
        self._perform = perform
        self._key = key
        self._size = size
        self._most = most
        self._batched = batched
        self._waiting: deque[tuple[J, asyncio.Future[Any]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def submit(self, job: J) -> asyncio.Future[Any]:
        """Done to its end even if nobody waits for it any more."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return future

    async def close(self) -> None:
        """What waits is done first."""
        self._closed = True
        while self._task is not None:
            await asyncio.wait({self._task})

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = self._take()
                try:
                    outcomes = await self._perform([job for job, _ in batch])
                    self._batched(len(batch))
                except Exception as error:  # whatever it was, somebody waits for an answer
                    failure = error if isinstance(error, StoreUnavailable) else _defect(error)
                    outcomes = [failure] * len(batch)
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    if future.done():
                        continue  # its waiter has left
                    if isinstance(outcome, Exception):
                        future.set_exception(outcome)
                    else:
                        future.set_result(outcome)
        finally:
            self._task = None

    def _take(self) -> list[tuple[J, asyncio.Future[Any]]]:
        """In the order in which they came; a second one for the same key waits for the next batch, and so
        does what comes after it for that key."""
        taken: list[tuple[J, asyncio.Future[Any]]] = []
        left: list[tuple[J, asyncio.Future[Any]]] = []
        keys: set[object] = set()
        size = 0
        while self._waiting and len(taken) < self._most and size < MOST_BYTES:
            job, future = self._waiting.popleft()
            if self._key is not None:
                key = self._key(job)
                if key in keys:
                    left.append((job, future))
                    continue
                keys.add(key)
            size += self._size(job)
            taken.append((job, future))
        self._waiting.extendleft(reversed(left))
        return taken


def _defect(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"the store is not available: {type(error).__name__}: {error}")
