"""One history: proxies on one record, callers and agents, people, faults, an end; and what must hold in it.

- never two sends without proof, never more effects than were meant (upstream.py)
- never an answer seen and then lost: what anybody saw to its end is in the record from then on (agents.py)
- no illegal transition (record.py); nothing is said to have not happened that may have
- every call settles or is held; what is held, a person settles
- a healthy agent is never altered, whatever befalls the others (agents.py)
- no starvation: when the faults are over, everybody is answered within a bounded time
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from itertools import count
from typing import Any

from proxy import operator
from proxy.admin.run_desk import LocalRunDesk
from proxy.admin.run_views import Seen
from proxy.core.intent import Call, State
from proxy.errors import DecisionRefused, NotFound, Refusal, UpstreamTimeout, UpstreamUnreachable
from proxy.operator import Verdict
from tests.exchange.stage import Got
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import run
from tests.proof.simulation.agents import DONE, Answer, Program, RunAgent, healthy, programs, served
from tests.proof.simulation.asking import RETENTION, TOTAL, Kind, asked, kind_of
from tests.proof.simulation.fate import Fate
from tests.proof.simulation.links import DEAD_AFTER, Society
from tests.proof.simulation.process import Semel
from tests.proof.simulation.upstream import Upstream
from tests.runs.stage import TENANT, identity_of

PROXIES = 2
# Calls outside runs: few, so that they meet.
LOOSE = tuple(f"loose-{n}-{kind}" for n in range(3) for kind in Kind)
DELAYS = (0.0, 0.0, 0.0, 0.001, 0.1, 0.6, 1.0, 3.0, 5.0, 6.5, 40.0, 70.0, 400.0)
ACTS = (
    *["ask"] * 8, *["crash"] * 3, "beside", "leave", *["kill"] * 2, *["pause"] * 3, *["wake"] * 3, "down",
    *["up"] * 2, *["lose_writes"] * 2, "sweep", "drain", *["resolve"] * 2, *["decide"] * 2, "clock",
    "clock_right", *["overtake"] * 2, *["oversleep"] * 2, *["rejoin"] * 2,
    *["ask_elsewhere"] * 2,
)  # fmt: skip
# A clock may be behind by any amount for a while; ahead, by less than semel's margins (docs/guarantees.md).
SET_WRONG = (-7200.0, -600.0, -30.0, -5.0, 5.0, 30.0, 60.0)
# Longer than any patience there is: a wait for others, the sends of one call, a stalled message at each step.
BOUND = 600.0


class History:
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
        self.ending: list[asyncio.Task[None]] = []  # processes that were told to end
        self.healthy = tuple(fate.one_of(_HEALTHY) for _ in range(fate.between(0, 5)))
        self.given: dict[str, set[Answer]] = {name: set() for name in LOOSE}

    def _new(self, *, steady: bool = False) -> Semel:
        name = f"semel{next(self._numbers)}"
        semel = Semel(self.fate, self.world, self.society, self.upstream, name, steady=steady)
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

    # ---- what happens ----

    async def play(self) -> None:
        fate = self.fate
        for number in range(len(self.agents)):
            self._start(number)
        if self.healthy:
            fair = healthy(fate, self.steady, self.upstream.said.__getitem__, self.healthy)
            self.others.append(asyncio.ensure_future(fair))
        for _ in range(fate.between(5, 40)):
            await asyncio.sleep(fate.one_of(DELAYS))
            act = fate.one_of(ACTS)
            fate.tell(act)
            await getattr(self, act)()
            fate.check()
        await self._end()

    def _start(self, number: int) -> None:
        self.tasks[number] = asyncio.ensure_future(self.agents[number].attempt())

    async def ask(self) -> None:
        self._asks(self._any(), self.fate.one_of(LOOSE))

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

    async def leave(self) -> None:
        if self.others:
            self.fate.one_of(self.others[-3:]).cancel()

    async def crash(self) -> None:
        """An agent dies and is started again."""
        number = self.fate.between(0, len(self.agents) - 1)
        self.tasks[number].cancel()
        await asyncio.wait({self.tasks[number]})
        self._start(number)

    async def beside(self) -> None:
        """An agent is started again while it still lives."""
        number = self.fate.between(0, len(self.agents) - 1)
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
        for row in [row for row in self.world.calls.values() if row.state is State.IN_DOUBT]:
            await self._look_and_resolve(row, other)
        self._asks(other, name)
        await asyncio.sleep(self.fate.one_of((0.0, 0.1, 1.0, 3.0)))
        await self.wake()

    async def oversleep(self) -> None:
        """One is asked for a call in doubt, and stands still in the middle of doing something about it."""
        slow, held = self._mortal(), [name for name in LOOSE if self._is_in_doubt(name)]
        self._asks(slow, self.fate.one_of(held) if held else self._settled_by(Kind.KEYED, Kind.PROBED))
        await asyncio.sleep(self.fate.one_of((0.0, 0.001, 0.01, 0.3)))
        slow.link.pause()
        await asyncio.sleep(self.fate.one_of((10.0, 40.0, RETENTION)))
        await self.wake()

    async def ask_elsewhere(self) -> None:
        """Two machines with different clocks: one loses a call, the other is asked what became of it."""
        first, second = self.semels
        first.clock.offset = self.fate.one_of(SET_WRONG)
        name = self._settled_by(Kind.KEYED, Kind.PROBED, Kind.PROBED)
        self._asks(first, name)
        await asyncio.sleep(self.fate.one_of((5.0, TOTAL, TOTAL + 5)))
        for _ in range(3):
            self._asks(second, name)
            await asyncio.sleep(self.fate.one_of((0.1, 3.0, 10.0)))

    def _settled_by(self, *kinds: Kind) -> str:
        kind = self.fate.one_of(kinds)
        return self.fate.one_of([name for name in LOOSE if kind_of(name) is kind])

    def _is_in_doubt(self, name: str) -> bool:
        row = self.world.calls.get(identity_of(name).key)
        return row is not None and row.state is State.IN_DOUBT

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

    async def resolve(self) -> None:
        for row in list(self.world.calls.values()):
            if row.state is State.IN_DOUBT and self.fate.happens(0.5):
                await self._look_and_resolve(row, self._any())

    async def decide(self) -> None:
        for row in list(self.world.calls.values()):
            if row.state is State.AWAITING_APPROVAL and self.fate.happens(0.7):
                await self._decide(row, self._any(), permit=self.fate.happens(0.7))

    async def _decide(self, row: Call, semel: Semel, *, permit: bool) -> None:
        """A person who is asked, and whose word may come too late or get lost."""
        with suppress(Refusal, TimeoutError):
            async with asyncio.timeout(BOUND):
                if permit:
                    await operator.approve(
                        semel.store, semel.clock, row.id, reason="yes", actor="ada", version=None
                    )
                else:
                    await operator.deny(
                        semel.store, semel.clock, row.id, reason="no", actor="ada", version=None, ttl=50.0
                    )

    async def _look_and_resolve(self, row: Call, semel: Semel) -> None:
        """A person who asked the upstream: truthful, but perhaps too late."""
        outs = [out for sent in self.upstream.outs.values() for out in sent if out.row == row.key]
        executed = any(out.executes or self._is_known(out.key) for out in outs)
        news = [out for out in outs if not executed and not out.resolved]
        for out in news:  # from when the word lands, and nobody knows when that is
            out.resolved = True
        looking = operator.resolve(
            semel.store,
            semel.ledger.answers,
            semel.clock,
            row.id,
            verdict=Verdict.EXECUTED if executed else Verdict.NOT_EXECUTED,
            reason="asked the upstream",
            actor="ada",
            version=None,
            body=b"a person's word" if executed else None,
        )
        try:
            async with asyncio.timeout(BOUND):
                await looking
        except DecisionRefused:
            for out in news:
                out.resolved = False
        except (Refusal, TimeoutError):  # the store failed: the decision may have landed all the same
            pass

    def _is_known(self, key: str) -> bool:
        return bool(key) and any(
            out.executes for sent in self.upstream.outs.values() for out in sent if out.key == key
        )

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
        everybody = (*self.tasks.values(), *self.others, *self.ending)
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
            await self._settle_all()
        self.fate.broken(f"whoever asks for {name} is never answered")

    async def _until_finished(self, agent: RunAgent) -> bool:
        for _ in range(3 * len(agent.program.steps) + 2):
            if await asyncio.wait_for(agent.attempt(), BOUND * len(agent.program.steps)):
                return True
            await self._settle_all()
            if isinstance(agent.problem, UpstreamUnreachable | UpstreamTimeout):
                await self._forget_failures(agent.program)
        return False

    async def _settle_all(self) -> None:
        """What only a person can end: a doubt; a question; an attempt that leaves the record, because a lost
        mark made one call of two."""
        semel = self.steady
        desk = LocalRunDesk(
            store=semel.store, clock=semel.clock, tenant=TENANT, retention=None, export=no_export
        )
        for program in self.programs:
            with suppress(NotFound):  # nobody has come so far
                await desk.allow(program.run, by="ada", reason="looked at it")
        for row in list(self.world.calls.values()):
            if row.state is State.IN_DOUBT:
                await self._look_and_resolve(row, semel)
            elif row.state is State.AWAITING_APPROVAL:
                await self._decide(row, semel, permit=True)

    async def _forget_failures(self, program: Program) -> None:
        """Of reads: one that an attempt went past is given again until a person forgets it; then the call is
        another, and so is what is seen of it."""
        semel = self.steady
        for row in list(self.world.calls.values()):
            failed = row.in_run is not None and bool(row.in_run.receipts)
            if row.run == program.run and row.safe and row.state is State.RELEASED and failed:
                await operator.forget(
                    semel.store, semel.clock, row.id, reason="it is back", actor="ada", version=None
                )
                program.seen.clear()

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


async def no_export(seen: Seen) -> AsyncIterator[bytes]:
    """Nobody exports anything here."""
    nothing: tuple[bytes, ...] = ()
    for line in nothing:
        yield line


_HEALTHY = tuple(
    f"healthy-{what}-{kind}" for what in ("one", "two") for kind in Kind if kind is not Kind.PERMITTED
)


def play(seed: int) -> Fate:
    """The history of a seed. Raises Violation."""
    told: list[Fate] = []

    async def history() -> None:
        played = History(seed)
        told.append(played.fate)
        await played.play()

    try:
        run(history())
    except Exception as error:
        error.add_note(f"python -m tests.proof.simulation --seed {seed} tells this history")
        raise
    return told[0]
