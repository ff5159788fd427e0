"""What the stage stands on: where the processes of a staged test keep their record.

A test that uses the fixture `any_stage` is played once on each: the reference model in memory, and every real
store. Real ones live in a thread of their own, with time of their own: a call on stage is handed to them and
virtual time stands still until they have answered (bridge.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from proxy.core.intent import Call, Entry
from proxy.store import memory
from proxy.store.base import Store
from proxy.store.memory_world import World


class Ground(Protocol):
    """One record, and what may befall it and those who share it. `renews`: who was taken for dead can go on
    under another name."""

    renews: bool

    def enter(self) -> Store:
        """One more process's hand on the record."""

    def bury(self, store: Store) -> None:
        """The others take this process for dead, as they would after a long silence."""

    def renew(self, store: Store) -> None:
        """A buried one notices, and goes on under another name."""

    def calls(self, moves: int) -> Mapping[bytes, Call]:
        """All there are, in the order in which they were first claimed. Read anew only when the number of
        moves on stage is another than before."""

    def events(self, key: bytes) -> list[Entry]: ...

    def lose_blobs(self) -> None: ...

    def lose_cache(self) -> None: ...


class MemoryGround:
    """The reference model. It knows no renewal by itself: a new name is written over the old one."""

    renews = True

    def __init__(self) -> None:
        self._world = World()

    def enter(self) -> Store:
        return memory.MemoryStore(self._world)

    def bury(self, store: Store) -> None:
        self._world.living.discard(store.owner)

    def renew(self, store: Store) -> None:
        assert isinstance(store, memory.MemoryStore)
        store.owner = f"{store.owner}-renewed"
        self._world.living.add(store.owner)

    def calls(self, moves: int) -> Mapping[bytes, Call]:
        return self._world.calls

    def events(self, key: bytes) -> list[Entry]:
        return self._world.events.get(key, [])

    def lose_blobs(self) -> None:
        self._world.blobs.clear()

    def lose_cache(self) -> None:
        self._world.cache.clear()


_present: list[Callable[[], Ground]] = [MemoryGround]


def new_ground() -> Ground:
    """A record that is empty."""
    return _present[-1]()


@contextmanager
def standing_on(ground: Callable[[], Ground]) -> Iterator[None]:
    _present.append(ground)
    try:
        yield
    finally:
        _present.pop()
