"""The scene of a history: the record, the proxies on it, those who ask, and what they have been given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from proxy.core.intent import Call, State
from proxy.errors import Refusal
from tests.exchange.stage import Got
from tests.exchange.staged_store import World
from tests.proof.simulation.agents import DONE, Answer, Program, RunAgent, programs, served
from tests.proof.simulation.asking import Kind, asked, kind_of
from tests.proof.simulation.fate import Fate
from tests.proof.simulation.links import Society
from tests.proof.simulation.process import Semel
from tests.proof.simulation.upstream import Upstream
from tests.runs.stage import identity_of

PROXIES = 2
# Calls outside runs: few, so that they meet.
LOOSE = tuple(f"loose-{n}-{kind}" for n in range(3) for kind in Kind)
HEALTHY = tuple(
    f"healthy-{what}-{kind}" for what in ("one", "two") for kind in Kind if kind is not Kind.PERMITTED
)


class Scene:
    def __init__(self, seed: int) -> None:
        self.fate = fate = Fate(seed)
        self.world, self.society = World(), Society(locks=fate.happens(0.3))
        self.upstream = Upstream(fate, self._meant)
        self._numbers = count(1)
        self.everybody: list[Semel] = []
        self.semels = [self._new() for _ in range(PROXIES)]
        self.steady = self._new(steady=True)
        self.programs = [programs(fate, f"run{n}") for n in range(fate.between(1, 2))]
        self.agents = [self._agent(program, self._any) for program in self.programs]
        self.tasks: dict[int, asyncio.Task[bool]] = {}  # by agent: its present attempt
        self.others: list[asyncio.Task[object]] = []  # callers, attempts that were left behind
        self.over: list[asyncio.Task[bool]] = []  # attempts that have ended, or were ended
        self.fair: list[asyncio.Task[None]] = []  # the healthy agent
        self.ending: list[asyncio.Task[None]] = []  # processes that were told to end
        self.healthy = tuple(fate.one_of(HEALTHY) for _ in range(fate.between(0, 5)))
        self.given: dict[str, set[Answer]] = {name: set() for name in LOOSE}

    def _new(self, *, steady: bool = False) -> Semel:
        name = f"semel{next(self._numbers)}"
        semel = Semel(self.fate, self.world, self.society, self.upstream, name, steady=steady)
        semel.complete = self._complete_at_a_reader
        self.everybody.append(semel)
        return semel

    def _agent(self, program: Program, pick: Callable[[], Semel]) -> RunAgent:
        return RunAgent(self.fate, program, pick, self._is_recorded)

    def _any(self) -> Semel:
        """Also the one that the healthy agent uses, now and then: its other callers have all the trouble."""
        return self.steady if self.fate.happens(0.15) else self.fate.one_of(self.semels)

    def _mortal(self) -> Semel:
        return self.fate.one_of(self.semels)

    def _meant(self, name: str) -> int:
        """By those who ask: how many effects there should be at most."""
        if name.startswith("loose"):
            return 1
        if name.startswith("healthy"):
            return self.healthy.count(name)
        return next(p.meant(name) for p in self.programs if name.startswith(f"{p.run}-"))

    def _is_recorded(self, family: bytes, answer: Answer) -> bool:
        return any(
            row.state is State.DONE and self._answer(row) == answer
            for row in self.world.calls.values()
            if family in (row.key, row.in_run.family if row.in_run is not None else b"")
        )

    def _answer(self, row: Call) -> Answer | None:
        answer = row.answer
        return None if answer is None else (answer.status, self.steady.codec.open_body(answer.body))

    def _complete_at_a_reader(self, status: int, body: bytes) -> None:
        """Its last byte is there: from now on it is an answer that was seen."""
        if status in DONE:
            self.fate.reached["complete at its reader"] += 1
            done = (row for row in self.world.calls.values() if row.state is State.DONE)
            if not any(self._answer(row) == (status, body) for row in done):
                self.fate.broken(f"{body!r} was whole at its reader, and the record does not have it")

    def _start(self, number: int) -> None:
        self.tasks[number] = asyncio.ensure_future(self.agents[number].attempt())

    def _asks(self, semel: Semel, name: str) -> None:
        self.others.append(asyncio.ensure_future(self._caller(semel, name)))

    async def _caller(self, semel: Semel, name: str) -> Got | Refusal | None:
        ask = asked(name)
        got = await served(semel, semel._call(ask))
        if isinstance(got, Got) and got.kind != "unrecorded" and got.status in DONE:
            answer = (got.status, got.body)
            if not self._is_recorded(ask.identity.key, answer):
                self.fate.broken(f"{answer} was given for {name}, and the record has no such answer")
            self.given[name].add(answer)
        self.fate.tell(f"{name}: {got.kind if isinstance(got, Got) else type(got).__name__}")
        return got

    def settled_by(self, *kinds: Kind) -> str:
        """The name of a call of one of these kinds."""
        kind = self.fate.one_of(kinds)
        return self.fate.one_of([name for name in LOOSE if kind_of(name) is kind])

    def is_in_doubt(self, name: str) -> bool:
        row = self.world.calls.get(identity_of(name).key)
        return row is not None and row.state is State.IN_DOUBT
