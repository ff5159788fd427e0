"""One semel of the simulation: the shipping code, with a link of its own to a modelled world."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from proxy.asking import Live
from proxy.core.intent import SETTLED_STATES
from proxy.errors import Refusal
from proxy.recovery import sweep_once
from proxy.stream import content_length
from tests.exchange.soon import Manner
from tests.exchange.staged_store import StagedStore, World
from tests.proof.simulation.fate import Fate
from tests.proof.simulation.links import Link, Society
from tests.proof.simulation.record import Record
from tests.proof.simulation.upstream import Upstream, Way
from tests.runs.stage import RunProcess

# The real one sweeps every five seconds; histories last for an hour.
SWEEP_EVERY = 120.0


class Semel(RunProcess):
    def __init__(
        self,
        fate: Fate,
        world: World,
        society: Society,
        upstream: Upstream,
        name: str,
        *,
        steady: bool = False,
    ) -> None:
        self.name, self.link = name, Link(fate, steady=steady)
        self.fate, self._society = fate, society
        self._served: dict[asyncio.Task[Any], None] = {}  # in the order in which they came
        self.complete: Callable[[int, bytes], None] = lambda status, body: None
        super().__init__(world)
        self.send_to(Way(upstream, self.link))
        self._sweeping = asyncio.ensure_future(self._sweep_forever())

    def on_stage(self) -> StagedStore:
        self.record = Record(self.world, self._society, self.link, self.fate, self.name)
        return self.record

    @property
    def nonstop(self) -> bool:
        return True

    def manner(self) -> Manner:
        manner = self.fate.one_of((Manner.TOLD, Manner.TOLD, Manner.GOES_ON, Manner.AWAITED))
        self.fate.reached[f"told {manner.value}"] += 1
        return manner

    def saw(self, live: Live, body: bytes) -> None:
        """A client that knows the length needs no end to be told: with its last byte it has seen it all."""
        answer = live.whole or live.flight.capture
        if len(body) == content_length(answer.headers):
            self.complete(answer.status, body)

    def serves(self, task: asyncio.Task[Any]) -> None:
        """The connection of this caller breaks when the process dies."""
        self._served[task] = None
        task.add_done_callback(self._served.pop)

    @property
    def gone(self) -> bool:
        return self.link.dead

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY)
            if any(call.state not in SETTLED_STATES for call in self.world.calls.values()):
                await self.sweep()
            else:  # there is nothing to find
                await self._mark_the_time()

    async def sweep(self) -> None:
        with contextlib.suppress(Refusal):
            await sweep_once(self.store, self.ledger, self.notebook)
        await self._mark_the_time()

    async def _mark_the_time(self) -> None:
        with contextlib.suppress(Refusal):
            await self.store.clock_mark(self.clock.now())

    async def die(self) -> None:
        """As by SIGKILL. What was on its way to the store may land all the same."""
        self.link.dead = True
        self.store.kill()
        self._sweeping.cancel()
        self.flights.give_up()
        while tasks := [*self.flying(), *self._served, *self.unawaited()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=0.001)

    async def end(self) -> None:
        """As by SIGTERM: what is under way is let finish, or marked."""
        await self.flights.drain(1.0)
        await self.die()

    def defects(self) -> list[str]:
        noted = [str(fields.get("error")) for event, fields in self.notebook.notes if event == "defect"]
        if self._sweeping.done() and not self._sweeping.cancelled():
            noted.append(f"the sweeping has ended: {self._sweeping.exception()!r}")
        return noted
