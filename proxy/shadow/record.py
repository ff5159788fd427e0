"""The shadow's record: wholly apart from the real one, opened by the first call that is shadowed.

Nothing that is wrong with it concerns a live call: who cannot be judged for it is counted as unjudged, and a
while later it is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from proxy.clock import Clock
from proxy.collecting import collect_forever
from proxy.errors import StoreUnavailable
from proxy.observe import Observer
from proxy.recovery import sweep_forever, sweep_once
from proxy.store.base import Store
from proxy.wiring import Works

# A store that could not be opened is left alone for so long.
RETRY_AFTER = 5.0


class Record:
    def __init__(
        self,
        *,
        open_store: Callable[[], Awaitable[Store]],
        wire: Callable[[Store], Works],
        observer: Observer,
        clock: Clock,
        collect_every: float,
        retention: float,
    ) -> None:
        self._open_store = open_store
        self._wire = wire
        self._observer = observer
        self._clock = clock
        self._collect_every = collect_every
        self._retention = retention
        self._opening: asyncio.Task[Works] | None = None
        self._failed_at = 0.0
        self._chores: list[asyncio.Task[None]] = []

    @property
    def opened(self) -> Works | None:
        opening = self._opening
        return (
            None if opening is None or not opening.done() or self._has_failed(opening) else opening.result()
        )

    async def works(self) -> Works:
        """Raises whatever keeps it from being opened."""
        if self._opening is None or self._may_try_again(self._opening):
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    def _may_try_again(self, opening: asyncio.Task[Works]) -> bool:
        return self._has_failed(opening) and self._clock.monotonic() - self._failed_at > RETRY_AFTER

    def _has_failed(self, opening: asyncio.Task[Works]) -> bool:
        return opening.done() and (opening.cancelled() or opening.exception() is not None)

    async def _open(self) -> Works:
        try:
            store = await self._open_store()
            try:
                return await self._begin(store)
            except BaseException:
                await store.close()
                raise
        except Exception:
            self._failed_at = self._clock.monotonic()
            raise

    async def _begin(self, store: Store) -> Works:
        works, told = self._wire(store), set[str]()
        await sweep_once(store, works.ledger, self._observer, told)
        self._chores = [
            asyncio.create_task(sweep_forever(store, works.ledger, self._observer, self._clock, told)),
            asyncio.create_task(
                collect_forever(
                    store,
                    self._observer,
                    self._clock,
                    every=self._collect_every,
                    retention=self._retention,
                    after=works.books.changed_beside,
                )
            ),
        ]
        return works

    async def close(self) -> None:
        opening = self._opening
        if opening is None:
            return
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        if not opening.done():
            opening.cancel()  # it closes what it has opened by then
            await asyncio.wait({opening})
        if (works := self.opened) is not None:
            await works.flights.drain(0.0)
            with contextlib.suppress(StoreUnavailable):
                await works.store.close()
