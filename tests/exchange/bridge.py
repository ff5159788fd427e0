"""Real stores beneath a stage of virtual time: they live in a thread with an event loop of its own.

Every call is handed over and waited for, so on stage it takes no time at all, and nobody else acts meanwhile.
Nothing happens beneath by itself: hearts beat too rarely to matter, and lazy marks are written at once, as a
store may. Who lives and who is dead is decided by the stage, in the store's own way.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast

from proxy.core.intent import Call, Entry
from proxy.core.run_record import Serving
from proxy.store.base import BlobRef, Query, Store
from proxy.store.opening import Place, open_store
from tests import ambient, mishaps

T = TypeVar("T")
NEVER = 1e6  # seconds: longer than any test
ANSWERED_WITHIN = 60.0


class Beneath:
    """The thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="beneath")
        self._thread.start()

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(ANSWERED_WITHIN)

    def end(self) -> None:
        self.ask(self.loop.shutdown_asyncgens())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(ANSWERED_WITHIN)
        self.loop.close()


class Bridge:
    """A store in the thread, as one on stage."""

    def __init__(self, beneath: Beneath, store: Store) -> None:
        self.beneath, self.store = beneath, store

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.store, name)
        if inspect.iscoroutinefunction(member):

            async def asked(*args: object, **how: object) -> object:
                return self.beneath.ask(member(*args, **how))

            return asked
        return partial(self._told, member) if callable(member) else member

    def _told(self, member: Callable[..., T], *args: object) -> T:
        async def tell() -> T:
            return member(*args)

        return self.beneath.ask(tell())

    def mark_replayed(self, key: bytes, at: float) -> None:
        self._told(self.store.mark_replayed, key, at)
        self.beneath.ask(self.store.replays(key))  # whoever asks for them has them written first

    def mark_served(self, served: Serving) -> None:
        self._told(self.store.mark_served, served)
        self.beneath.ask(self.store.replays(served.key))

    async def read_blob(self, ref: BlobRef) -> AsyncIterator[bytes]:
        parts = self.store.read_blob(ref)

        async def next_part() -> bytes | None:
            return await anext(parts, None)

        while (part := self.beneath.ask(next_part())) is not None:
            yield part


class RealGround:
    """A record in a real store."""

    def __init__(self, beneath: Beneath, place: Place) -> None:
        self._beneath, self._place = beneath, place
        self.renews = place.store != ambient.EMBEDDED
        self._stores: list[Store] = []
        self._seen: tuple[int, Mapping[bytes, Call]] = (-1, {})

    def enter(self) -> Store:
        store = self._beneath.ask(open_store(self._place))
        self._stores.append(store)
        return cast("Store", Bridge(self._beneath, store))

    def leave(self) -> None:
        for store in self._stores:
            self._beneath.ask(store.close())

    def bury(self, store: Store) -> None:
        under = self._under(store)
        self._beneath.ask(mishaps.bury(under, under.owner, self._place.state))

    def renew(self, store: Store) -> None:
        """Its next beat tells it."""
        self._beneath.ask(self._under(store).ping())

    def calls(self, moves: int) -> Mapping[bytes, Call]:
        if self._seen[0] != moves:
            page = self._beneath.ask(self._stores[0].find(Query(limit=1000)))
            assert page.next is None
            self._seen = moves, {call.key: call for call in reversed(page.calls)}
        return self._seen[1]

    def events(self, key: bytes) -> list[Entry]:
        return self._beneath.ask(self._stores[0].history(key))

    def lose_blobs(self) -> None:
        mishaps.lose_blobs(self._place.store, self._place.state)

    def lose_cache(self) -> None:
        mishaps.lose_cache(self._place.store, self._place.state)

    def _under(self, store: Store) -> Store:
        return cast("Bridge", store).store


@contextmanager
def grounds(places: Callable[[], Place]) -> Iterator[Callable[[], RealGround]]:
    """Each of them on a place of its own; left when the test is over."""
    beneath, made = Beneath(), list[RealGround]()

    def new() -> RealGround:
        made.append(RealGround(beneath, places()))
        return made[-1]

    try:
        yield new
    finally:
        try:
            for ground in made:
                ground.leave()
        finally:
            beneath.end()
