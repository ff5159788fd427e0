"""One history: proxies on one record, callers and agents, people, faults, an end; and what must hold in it.

- never two sends without proof, never more effects than were meant (upstream.py)
- never an answer seen and then lost: what anybody saw to its end is in the record from then on (agents.py)
- no illegal transition (record.py); nothing is said to have not happened that may have
- every call settles or is held; what is held, a person settles
- a healthy agent is never altered, whatever befalls the others (agents.py)
- a later attempt takes the same way: what was refused stays refused, once it was acted on (agents.py)
- no starvation: everybody is answered within a bounded time when the faults are over,
  and by a proxy that lives at any time
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

from proxy import ledger
from proxy.core.intent import State
from proxy.errors import UpstreamTimeout, UpstreamUnreachable
from tests.exchange.stage import Got
from tests.exchange.virtual_time import run
from tests.proof.simulation.agents import RunAgent, healthy
from tests.proof.simulation.asking import Kind, kind_of
from tests.proof.simulation.fate import Fate
from tests.proof.simulation.faults import Faults
from tests.proof.simulation.people import BOUND
from tests.proof.simulation.scene import LOOSE
from tests.runs.stage import identity_of

# So many new calls in a row, and a process claims the next without a look at the record: hardly ever in so
# short a history, or almost always.
GUESSES_AFTER = (64, 1)
DELAYS = (0.0, 0.0, 0.0, 0.001, 0.1, 0.6, 1.0, 3.0, 5.0, 6.5, 40.0, 70.0, 400.0)
ACTS = (
    *["ask"] * 8, *["crash"] * 3, "beside", "leave", *["kill"] * 2, *["pause"] * 3, *["wake"] * 3, "down",
    *["up"] * 2, *["lose_writes"] * 2, "sweep", "drain", *["resolve"] * 2, *["decide"] * 2, "clock",
    "clock_right", *["overtake"] * 2, *["oversleep"] * 2, *["rejoin"] * 2,
    *["ask_elsewhere"] * 2,
)  # fmt: skip


class History(Faults):
    async def play(self) -> None:
        fate = self.fate
        for number in range(len(self.agents)):
            self._start(number)
        if self.healthy:
            fair = healthy(fate, self.steady, self.upstream.said.__getitem__, self.healthy)
            self.fair.append(asyncio.ensure_future(fair))
        for _ in range(fate.between(5, 40)):
            await asyncio.sleep(fate.one_of(DELAYS))
            act = fate.one_of(ACTS)
            fate.tell(act)
            await getattr(self, act)()
            fate.check()
        await self._end()

    # ---- the end ----

    async def _end(self) -> None:
        """No more faults: everything lands, the dead are buried, and everybody comes to an end."""
        fate = self.fate
        fate.tell("no more faults")
        for semel in self.semels:
            semel.link.failures = 0
        await self.clock_right()
        await self.wake()
        await self.up()
        await asyncio.sleep(BOUND)
        everybody = (*self.tasks.values(), *self.others, *self.over, *self.fair, *self.ending)
        waiting = [task for task in everybody if not task.done()]
        if waiting:
            fate.broken(f"{len(waiting)} who asked were never answered")
        for semel in self.semels:
            if semel.flights.in_flight:
                fate.broken("a flight never landed")
            await semel.die()
        self.semels = [self.steady]
        self.upstream.healthy = True
        await asyncio.sleep(10)
        await self.steady.sweep()
        self._nothing_is_pending()
        fate.check()
        await self._once_more()
        self._nothing_is_lost()
        for defect in (defect for semel in self.everybody for defect in semel.defects()):
            fate.broken(f"a defect: {defect}")
        for task in everybody:
            if not task.cancelled() and task.exception() is not None:
                fate.broken(f"somebody who asked met {task.exception()!r}")
        await self.steady.die()
        fate.check()

    def _nothing_is_pending(self) -> None:
        for row in self.world.calls.values():
            if row.state is State.PENDING:
                self.fate.broken(f"{row.id} is pending for ever")
            outs = [out for sent in self.upstream.outs.values() for out in sent if out.row == row.key]
            if row.state is State.RELEASED and not row.safe and any(out.executes for out in outs):
                self.fate.broken(f"{row.id} took effect, and the record says that it did not")

    async def _once_more(self) -> None:
        """Everybody asks once more; what is held, a person settles, and then it goes on."""
        for name in LOOSE:
            await self._until_answered(name)
        for program in self.programs:
            agent = self._agent(program, lambda: self.steady)
            agent.attempts, agent.certain = 1000, True
            if not await self._until_finished(agent):
                self.fate.broken(f"{program.run} never comes to its end")

    async def _until_answered(self, name: str) -> None:
        for _ in range(5):
            if isinstance(await asyncio.wait_for(self._caller(self.steady, name), BOUND), Got):
                return
            await self.settle_all()
        self.fate.broken(f"whoever asks for {name} is never answered")

    async def _until_finished(self, agent: RunAgent) -> bool:
        for _ in range(3 * len(agent.program.steps) + 2):
            if await asyncio.wait_for(agent.attempt(), BOUND * len(agent.program.steps)):
                return True
            await self.settle_all()
            if isinstance(agent.problem, UpstreamUnreachable | UpstreamTimeout):
                await self.forget_failures(agent.program)
        return False

    def _nothing_is_lost(self) -> None:
        """What anybody saw to its end is in the record still, and outside runs it is the only answer."""
        for name, answers in self.given.items():
            for answer in answers:
                if not self._is_recorded(identity_of(name).key, answer):
                    self.fate.broken(f"{name} was answered {answer}, and the record has lost it")
            if len(answers) > 1 and kind_of(name) is not Kind.SAFE:
                self.fate.broken(f"{name} had several answers: {answers}")
        for program in self.programs:
            for step, answer in program.given:
                if not self._is_recorded(program.family(step), answer):
                    self.fate.broken(f"{step} was answered {answer}, and the record has lost it")


def _failed(fate: Fate, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A callback of the loop. (A task that nobody asks is told of when it is collected, whenever that is.)"""
    if "handle" in context:
        fate.broken(f"a callback failed: {context.get('exception')!r}")


def play(seed: int, watch: Callable[[Fate], None] = lambda fate: None) -> Fate:
    """The history of a seed. Raises Violation; `watch` has its fate before anything happens."""
    told: list[Fate] = []

    async def history() -> None:
        played = History(seed)
        told.append(played.fate)
        watch(played.fate)
        asyncio.get_running_loop().set_exception_handler(partial(_failed, played.fate))
        await played.play()

    try:
        with patch.object(ledger, "NEW_IN_A_ROW", GUESSES_AFTER[seed % len(GUESSES_AFTER)]):
            run(history())
    except Exception as error:
        error.add_note(f"python -m tests.proof.simulation --seed {seed} tells this history")
        raise
    return told[0]
