"""Whose judgement waits for whose.

With semel in earnest a caller sees the end of an answer only when it is recorded, so whoever asks next finds
it there. In shadow nothing is held back: the next request may be here before the record. So a judgement waits
for those before it that have to do with it and whose caller could have seen the end when it arrived; requests
that overlapped overlap here too. Nobody waits for a later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable


class Turn:
    """One request. `lanes`: what others it has to do with, once it is named."""

    __slots__ = ("before", "lanes", "named", "settled")

    def __init__(self, before: tuple[Turn, ...]) -> None:
        self.before = before
        self.lanes: frozenset[Hashable] = frozenset()
        self.named = asyncio.Event()
        self.settled = asyncio.Event()


class Turns:
    def __init__(self) -> None:
        self._over: dict[Turn, None] = {}  # their callers have seen the end, the record has not

    def arrive(self) -> Turn:
        return Turn(tuple(self._over))

    def over(self, turn: Turn) -> None:
        """Its caller may see the end from now on."""
        if not turn.settled.is_set():
            self._over[turn] = None

    def name(self, turn: Turn, lanes: frozenset[Hashable]) -> None:
        turn.lanes = lanes
        turn.named.set()

    async def wait(self, turn: Turn) -> bool:
        """Whether there was anybody to wait for."""
        waited = False
        for other in turn.before:
            await other.named.wait()
            if not other.settled.is_set() and not other.lanes.isdisjoint(turn.lanes):
                waited = True
                await other.settled.wait()
        turn.before = ()  # or the last one would hold all that ever were
        return waited

    def settle(self, turn: Turn) -> None:
        """It is recorded, or never will be."""
        self._over.pop(turn, None)
        turn.before = ()
        turn.named.set()
        turn.settled.set()
