"""Who lives, where no kernel can say it: every process beats in the store, and the others watch.

Three rules. A watcher goes by its own clock alone: a beat that has not changed for `dead_after` of looking
without a break is a silence. Death is written down by compare and swap on that very beat: a beat that came
first wins, and whoever is written down never beats again. An owner that has not beaten for `dead_after` less
a margin does not act, so it has stopped before anybody may bury it; what it claimed and has not sent then is
sent by nobody but the one who takes it over.
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
    """How an owner stands in the store. `dead` is for ever."""

    epoch: str
    count: int
    dead: bool = False


class Watch:
    """What one watcher has seen of the others. Pure: it is told what was seen, and when."""

    def __init__(self, dead_after: float) -> None:
        self._dead_after = dead_after
        self._seen: dict[str, tuple[int, float]] = {}  # by epoch: its beat, and since when it is that one
        self._looked_at = float("-inf")

    def look(self, beats: Iterable[Beat], at: float) -> None:
        """All there are, as they stood at that moment or later."""
        unbroken = at - self._looked_at <= BREAK * self._dead_after
        before = self._seen if unbroken else {}
        self._seen = {}
        for beat in beats:
            count, since = before.get(beat.epoch, (beat.count, at))
            self._seen[beat.epoch] = (beat.count, since if count == beat.count else at)
        self._looked_at = at

    def silent(self, at: float) -> list[Beat]:
        """Those that may be buried, each with the beat at which it fell silent. What was not looked at until
        now is not known."""
        if at - self._looked_at > BREAK * self._dead_after:
            return []
        return [
            Beat(epoch, count)
            for epoch, (count, since) in self._seen.items()
            if self._looked_at - since >= self._dead_after
        ]


class Pulse:
    """Whether this process may act: its own last beat is fresh, and nobody has buried it."""

    def __init__(self, dead_after: float, clock: Callable[[], float] = now) -> None:
        self._fresh_for = (1 - MARGIN) * dead_after
        self._clock = clock
        self._until = float("-inf")
        self.dead = False

    def landed(self, begun: float) -> None:
        """A beat that was begun then is in the store: nobody can have seen it before."""
        self._until = max(self._until, begun + self._fresh_for)

    def fresh(self) -> bool:
        return not self.dead and self._clock() < self._until


class Beats(Protocol):
    """What a store does for it. Each raises StoreUnavailable."""

    async def enroll(self, epoch: str) -> None:
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
    ) -> None:
        self.epoch = new_epoch()
        self.pulse = Pulse(dead_after, clock)
        self._beats = beats
        self._watch = Watch(dead_after)
        self._heartbeat = heartbeat
        self._clock = clock
        self._each = each  # after every beat that landed
        self._dead: set[str] = set()
        self._known: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        begun = self._clock()
        await self._beats.enroll(self.epoch)
        self.pulse.landed(begun)
        self._task = asyncio.create_task(self._beat_for_ever())

    async def stop(self) -> None:
        """Says good-bye if the store can be reached; else the others find out by themselves."""
        self.pulse.dead = True
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
            with contextlib.suppress(StoreUnavailable):
                await self.beat()
            # On time, not a round trip later each time; after a failure sooner.
            late = self._clock() - begun
            pause = max(self._heartbeat / 10, self._heartbeat - late) if self.pulse.fresh() else min(
                0.5, self._heartbeat
            )  # fmt: skip

    async def beat(self) -> None:
        begun = self._clock()
        beats = await self._beats.beat(self.epoch)
        own = next((beat for beat in beats if beat.epoch == self.epoch), None)
        if own is None or own.dead:
            self.pulse.dead = True
        elif not self.pulse.dead:
            self.pulse.landed(begun)
        self._learn(beats)
        self._each()

    async def dead_among(self, epochs: Iterable[str]) -> list[str]:
        """Those of them that are dead: written down, gone, or silent for so long that they are now."""
        asked = list(epochs)
        if not asked:
            return []
        self._learn(await self._beats.all())
        for beat in self._watch.silent(self._clock()):
            if beat.epoch in asked and beat.epoch != self.epoch and await self._beats.bury(beat):
                self._dead.add(beat.epoch)
        return [epoch for epoch in asked if epoch not in self._known or epoch in self._dead]

    def _learn(self, beats: list[Beat]) -> None:
        self._known = {beat.epoch for beat in beats}
        self._dead = {beat.epoch for beat in beats if beat.dead}
        self._watch.look((beat for beat in beats if not beat.dead), self._clock())
