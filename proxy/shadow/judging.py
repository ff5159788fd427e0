"""One judgement beside each shadowed call: what semel in earnest would have done with it.

The live call never waits for it and never fails by it. So many may be under way and hold so many bytes; what
comes beyond that, and what goes wrong, is counted as unjudged.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from proxy.asking import Ask, Delivery, Labels, Live, Replayed, Sendable, Unrecorded
from proxy.core.policy import Rule
from proxy.errors import ConfigurationError, Refusal, StoreUnavailable
from proxy.observe import Observer, Served
from proxy.problem import problem_of
from proxy.runs.books import RunBooks
from proxy.runs.claiming import RunAsk
from proxy.shadow.counting import UNJUDGED
from proxy.shadow.record import Record
from proxy.shadow.tape import ON_AIR, Tape
from proxy.shadow.turns import Turn, Turns
from proxy.spool import Spool
from proxy.stream import CaptureLimits, CutOff
from proxy.wiring import Works

# So many judgements at once, and so many bytes of memory for what they hold.
MOST, MOST_BYTES = 1024, 128 * 1024 * 1024
# Of an answer so much is held in memory, on the tape and in the capture; beyond it a file without a name.
MEMORY = 32 * 1024
# How long a shutdown lets judgements come to their end.
PATIENCE = 2.0
# For a tape that nobody will play.
NOTHING = CaptureLimits(kept=0, memory=0)


def sparing(limits: CaptureLimits) -> CaptureLimits:
    """For tapes, and for what is captured of them."""
    return replace(limits, memory=min(MEMORY, limits.memory))


class Named(NamedTuple):
    """A call as it will be told, and what is asked: None for what passes without a record."""

    told: Served
    ask: Ask | RunAsk | None
    sending: Sendable


Name: TypeAlias = Callable[[RunBooks], Awaitable[Named]]


class Taken:
    """How the live answer was taken, told to the delivery that there would have been."""

    def __init__(self) -> None:
        self._delivery: Delivery | None = None
        self._ended: Callable[[Delivery], None] | None = None

    def complete(self) -> None:
        self._end(lambda delivery: delivery.complete())

    def abandoned(self) -> None:
        self._end(lambda delivery: delivery.abandoned())

    def _end(self, ended: Callable[[Delivery], None]) -> None:
        self._ended = ended
        if self._delivery is not None:
            with suppress(Exception):  # the caller has its answer, whatever becomes of the mark
                ended(self._delivery)

    def follow(self, delivery: Delivery | None) -> None:
        """What semel would have handed on by now is taken as the live answer was."""
        self._delivery = delivery
        if self._ended is not None:
            self._end(self._ended)


class Beside(NamedTuple):
    """What a live call tells its judgement: what it got, and how its caller took it."""

    tape: Tape
    taken: Taken


class Shadow:
    def __init__(self, *, record: Record, observer: Observer, limits: CaptureLimits) -> None:
        self._record = record
        self._observer = observer
        self._limits = limits
        self._turns = Turns()
        self._judging: dict[asyncio.Task[None], int] = {}  # what each holds
        self._held = 0
        self._trouble = ""  # why the last one could not be judged
        self._stopping = False

    @property
    def under_way(self) -> int:
        return len(self._judging)

    @property
    def works(self) -> Works | None:
        """None while there is no record."""
        return self._record.opened

    def passed(self, call: Served) -> None:
        """What is not recorded in earnest either."""
        self._observer.served(call._replace(status="passed"))

    def begin(self, call: Served, name: Name, body: Spool | None) -> Beside:
        """`call`: as it is told where nobody knows more. `name` says which call it is, given the books of
        the runs."""
        size = 2 * self._limits.memory + (0 if body is None or body.on_disk else body.size)
        if self._stopping or len(self._judging) >= MOST or self._held + size > MOST_BYTES:
            self._unjudged(call, f"{len(self._judging)} judgements under way hold {self._held} bytes")
            return Beside(Tape(NOTHING, over=lambda: None), Taken())
        turn = self._turns.arrive()
        beside = Beside(Tape(self._limits, over=lambda: self._turns.over(turn)), Taken())
        task = asyncio.get_running_loop().create_task(self._judge(call, name, turn, beside))
        self._judging[task] = size
        self._held += size
        task.add_done_callback(lambda task: self._judged(task, call, turn))
        return beside

    def _unjudged(self, call: Served, why: str) -> None:
        """Every one is counted, and said once until one is judged again."""
        if not self._trouble:
            self._observer.noted("trouble", why=why)
        self._trouble = why
        self._observer.served(call._replace(status=UNJUDGED))

    def _judged(self, task: asyncio.Task[None], call: Served, turn: Turn) -> None:
        self._held -= self._judging.pop(task)
        self._turns.settle(turn)
        if task.cancelled():
            self._unjudged(call, "semel is shutting down")
        elif (error := task.exception()) is not None:  # whose message may repeat what it stumbled over
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            self._unjudged(call, f"{type(error).__name__} at {where}")

    async def _judge(self, call: Served, name: Name, turn: Turn, beside: Beside) -> None:
        ON_AIR.set(beside.tape)
        try:
            told = await self._would(call, name, turn, beside)
        except (StoreUnavailable, ConfigurationError) as error:
            self._unjudged(call, str(error))
            return
        if beside.tape.useless:
            self._unjudged(call, "what the upstream said could not be kept, or this record not be written")
            return
        self._trouble = ""
        self._turns.settle(turn)
        self._observer.served(told)

    async def _would(self, call: Served, name: Name, turn: Turn, beside: Beside) -> Served:
        try:
            works = await self._record.works()
            named = await name(works.books)
            self._turns.name(turn, _lanes(named.ask))
            if await self._turns.wait(turn):
                named = await name(works.books)  # its run is another by now
            call, ask, sending = named
            if ask is None:
                return await _passed(works, call, sending)
            return await _asked(works, call, ask, beside.taken)
        except StoreUnavailable:
            raise
        except CutOff:
            return call  # the caller would have seen a break, and no word
        except Refusal as refusal:
            problem, said = problem_of(refusal), refusal.members.get("call") or ""
            return call._replace(status="refused", code=problem.status, problem=problem.name, call=str(said))

    async def stop(self) -> None:
        self._stopping = True
        if self._judging:
            await asyncio.wait(self._judging, timeout=PATIENCE)
        for task in list(self._judging):
            task.cancel()
        if self._judging:
            await asyncio.wait(self._judging, timeout=PATIENCE)
        await self._record.close()


async def _passed(works: Works, call: Served, sending: Sendable) -> Served:
    """Raises what the caller would have been refused with, here and below."""
    labels = Labels(call.upstream, call.rule)
    live = await works.exchange.forward(sending.outgoing(), labels, safe=call.safe)
    call = call._replace(status="passed", code=live.flight.capture.status)
    await _to_its_end(live)
    return call


async def _asked(works: Works, call: Served, ask: Ask | RunAsk, taken: Taken) -> Served:
    reply = await _ask(works, ask)
    if isinstance(reply, Unrecorded):
        raise StoreUnavailable("the shadow's record could not be written")
    if isinstance(reply, Replayed):
        taken.follow(reply.delivery)
        cost, code = reply.call.cost_usd or 0.0, reply.answer.status
        return call._replace(status="replayed", code=code, call=reply.call.id, cost_usd=cost)
    flight = reply.flight
    call = call._replace(status=reply.how, code=flight.capture.status)
    if flight.identity is not None:
        call = call._replace(call=flight.identity.id)
    await _to_its_end(reply)
    taken.follow(reply.delivery)
    return call._replace(cost_usd=flight.cost_usd or 0.0)


def _lanes(ask: Ask | RunAsk | None) -> frozenset[Hashable]:
    """Its run, and its name outside runs."""
    match ask:
        case None:
            return frozenset()
        case RunAsk(book=book, shared=shared):
            run = (book.run.tenant, book.run.name)
            return frozenset({run} if shared is None else {run, shared.ask.identity.key})
        case Ask(identity=identity):
            return frozenset({identity.key})


async def _ask(works: Works, ask: Ask | RunAsk) -> Replayed | Live | Unrecorded:
    """Nobody decides anything in this record: for a person nobody waits."""
    if isinstance(ask, RunAsk):
        return await works.runs.ask(ask._replace(rule=_undecided(ask.rule)))
    return await works.exchange.ask(ask._replace(rule=_undecided(ask.rule)))


def _undecided(rule: Rule) -> Rule:
    return rule if rule.approval is None else replace(rule, approval=replace(rule.approval, wait=0.0))


async def _to_its_end(live: Live) -> None:
    try:
        with suppress(CutOff):  # so the caller would have been
            async for _ in live.reader.parts():
                pass
    finally:
        live.leave()
