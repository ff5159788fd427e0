"""What befalls a history: callers that leave, agents that die, processes that are killed, stand still, lose
their store or their time; and the worst of it in the order in which it hurts most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.proof.simulation.asking import RETENTION, TOTAL, Kind
from tests.proof.simulation.links import DEAD_AFTER
from tests.proof.simulation.people import People
from tests.proof.simulation.process import Semel
from tests.proof.simulation.scene import LOOSE, PROXIES

# A clock may be behind by any amount for a while; ahead, by less than semel's margins (docs/guarantees.md).
SET_WRONG = (-7200.0, -600.0, -30.0, -5.0, 5.0, 30.0, 60.0)


class Faults(People):
    async def ask(self) -> None:
        self._asks(self._any(), self.fate.one_of(LOOSE))

    async def leave(self) -> None:
        if self.others:
            leaving = self.fate.one_of(self.others[-3:])
            self.fate.reached["a caller leaves in the middle"] += not leaving.done()
            leaving.cancel()

    async def crash(self) -> None:
        """An agent dies and is started again."""
        number = self.fate.between(0, len(self.agents) - 1)
        task = self.tasks[number]
        self.fate.reached["an agent dies in the middle"] += not task.done()
        task.cancel()
        await asyncio.wait({task})
        self.over.append(task)
        self._start(number)

    async def beside(self) -> None:
        """An agent is started again while it still lives."""
        number = self.fate.between(0, len(self.agents) - 1)
        self.programs[number].at_once |= not self.tasks[number].done()
        self.others.append(self.tasks[number])
        self._start(number)

    async def kill(self) -> None:
        await self._replace(Semel.die)

    async def drain(self) -> None:
        await self._replace(Semel.end)

    async def _replace(self, how: Callable[[Semel], Coroutine[Any, Any, None]]) -> None:
        number = self.fate.between(0, PROXIES - 1)
        ending = self.semels[number]
        ending.link.wake()
        self.semels[number] = self._new()
        self.ending.append(asyncio.ensure_future(how(ending)))
        await asyncio.sleep(0)

    async def pause(self) -> None:
        self._mortal().link.pause()

    async def wake(self) -> None:
        for semel in self.semels:
            if semel.link.paused:
                semel.link.wake()
                semel.record.comes_back()

    async def overtake(self) -> None:
        """One stands still in the middle of a send for so long that it is buried; what it was sending is
        settled and asked for again elsewhere; then it wakes, and has an answer of its own."""
        name, slow = self.fate.one_of(LOOSE), self._mortal()
        self._asks(slow, name)
        await asyncio.sleep(self.fate.one_of((0.1, 1.0, 3.0)))
        slow.link.pause()
        await asyncio.sleep(DEAD_AFTER + 1)
        other = next(semel for semel in self.semels if semel is not slow)
        self.others.append(asyncio.ensure_future(other.sweep()))
        await asyncio.sleep(self.fate.one_of((0.1, 3.0, 40.0)))
        await self.resolve_all(other)
        self._asks(other, name)
        await asyncio.sleep(self.fate.one_of((0.0, 0.1, 1.0, 3.0)))
        await self.wake()

    async def oversleep(self) -> None:
        """One is asked for a call in doubt, and stands still in the middle of doing something about it."""
        slow, held = self._mortal(), [name for name in LOOSE if self.is_in_doubt(name)]
        self._asks(slow, self.fate.one_of(held) if held else self.settled_by(Kind.KEYED, Kind.PROBED))
        await asyncio.sleep(self.fate.one_of((0.0, 0.001, 0.01, 0.3)))
        slow.link.pause()
        await asyncio.sleep(self.fate.one_of((10.0, 40.0, RETENTION)))
        await self.wake()

    async def ask_elsewhere(self) -> None:
        """Two machines with different clocks: one loses a call, the other is asked what became of it."""
        first, second = self.semels
        first.clock.offset = self.fate.one_of(SET_WRONG)
        name = self.settled_by(Kind.KEYED, Kind.PROBED, Kind.PROBED)
        self._asks(first, name)
        await asyncio.sleep(self.fate.one_of((5.0, TOTAL, TOTAL + 5)))
        for _ in range(3):
            self._asks(second, name)
            await asyncio.sleep(self.fate.one_of((0.1, 3.0, 10.0)))

    async def rejoin(self) -> None:
        """A caller leaves, and another comes to the same call while it is being sent, or sent again."""
        semel, name = self._any(), self.fate.one_of(LOOSE)
        self._asks(semel, name)
        await asyncio.sleep(self.fate.one_of((0.001, 0.1, 2.2)))
        self.others[-1].cancel()
        await asyncio.sleep(self.fate.one_of((0.0, 0.1, 0.3, 2.0, 5.0)))
        self._asks(semel, name)

    async def down(self) -> None:
        link = self._mortal().link
        link.down = True
        link.falls_silent()

    async def up(self) -> None:
        for semel in self.semels:
            if semel.link.down:
                semel.link.down = False
                semel.record.comes_back()

    async def lose_writes(self) -> None:
        self._mortal().link.failures = self.fate.between(1, 3)

    async def sweep(self) -> None:
        self.others.append(asyncio.ensure_future(self._any().sweep()))

    async def clock(self) -> None:
        self._mortal().clock.offset = self.fate.one_of(SET_WRONG)

    async def clock_right(self) -> None:
        for semel in self.semels:
            semel.clock.offset = 0.0
