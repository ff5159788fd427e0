"""A store on stage: any store, which a test may take away, slow down, or declare dead; and its world.

The wrapper fails and waits, whatever is beneath it. Of the store beneath, only the record counts: waiting for
a change, the latest time and the age of what is cached go by the stage's time, so they are done here.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from proxy.core.budget import Charge
from proxy.core.intent import Call, Entry
from proxy.core.run_record import Serving
from proxy.errors import StoreUnavailable
from proxy.store.base import BlobRef, Collected, Store, Swap
from proxy.store.watchers import Watchers
from tests.exchange.ground import new_ground

if TYPE_CHECKING:  # it has all that a store has, without a line for each
    from proxy.store.memory import MemoryStore as Surface
else:
    from proxy.store.telling import TellsByTask as Surface

# What changes nothing that a test looks at.
_READS = frozenset({"get", "get_many", "history", "replays", "get_run", "run_changes", "find"})


class World:
    """What the processes of a staged test share."""

    def __init__(self) -> None:
        self.ground = new_ground()
        self.clock: Callable[[], float] = time.time
        self.watchers = Watchers()
        self.cached_until: dict[bytes, float] = {}
        self.buried: set[str] = set()
        self.moves = 0
        self.latest = 0.0

    @property
    def calls(self) -> Mapping[bytes, Call]:
        """In the order in which they were first claimed."""
        return self.ground.calls(self.moves)


class StagedStore(Surface):
    """`unavailable` makes every call raise; `fail_after_swaps` lets so many swaps land and then raise all the
    same, as when the reply is lost (`down_with_lost_reply`: and it is away from then on); `before_swap` is
    told of a swap before it lands, and may fail it or let others go first; `kill` is the death of this
    process; `declare_dead` buries it while it lives on, and `renew` lets it go on under another name."""

    def __init__(self, world: World) -> None:
        self._beneath: Store = world.ground.enter()
        self.staged_in = world
        self.unavailable = False
        self.fail_after_swaps = 0
        self.down_with_lost_reply = False
        self.before_swap: Callable[[Call], Awaitable[None]] | None = None
        self.killed = False

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._beneath, name)
        if not inspect.iscoroutinefunction(member):
            return member

        async def asked(*args: object, **how: object) -> object:
            self._check()
            self.staged_in.moves += name not in _READS
            return await member(*args, **how)

        return asked

    def _check(self) -> None:
        if self.killed:
            raise StoreUnavailable("the store is closed")
        if self.unavailable:
            raise StoreUnavailable("the store is not available: a test took it away")

    def settled_stamp(self) -> int | None:
        return None if self.killed or self.unavailable else self._beneath.settled_stamp()

    def runs_stamp(self) -> int | None:
        return None if self.killed or self.unavailable else self._beneath.runs_stamp()

    # ---- owners ----

    def owns(self) -> bool:
        return not self.killed and self.owner not in self.staged_in.buried and self._beneath.owns()

    def declare_dead(self) -> None:
        if self.owner not in self.staged_in.buried:
            self.staged_in.ground.bury(self._beneath)
            self.staged_in.buried.add(self.owner)

    def renew(self) -> None:
        self.staged_in.ground.renew(self._beneath)

    def kill(self) -> None:
        self.killed = True
        self.declare_dead()

    async def close(self) -> None:
        self.kill()
        self.staged_in.watchers.wake_all()

    # ---- swaps, and who waits for them ----

    async def swap(
        self,
        call: Call,
        entry: Entry,
        *,
        expected: int,
        served: Serving | None = None,
        charge: Charge | None = None,
    ) -> Swap:
        if self.before_swap is not None:
            await self.before_swap(call)
        await asyncio.sleep(0)  # as in a real store, others run meanwhile
        self._check()
        swapped = await self._beneath.swap(call, entry, expected=expected, served=served, charge=charge)
        self.staged_in.moves += 1
        if swapped.won:
            self.staged_in.watchers.row_changed(call.key, call.version)
            if self.fail_after_swaps:
                self.fail_after_swaps -= 1
                self.unavailable = self.unavailable or self.down_with_lost_reply
                raise StoreUnavailable("the store is not available: the reply was lost")
        return swapped

    async def collect(
        self, now: float, *, limit: int = 500, dry_run: bool = False, runs_before: float = 0.0
    ) -> Collected:
        self._check()
        self.staged_in.moves += 1
        collected = await self._beneath.collect(now, limit=limit, dry_run=dry_run, runs_before=runs_before)
        self.staged_in.watchers.wake_all()
        return collected

    async def clock_mark(self, now: float) -> float:
        """Of the stage: hearts beneath beat in real time."""
        self._check()
        self.staged_in.latest = max(self.staged_in.latest, now)
        return self.staged_in.latest

    async def changed(self, key: bytes, version: int, timeout: float) -> bool:
        self._check()
        present = await self._beneath.get(key)
        if (present.version if present else 0) != version:
            return True
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.staged_in.watchers.add(key, version, woken)
        try:
            async with asyncio.timeout(timeout):
                await woken
        except TimeoutError:
            return False
        finally:
            self.staged_in.watchers.remove(key, version, woken)
        self._check()
        return True

    # ---- what may be large, and what may be lost ----

    async def read_blob(self, ref: BlobRef) -> AsyncIterator[bytes]:
        self._check()
        async for part in self._beneath.read_blob(ref):
            yield part

    async def cache_put(self, key: bytes, value: bytes, ttl: float) -> None:
        self._check()
        self.staged_in.cached_until[key] = self.staged_in.clock() + ttl
        await self._beneath.cache_put(key, value, ttl)

    async def cache_get(self, key: bytes) -> bytes | None:
        self._check()
        fresh = self.staged_in.clock() < self.staged_in.cached_until.get(key, 0.0)
        return await self._beneath.cache_get(key) if fresh else None
