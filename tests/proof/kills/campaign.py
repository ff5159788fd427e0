"""A campaign: rounds of kill cycles, each on a record of its own, checked when all is quiet again.

A round begins with a seed of its own (the campaign's plus its number), so that one that failed can be
repeated alone, with the short count.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from proxy.core.intent import Event
from tests import ambient
from tests.process import SemelProcess
from tests.proof.kills.agents import SEATS, Seat, seen_in
from tests.proof.kills.books import Books
from tests.proof.kills.checking import (
    Accounts,
    Death,
    Span,
    all_wrongs,
    answers_lost,
    answers_that_changed,
    second_effects,
)
from tests.proof.kills.clerk import Clerk, listed
from tests.proof.kills.draw import KILL, WIRES, Harm, Whom, harms
from tests.proof.kills.record import rows_in
from tests.proof.kills.stage import Player, Semel, Server, Store, World, write_policy
from tests.proof.kills.story import Fault, story_of
from tests.proof.kills.wire import Wire

CYCLES = 100  # of a round
BETWEEN = 8  # connections of agents between two harms, at least
STUCK = 120.0
RECONNECTS = 2.0  # within that a semel whose connection to the store broke has another one
TOLD = 5  # stories of a failed round


@dataclass
class Figures:
    counts: Counter[str] = field(default_factory=Counter)
    by_victim: Counter[str] = field(default_factory=Counter)
    relay_faults_drawn: Counter[str] = field(default_factory=Counter)
    relay_faults_struck: Counter[str] = field(default_factory=Counter)  # that came to a connection
    breaches: Counter[str] = field(default_factory=Counter)  # by check
    effects: Counter[str] = field(default_factory=Counter)


class Round:
    """`async with Round(...) as round: await round.play(harms); await round.check()`"""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        server: Server | None,
        address: Callable[[int], str] | None,
        figures: Figures,
        semels: int,
        planted: str = "",
    ) -> None:
        self._directory, self._seed, self._server, self._address = directory, seed, server, address
        self._figures, self._planted, self._count = figures, planted, semels
        self._stack = AsyncExitStack()
        self._mending: set[asyncio.Task[None]] = set()
        self._faults: list[Fault] = []
        self._deaths: list[Death] = []
        self._troubled: list[Span] = []
        self._working: list[asyncio.Task[None]] = []
        self._seats: list[Seat] = []

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._set_up(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _set_up(self, stack: AsyncExitStack) -> None:
        self._logs, self._state = self._directory / "agents", self._directory / "state"
        self._logs.mkdir(parents=True)
        self._books = Books(self._directory / "books")
        self._world_wire = await stack.enter_async_context(Wire())
        self._agent_wires = [await stack.enter_async_context(Wire()) for _ in range(self._count)]
        self._world = World(self._directory / "books", self._seed, self._world_wire)
        stack.push_async_callback(self._world.end, signal.SIGKILL)
        self._store: Store | None = None
        self._store_wire: Wire | None = None
        if self._server is not None and self._address is not None:
            self._store_wire = await stack.enter_async_context(Wire())
            self._store = Store(self._server, self._store_wire)
            self._store_wire.lead_to(self._server.port)
            self._store.well.set()
            stack.enter_context(ambient.kept_in(self._address(self._store_wire.port)))
        policies = write_policy(self._directory / "policies", self._world_wire.port)
        # On its own store every other semel has two workers.
        workers = ("--workers", "2") if self._server is None and self._seed % 2 else ()
        first = SemelProcess(self._state, policies, options=workers)
        if self._planted:
            first = replace(first, entry="tests.proof.kills.planted", faults={self._planted: {}})
        self._semels = [
            Semel(f"semel {n}", lambda: replace(first), wire, self._store)
            for n, wire in enumerate(self._agent_wires)
        ]
        for semel in self._semels:
            stack.push_async_callback(semel.end, signal.SIGKILL)
        async with asyncio.TaskGroup() as starting:
            for player in (self._world, *self._semels):
                starting.create_task(self._begin(player))
        ports = [wire.port for wire in self._agent_wires]
        self._seats = [Seat(n, self._seed, ports, self._logs) for n in range(len(SEATS))]
        self._clerk = Clerk(self._books, self._port)
        stack.push_async_callback(self._end)  # first of all: nobody is started again while the others end
        works = [*(seat.work() for seat in self._seats), self._clerk.work()]
        self._working = [asyncio.create_task(work) for work in works]

    async def _begin(self, player: Player) -> None:
        await player.start()
        player.well.set()

    def _port(self) -> int | None:
        return next((semel.port for semel in self._semels if semel.well.is_set()), None)

    # ---- cycles ----

    async def play(self, drawn: list[Harm]) -> None:
        for harm in drawn:
            await self._under_way()
            await asyncio.sleep(harm.pause)
            await self._harm(harm)
        await asyncio.gather(*self._mending)
        for wire in self._wires():
            wire.heal()

    async def _under_way(self) -> None:
        """Until agents have made further calls, and some are waiting for their answer."""
        before = self._asked()
        async with asyncio.timeout(STUCK):
            while self._asked() < before + BETWEEN or not any(wire.busy for wire in self._agent_wires):
                self._raise_what_went_wrong()
                await asyncio.sleep(0.003)

    def _asked(self) -> int:
        return sum(wire.opened for wire in self._agent_wires)

    def _raise_what_went_wrong(self) -> None:
        for task in (*self._working, *self._mending):
            if task.done() and not task.cancelled() and task.exception() is not None:
                task.result()

    async def _harm(self, harm: Harm) -> None:
        figures = self._figures
        figures.counts["cycles"] += 1
        if harm.whom in WIRES:
            figures.relay_faults_drawn[f"{harm.whom} {harm.what}"] += 1
            self._faults.append(Fault(time.time(), str(harm)))
            self._wire(harm).harm(harm)
            return
        figures.by_victim[f"{harm.whom} {harm.what}"] += 1
        if harm.whom is Whom.AGENT:
            seat = self._seats[int(harm.which * len(self._seats))]
            async with asyncio.timeout(STUCK):
                while seat.process is None:
                    self._raise_what_went_wrong()
                    await asyncio.sleep(0.003)
            self._faults.append(Fault(time.time(), f"{harm} (seat {seat.number})"))
            seat.harm(harm)
            return
        player = self._player(harm)
        began = time.time()
        async with asyncio.timeout(STUCK):
            mend = await player.harm(harm)
        self._faults.append(Fault(time.time(), f"{harm} ({player.name})"))
        if (harm.whom, harm.what) == (Whom.SEMEL, KILL):
            self._deaths.append(Death(time.time(), self._way_to(player)))
        task = asyncio.create_task(self._mend(player, mend, began))
        self._mending.add(task)

    async def _mend(
        self, player: Player, mend: Callable[[], Coroutine[None, None, None]], began: float
    ) -> None:
        await mend()
        if player is not self._world:
            self._troubled.append(Span(began, time.time(), self._way_to(player)))
        self._faults.append(Fault(time.time(), f"({player.name} is well again)"))

    def _player(self, harm: Harm) -> Player:
        if harm.whom is Whom.WORLD:
            return self._world
        if harm.whom is Whom.SEMEL:
            return self._semels[int(harm.which * len(self._semels))]
        assert self._store is not None
        return self._store

    def _wire(self, harm: Harm) -> Wire:
        if harm.whom is Whom.WORLD_WIRE:
            return self._world_wire
        if harm.whom is Whom.AGENT_WIRE:
            return self._agent_wires[int(harm.which * len(self._agent_wires))]
        assert self._store_wire is not None
        return self._store_wire

    def _way_to(self, player: Player) -> int:
        """Where agents find it; 0 where they do not."""
        ports = {semel.name: wire.port for semel, wire in zip(self._semels, self._agent_wires, strict=True)}
        return ports.get(player.name, 0)

    def _wires(self) -> list[Wire]:
        return [self._world_wire, *self._agent_wires, *filter(None, [self._store_wire])]

    # ---- when it is over ----

    async def check(self) -> None:
        await self._quiet()
        await asyncio.gather(*(self._finish(seat) for seat in self._seats))
        told = await self._accounts()
        wrongs = all_wrongs(told)
        self._figures.breaches.update(wrong.check for wrong in wrongs)
        self._count_up(told)
        if wrongs:
            steps = list(dict.fromkeys(wrong.step for wrong in wrongs))
            stories = [story_of(step, told, self._books.lines, self._faults) for step in steps[:TOLD]]
            raise AssertionError("\n".join([f"seed {self._seed}:", *map(" ".join, wrongs[:50]), *stories]))

    async def _quiet(self) -> None:
        """Agents end; nothing is under way; what the dead left is settled."""
        for seat in self._seats:
            seat.end()
        await asyncio.gather(*self._working[:-1])
        self._working[-1].cancel()
        async with asyncio.timeout(STUCK):
            while await self._something_is_pending():
                await asyncio.sleep(0.05)

    async def _something_is_pending(self) -> bool:
        try:
            return bool(await listed(self._semels[0].port, "pending"))
        except ConnectionError:  # a store that was killed last is not back yet: it cannot be known
            return True

    async def _finish(self, seat: Seat) -> None:
        """Everything that was seen is asked for once more."""
        for work in seat.works:
            await seat.finish(work)

    async def _accounts(self) -> Accounts:
        seen = seen_in(self._logs)
        doubtful = {found["id"] for found in await listed(self._semels[-1].port, "in_doubt")}
        self._figures.counts["listed_at_the_end"] += len(doubtful)
        rows = await rows_in(self._state)
        strikes = self._store_wire.struck if self._store_wire is not None else []
        broken = [Span(at, at + harm.seconds + RECONNECTS) for at, harm in strikes]
        return Accounts(
            self._books.look().acts, rows, seen, doubtful, self._deaths, self._log(), self._clerk.shown,
            [*self._troubled, *broken],
        )  # fmt: skip

    def _log(self) -> list[str]:
        return [line for semel in self._semels for log in semel.logs() for line in log.splitlines()]

    def _count_up(self, told: Accounts) -> None:
        counts, effects = self._figures.counts, self._figures.effects
        counts["calls"] += len(told.rows)
        counts["agents_started"] += sum(seat.started for seat in self._seats)
        counts["answers_seen"] += sum(one.is_answer for one in told.seen)
        counts["passed_without_record"] += sum(one.semel == "passed" for one in told.seen)
        lost = {row.id for row in told.rows if any(entry.event == Event.LOST for entry in row.history)}
        counts["in_doubt_at_some_time"] += len(lost)
        counts["held_as_diverged"] += sum(one.problem == "diverged" for one in told.seen)
        counts["settled_by_operator"] += self._clerk.said.total()
        for acts in told.acts.values():
            effects[acts[0].kind] += len(acts)
        counts["second_effects"] += sum(1 for _ in second_effects(told))
        counts["answers_lost"] += sum(1 for _ in (*answers_lost(told), *answers_that_changed(told)))

    async def _end(self) -> None:
        """Whatever still happens; those who stand still go on, so that they can end."""
        for seat in self._seats:
            seat.end()
        await asyncio.gather(*self._working[: len(self._seats)], return_exceptions=True)
        tasks = [*self._working, *self._mending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        struck = [
            f"{harm.whom} {harm.what}"
            for wire in self._wires()
            for harm in {strike.harm for strike in wire.struck}
        ]
        self._figures.relay_faults_struck.update(struck)


@dataclass
class Campaign:
    """`address`: of the record behind a port, anew for each round; None: embedded."""

    directory: Path
    seed: int
    server: Server | None = None
    address: Callable[[int], str] | None = None
    planted: str = ""  # a defect
    figures: Figures = field(default_factory=Figures)

    async def run(self, cycles: int) -> None:
        for number in range(-(-cycles // CYCLES)):
            seed = self.seed + number
            some = min(CYCLES, cycles - number * CYCLES)
            async with self.round(self.directory / f"round-{number}", seed) as one:
                await one.play(harms(seed, some, server=self.server is not None))
                await one.check()
            shutil.rmtree(self.directory / f"round-{number}")

    def round(self, directory: Path, seed: int) -> Round:
        return Round(
            directory, seed, server=self.server, address=self.address, figures=self.figures,
            semels=1 if self.server is None else 2, planted=self.planted,
        )  # fmt: skip
