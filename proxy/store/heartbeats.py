"""Who lives, where no kernel can say it: every process beats in the store, and the others watch.

Three rules. A watcher goes by its own clock alone: a beat that has not changed for `dead_after` of looking
without a break is a silence; where the two have been given different ones, for the longer. Death is written
down by compare and swap on that very beat: a beat that came first wins, and whoever is written down never
beats again under that name. An owner that has not beaten for `dead_after` less a margin does not act, so it
has stopped before anybody may bury it; buried, it begins anew under another name, and what it had claimed
under the old one is no longer its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from proxy.errors import StoreUnavailable

# Of `dead_after`: clocks that run apart, and the way from the last look at the clock to the first byte.
MARGIN = 0.2
# Of `dead_after`: after a longer break in looking (a store that was away, a watcher that slept) nobody is
# blamed for it. More than half, because `dead_after` may be just two beats.
BREAK = 0.75


def now() -> float:
    """Seconds that go on while the machine sleeps, where the system has such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def new_epoch() -> str:
    return f"{time.time_ns()}-{os.getpid()}-{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class Beat:
    """How an owner stands in the store. `dead` is for ever. `patience` is its own `dead_after`: until then it
    may act, so nobody buries it sooner."""

    epoch: str
    count: int
    dead: bool = False
    patience: float = 0.0


class Watch:
    """What one watcher has seen of the others. Pure: it is told what was seen, and when."""

    def __init__(self, dead_after: float) -> None:
        self._dead_after = dead_after
        self._seen: dict[str, tuple[Beat, float]] = {}  # by epoch: its beat, and since when it is that one
        self._looked_at = float("-inf")

    def look(self, beats: Iterable[Beat], at: float) -> None:
        """All there are, as they stood at that moment or later."""
        unbroken = at - self._looked_at <= BREAK * self._dead_after
        before = self._seen if unbroken else {}
        self._seen = {}
        for beat in beats:
            seen, since = before.get(beat.epoch, (beat, at))
            self._seen[beat.epoch] = (beat, since if seen.count == beat.count else at)
        self._looked_at = at

    def silent(self, at: float) -> list[Beat]:
        """Those that may be buried, each with the beat at which it fell silent. What was not looked at until
        now is not known."""
        if at - self._looked_at > BREAK * self._dead_after:
            return []
        return [
            beat
            for beat, since in self._seen.values()
            if self._looked_at - since >= max(self._dead_after, beat.patience)
        ]

    def living(self, at: float) -> int:
        """As far as is known; the silent are not counted, buried or not."""
        return len(self._seen) - len(self.silent(at))


class Pulse:
    """Whether this process may act: its own last beat is fresh."""

    def __init__(self, dead_after: float, clock: Callable[[], float] = now) -> None:
        self._fresh_for = (1 - MARGIN) * dead_after
        self._clock = clock
        self._until = float("-inf")

    def landed(self, begun: float) -> None:
        """A beat that was begun then is in the store: nobody can have seen it before."""
        self._until = max(self._until, begun + self._fresh_for)

    def fresh(self) -> bool:
        return self._clock() < self._until

    def lost(self) -> None:
        self._until = float("-inf")


class Beats(Protocol):
    """What a store does for it. Each raises StoreUnavailable."""

    async def enroll(self, epoch: str, patience: float) -> None:
        """A first beat, durable."""

    async def beat(self, epoch: str) -> list[Beat]:
        """One more beat of this owner, unless it is dead or gone; then all owners as they stand. Its own is
        missing, or dead, if it was not counted."""

    async def all(self) -> list[Beat]: ...

    async def bury(self, beat: Beat) -> bool:
        """Dead for ever if that is still its beat. True also if it was dead already."""

    async def leave(self, epoch: str) -> None:
        """Gone: dead at once."""


class Heart:
    """Beats, watches, and answers who is dead."""

    def __init__(
        self,
        beats: Beats,
        *,
        heartbeat: float,
        dead_after: float,
        clock: Callable[[], float] = now,
        each: Callable[[], None] = lambda: None,
        renewed: Callable[[str, str], None] = lambda buried, epoch: None,
    ) -> None:
        self.epoch = new_epoch()
        self.pulse = Pulse(dead_after, clock)
        self._beats = beats
        self._watch = Watch(dead_after)
        self._heartbeat, self._dead_after = heartbeat, dead_after
        self._clock = clock
        self._each = each  # after every beat that landed
        self._renewed = renewed
        self._turn, self._looking = asyncio.Lock(), asyncio.Lock()
        self._looks = self._learned = 0  # looks are numbered as they begin; the last that was learned from
        self._stopped = False
        self._dead: set[str] = set()
        self._known: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        begun = self._clock()
        await self._beats.enroll(self.epoch, self._dead_after)
        self.pulse.landed(begun)
        self._task = asyncio.create_task(self._beat_for_ever())

    async def stop(self) -> None:
        """Says good-bye if the store can be reached; else the others find out by themselves."""
        self._stopped = True
        self.pulse.lost()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
            with contextlib.suppress(StoreUnavailable):
                await self._beats.leave(self.epoch)

    async def _beat_for_ever(self) -> None:
        pause = self._heartbeat
        while True:
            await asyncio.sleep(pause)
            begun = self._clock()
            with contextlib.suppress(Exception):  # whatever it was: without a beat this process does not act
                await self.beat()
            # On time, not a round trip later each time; after a failure sooner.
            late = self._clock() - begun
            pause = max(self._heartbeat / 10, self._heartbeat - late) if self.pulse.fresh() else min(
                0.5, self._heartbeat
            )  # fmt: skip

    async def beat(self) -> None:
        async with self._turn:
            await self._beat()

    async def _beat(self) -> None:
        begun, number = self._clock(), self._begin_look()
        beats = await self._beats.beat(self.epoch)
        own = next((beat for beat in beats if beat.epoch == self.epoch), None)
        self._learn(beats, number)
        if self._stopped:
            return
        if own is None or own.dead:
            await self._begin_anew()
        else:
            self.pulse.landed(begun)
        self._each()

    async def _begin_anew(self) -> None:
        """Others have taken this process for dead, and what it had claimed is theirs to judge. Under another
        name it may claim again; nothing that has the old one is sent."""
        self.pulse.lost()
        epoch, begun = new_epoch(), self._clock()
        await self._beats.enroll(epoch, self._dead_after)
        buried, self.epoch = self.epoch, epoch
        self.pulse.landed(begun)
        self._renewed(buried, epoch)

    async def living(self) -> int:
        """How many are seen to beat, this one with them."""
        await self._look()
        return self._watch.living(self._clock())

    async def dead_among(self, epochs: Iterable[str]) -> list[str]:
        """Those of them that are dead: written down, gone, or silent for so long that they are now."""
        asked = list(epochs)
        if not asked:
            return []
        await self._look()
        for beat in self._watch.silent(self._clock()):
            if beat.epoch in asked and beat.epoch != self.epoch and await self._beats.bury(beat):
                self._dead.add(beat.epoch)
        return [epoch for epoch in asked if epoch not in self._known or epoch in self._dead]

    async def _look(self) -> None:
        """Many ask at once, and a look is a round trip: they share one. But only one that began after they
        asked: an owner is enrolled before anybody can meet its name, and must be seen."""
        before = self._looks
        async with self._looking:
            if self._learned <= before:  # no look that began after we asked has ended
                number = self._begin_look()
                self._learn(await self._beats.all(), number)

    def _begin_look(self) -> int:
        self._looks += 1
        return self._looks

    def _learn(self, beats: list[Beat], number: int) -> None:
        if number < self._learned:
            return  # it was overtaken
        self._learned = number
        self._known = {beat.epoch for beat in beats}
        self._dead = {beat.epoch for beat in beats if beat.dead}
        self._watch.look((beat for beat in beats if not beat.dead), self._clock())
