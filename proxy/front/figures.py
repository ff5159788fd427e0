"""The page at /metrics: it is made for all who ask at the same time, and is never in the way of calls.

While it is written nothing else is done in this process, so that somebody who asks without end could keep all
calls waiting. Therefore one is made at a time, for everybody who came before it was begun, and calls have the
time between two of them. Nobody is shown a page that is older than the question.
"""

from __future__ import annotations

import asyncio

from proxy.clock import Clock
from proxy.errors import StoreUnavailable
from proxy.metrics import MetricsObserver
from proxy.siblings import Siblings
from proxy.store.base import Census, Store

# How long the store may take to tell of itself: Prometheus waits for its interval, and at most ten seconds.
PATIENCE = 2.0
# How much longer than it took to write a page there is none written.
PAUSE = 9


class FiguresPage:
    def __init__(
        self, *, store: Store, metrics: MetricsObserver, siblings: Siblings | None, clock: Clock
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._siblings = siblings
        self._clock = clock
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None  # not begun yet: who comes now is shown it
        self._not_before = 0.0
        self._asked: asyncio.Task[Census | None] | None = None

    async def __call__(self) -> bytes:
        if self._next is None:
            self._next = asyncio.create_task(self._make())
        return await asyncio.shield(self._next)  # others may wait for it

    async def _make(self) -> bytes:
        async with self._turn:
            await self._clock.sleep(max(0.0, self._not_before - self._clock.monotonic()))
            self._next = None
            census = await self._census()
            # Last, and nothing is counted from here on: what is told was written down.
            others = [] if self._siblings is None else await self._siblings.others()
            began = self._clock.monotonic()
            page = self._metrics.render(self._store.name, census, self._clock.now(), others)
            ended = self._clock.monotonic()
            self._not_before = ended + PAUSE * (ended - began)
            return page

    async def _census(self) -> Census | None:
        """None: it does not answer, or not in time. A store that still owes an answer is not asked again."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(self._ask())
            await asyncio.wait({self._asked}, timeout=PATIENCE)
        return self._asked.result() if self._asked.done() else None

    async def _ask(self) -> Census | None:
        try:
            return await self._store.census()
        except StoreUnavailable:
            return None
