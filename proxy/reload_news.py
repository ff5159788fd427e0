"""What is told of a reload: whether it took, and how many calls the new policies give another name."""

from __future__ import annotations

import asyncio

from proxy.clock import Clock
from proxy.errors import StoreUnavailable
from proxy.observe import Observer
from proxy.reload import Kept, Reloaded
from proxy.store.base import Store


class ReloadNews:
    """Tells of reloads, and of the calls that a new policy gives another name."""

    def __init__(self, store: Store, observer: Observer, clock: Clock) -> None:
        self._store = store
        self._observer = observer
        self._clock = clock
        self._counting: set[asyncio.Task[None]] = set()

    def __call__(self, result: Reloaded | Kept) -> None:
        match result:
            case Reloaded(policies, renamed):
                self._observer.reloaded(good=True, detail=f"upstreams: {len(policies.upstreams)}")
                if renamed:
                    task = asyncio.get_running_loop().create_task(self._count(renamed))
                    self._counting.add(task)
                    task.add_done_callback(self._counting.discard)
            case Kept(mistakes):
                self._observer.reloaded(good=False, detail="; ".join(str(mistake) for mistake in mistakes))

    async def _count(self, renamed: tuple[tuple[str, str], ...]) -> None:
        """A renamed call that is made again is a new one: whoever edits a policy should know how many."""
        for upstream, rule in renamed:
            try:
                live = await self._store.live_calls(upstream, rule, self._clock.now())
            except StoreUnavailable as error:
                self._observer.noted("store-trouble", doing="counting renamed calls", error=error.detail)
                return
            self._observer.noted("calls-renamed", upstream=upstream, rule=rule, live_calls=live)

    async def stop(self) -> None:
        for task in self._counting:
            task.cancel()
        await asyncio.gather(*self._counting, return_exceptions=True)
