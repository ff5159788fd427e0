"""The store as a process sees it: behind a link, slow, sometimes gone; every write held against the table.

What is checked of each write that lands: it follows the row that it replaces, its event leads from that row's
state to its own, only a claim raises the fence, and nothing open is ever removed or begun anew.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

from proxy.core.budget import Charge
from proxy.core.decide import FORGOTTEN
from proxy.core.intent import OPEN_STATES, TRANSITIONS, Call, Entry, Event, State
from proxy.core.run_record import Serving
from proxy.errors import StoreUnavailable
from proxy.store.base import Orphans, Swap
from proxy.store.memory import MemoryStore
from tests.exchange.staged_store import StagedStore, World
from tests.proof.simulation.fate import Fate
from tests.proof.simulation.links import HEARTBEAT, WAYS, Link, Society

_AWAITED: dict[str, bool] = {}  # of what a store has: whether it takes its time
EVENTS = frozenset(map(str, Event))
CLAIMS = frozenset({Event.CLAIM, Event.RESEND})
# Marks ride on the next commit, or on one of their own within a second.
MARKED_WITHIN = (0.05, 1.0)


class Record(StagedStore):
    def __init__(self, world: World, society: Society, link: Link, fate: Fate, name: str) -> None:
        super().__init__(world)
        self._society, self.link, self._fate, self._name = society, link, fate, name
        self._marks: list[Serving] = []
        self._names = 0
        self._begin()

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._beneath, name)
        if name not in _AWAITED:
            _AWAITED[name] = inspect.iscoroutinefunction(member)
        if not _AWAITED[name]:
            return member

        async def asked(*args: object, **how: object) -> object:
            await self._there()
            result = await member(*args, **how)
            await self.link.cross()
            return result

        return asked

    async def _there(self) -> None:
        await self.link.cross()
        if self.killed or self.link.down:
            raise StoreUnavailable("the store is not available")

    # ---- writing ----

    async def swap(
        self,
        call: Call,
        entry: Entry,
        *,
        expected: int,
        served: Serving | None = None,
        charge: Charge | None = None,
    ) -> Swap:
        fails = self.link.failures > 0
        self.link.failures -= fails
        if fails and self._fate.happens(0.5):
            await self.link.cross()
            raise StoreUnavailable("the store is not available: the write was lost")
        await self._there()
        landing: Awaitable[Swap] = self._land(call, entry, expected, served, charge)
        if self._fate.happens(0.3):  # it has left the process, and lands whatever becomes of that
            landing = asyncio.shield(asyncio.ensure_future(landing))
        swapped = await landing
        await self.link.cross()
        if fails or self.killed:
            raise StoreUnavailable("the store is not available: the reply was lost")
        return swapped

    async def _land(
        self, call: Call, entry: Entry, expected: int, served: Serving | None, charge: Charge | None
    ) -> Swap:
        await asyncio.sleep(self._fate.one_of(WAYS) or 0.0)
        present = self.staged_in.calls.get(call.key)
        swapped = await self._beneath.swap(call, entry, expected=expected, served=served, charge=charge)
        if not swapped.won:
            return swapped
        self._check_law(present, call, entry)
        self._fate.permits[call.key] += entry.event == Event.APPROVE
        which = f"{call.id[:6]} {call.run}#{call.occurrence}"
        self._fate.tell(f"{self._name} wrote {which} {entry.event}: {call.state}")
        self.staged_in.moves += 1
        self._write_marks()
        self.staged_in.watchers.row_changed(call.key, call.version)
        return swapped

    def _check_law(self, present: Call | None, call: Call, entry: Entry) -> None:
        state = None if present is None else present.state
        before, fence = entry.before, 0 if present is None else present.fence
        if before is not state and (before is not None or state in OPEN_STATES):
            self._fate.broken(f"{entry.event} says that it changes {before}, and the row was {state}")
        if entry.event in EVENTS:
            if TRANSITIONS.get((before, Event(entry.event))) is not entry.after:
                self._fate.broken(f"{entry.event} led from {before} to {entry.after}")
        elif before is not entry.after and entry.event != FORGOTTEN:
            self._fate.broken(f"the note {entry.event} led from {before} to {entry.after}")
        raised = entry.event in CLAIMS
        stays = call.state is (before if entry.event == FORGOTTEN else entry.after)
        if not stays or (call.fence != fence + raised and present is not None):
            self._fate.broken(f"{entry.event} wrote {call.state} with fence {call.fence} over {fence}")

    # ---- marks ----

    def mark_served(self, served: Serving) -> None:
        if self.killed:
            return
        self._marks.append(served)
        if len(self._marks) == 1:
            asyncio.get_running_loop().call_later(self._fate.one_of(MARKED_WITHIN), self._write_marks)

    def _write_marks(self) -> None:
        if not self.killed and self.link.can_beat:
            for served in self._marks:
                self._beneath.mark_served(served)
            self._marks.clear()
        elif self._marks and not self.killed:
            asyncio.get_running_loop().call_later(1.0, self._write_marks)

    # ---- owners ----

    def _begin(self) -> None:
        """Under a name that nobody has had."""
        self._names += 1
        assert isinstance(self._beneath, MemoryStore)
        self._beneath.owner = f"{self._name}.{self._names}"
        self._society.links[self.owner] = self.link

    def owns(self) -> bool:
        return not self.killed and self._society.may_act(self.owner)

    def kill(self) -> None:
        self.killed = self.link.dead = True
        self.link.falls_silent()

    def comes_back(self) -> None:
        """From a pause, or the store is there again: the next beat tells the others, or this one that it was
        buried."""
        wait = self._fate.one_of((0.0, 0.1, HEARTBEAT))
        asyncio.get_running_loop().call_later(wait, self._beat_again)

    def _beat_again(self) -> None:
        if not self.link.can_beat:
            return
        if self.owner in self._society.buried:
            self._begin()
            self._fate.tell(f"{self._name} was taken for dead, and goes on as {self.owner}")
        self.link.silent_since = None

    async def owner_is_dead(self, owner: str) -> bool:
        await self._there()
        self._bury()
        return owner in self._society.buried

    async def orphans(self) -> Orphans:
        await self._there()
        self._bury()
        calls, buried = self.staged_in.calls.values(), self._society.buried
        found = [call for call in calls if call.state is State.PENDING and call.owner in buried]
        await self.link.cross()
        return Orphans(calls=found)

    def _bury(self) -> None:
        gone = self._society.bury_the_silent()
        for owner in gone:
            self._fate.tell(f"{self._name} buries {owner}")

    # ---- reading, where the stage has its own way ----

    async def changed(self, key: bytes, version: int, timeout: float) -> bool:
        await self._there()
        return await super().changed(key, version, timeout)

    async def clock_mark(self, now: float) -> float:
        await self._there()
        return await super().clock_mark(now)
