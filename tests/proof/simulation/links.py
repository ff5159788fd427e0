"""How a process stands to the world: near or far, cut off, paused, dead; and who is taken for dead.

A pause or a death falls between two messages: what a process does without waiting, nobody can interrupt from
outside either. Hearts are modelled by when they fell silent. As with real ones, an owner stops acting before
anybody may bury it, and whoever was buried goes on under another name.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.proof.simulation.fate import Fate

# Seconds that a message is under way. Mostly nothing, not even a moment for others to go first; now and then
# as long as a stall.
WAYS = (None, None, None, 0.0, 0.0, 0.0, 0.001, 0.001, 0.01, 0.2, 2.0)
HEARTBEAT, DEAD_AFTER = 1.0, 5.0
# Of DEAD_AFTER: so long after its last beat an owner acts (proxy/store/heartbeats.py).
FRESH = 0.8


class Link:
    """`steady`: nothing ever happens to it but time. `down`: the store cannot be reached."""

    def __init__(self, fate: Fate, *, steady: bool = False) -> None:
        self.fate = fate
        self.steady = steady
        self.dead = self.down = False
        self.failures = 0  # so many of the next writes fail, each before or after it has landed
        self.silent_since: float | None = None
        self._paused: asyncio.Event | None = None

    async def cross(self) -> None:
        """A message's way, in one direction."""
        way = self.fate.one_of(WAYS)
        if way is not None:
            await asyncio.sleep(way)
        if self._paused is not None:
            await self.awake()

    async def awake(self) -> None:
        while self._paused is not None:
            await self._paused.wait()

    @property
    def paused(self) -> bool:
        return self._paused is not None

    def pause(self) -> None:
        if self._paused is None:
            self._paused = asyncio.Event()
            self.falls_silent()

    def wake(self) -> None:
        if self._paused is not None:
            self._paused.set()
            self._paused = None

    def falls_silent(self) -> None:
        if self.silent_since is None:
            self.silent_since = asyncio.get_running_loop().time()

    @property
    def silence(self) -> float:
        if self.silent_since is None:
            return 0.0
        return asyncio.get_running_loop().time() - self.silent_since

    @property
    def can_beat(self) -> bool:
        return not (self.dead or self.down or self.paused)


@dataclass
class Society:
    """Who owns what, as all processes see it. `locks`: the kernel tells of a death at once and of nothing
    else, as with the embedded store; otherwise hearts beat."""

    locks: bool
    links: dict[str, Link] = field(default_factory=dict)  # by owner
    buried: set[str] = field(default_factory=set)

    def may_act(self, owner: str) -> bool:
        link = self.links[owner]
        if link.dead or owner in self.buried:
            return False
        return self.locks or link.silence < FRESH * DEAD_AFTER

    def bury_the_silent(self) -> list[str]:
        """Those who are taken for dead from now on."""
        gone = [owner for owner, link in self.links.items() if owner not in self.buried and self._gone(link)]
        self.buried.update(gone)
        return gone

    def _gone(self, link: Link) -> bool:
        return link.dead if self.locks else link.silence >= DEAD_AFTER
