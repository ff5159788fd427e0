"""From a run's record: an answer given again, a problem told again, a call in flight joined.

Uses are counted durably before a caller is answered. What a caller was given is part of the record.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple, assert_never

from proxy.asking import Patience, Replayed, Reply
from proxy.clock import Clock
from proxy.core import decide as core
from proxy.core.frontier import ANSWER, Again, ByState
from proxy.core.identity import occurrence_of
from proxy.core.intent import Call, Place, State, is_live
from proxy.core.occurrence import Existing, Join, after_replay
from proxy.core.run_record import How, Step
from proxy.core.runs import Occurrence, retry_is_durable
from proxy.errors import InDoubt, Refusal
from proxy.exchange import Exchange
from proxy.flight import Superseded
from proxy.flying import Flights
from proxy.ledger import Ledger
from proxy.observe import POLLING, Observer
from proxy.refusals import in_doubt, recorded_problem, unavailable
from proxy.runs.books import RunBooks
from proxy.runs.claiming import Claiming, RunAsk, handing_on
from proxy.runs.handover import Handover
from proxy.runs.uses import Uses
from proxy.store.base import Store


class _Chosen(NamedTuple):
    """A recorded call, reserved for one caller. `counts`: it takes one more use."""

    step: Step
    handover: Handover
    counts: bool


class FromRecord:
    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        flights: Flights,
        exchange: Exchange,
        books: RunBooks,
        clock: Clock,
        observer: Observer,
        claiming: Claiming,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._flights = flights
        self._exchange = exchange
        self._books = books
        self._clock = clock
        self._observer = observer
        self._claiming = claiming
        self.uses = Uses(store, ledger, clock, books)

    async def serve(
        self,
        ask: RunAsk,
        step: Step,
        row: Occurrence,
        what: Again | ByState,
        choice: Existing | Join,
        patience: Patience,
    ) -> Reply | None:
        """None: something has changed, look again."""
        joins = isinstance(choice, Join)
        handover = self._claiming.reserve(ask, step, How.JOINED if joins else How.REPLAYED)
        retries = isinstance(choice, Existing) and choice.is_retry
        counts = joins or (retries and retry_is_durable(row, handover.exchange))
        chosen = _Chosen(step, handover, counts)
        return await self._guarded(handover, self._serve(ask, chosen, what, patience))

    async def first(self, ask: RunAsk, step: Step) -> Reply | None:
        """The common case of a re-run: a call that is done, and not yet given to this attempt."""
        chosen = _Chosen(step, self._claiming.reserve(ask, step, How.REPLAYED), counts=False)
        return await self._guarded(chosen.handover, self._replay(ask, chosen))

    async def _guarded(self, handover: Handover, serving: Awaitable[Reply | None]) -> Reply | None:
        """Whatever happens, it is known how the handing over stands."""
        try:
            reply = await serving
        except Superseded:
            reply = None
        except Refusal:
            handover.problem()
            raise
        except BaseException:
            handover.abandoned()
            raise
        if reply is None:
            handover.take_back()
        return reply

    async def _serve(
        self, ask: RunAsk, chosen: _Chosen, what: Again | ByState, patience: Patience
    ) -> Reply | None:
        match what:
            case Again(problem) if problem != ANSWER:
                if problem == "in-doubt" and await self._shared_is_settled(chosen.step):
                    chosen.handover.take_back()
                    return await self._claiming.claim(ask, chosen.step.occurrence, chosen.step)
                raise recorded_problem(await self._claiming.row(ask, chosen.step), problem)
            case Again():
                return await self._replay(ask, chosen)
            case ByState(State.PENDING):
                return await self._join(ask, chosen, patience)
            case ByState():
                return await self._held(ask, chosen, patience)
            case _:
                assert_never(what)

    async def _shared_is_settled(self, step: Step) -> bool:
        """The doubt was the shared call's, and it has an answer by now or a person knew more. What has lapsed
        since says nothing: it may have been executed."""
        if not step.in_run.shared:
            return False
        call = await self._ledger.get(bytes.fromhex(step.in_run.shared))
        return call is not None and call.state is not State.IN_DOUBT and is_live(call, self._clock.now())

    async def _replay(self, ask: RunAsk, chosen: _Chosen) -> Reply | None:
        step, handover, counts = chosen
        call = await self._claiming.row(ask, step)
        if counts:
            call = await self.uses.count(call, handover)
        assert call.answer is not None  # done, or sealed with an answer
        lost = call.answer.place is Place.NOWHERE
        produced = None if lost else await self._ledger.answers.produce(call, call.answer)
        if produced is None:
            if call.safe:
                handover.take_back()
                return await self._claiming.claim(ask, step.occurrence, ask.book.step(step.key))
            why = call.answer.why_nowhere or "its answer is lost or damaged"
            raise unavailable(call.id, why)
        handover.final = call.state is State.DONE
        if not isinstance(produced.body, bytes):  # it takes a while: others should know
            handover.begun()
        self._store.mark_replayed(step.key, self._clock.now())
        self._notice_polling(ask, step)
        return Replayed(call, produced, handover)

    def _notice_polling(self, ask: RunAsk, step: Step) -> None:
        times = ask.book.replayed_at.get(step.key)
        if times is None:
            ask.book.replayed_at[step.key] = (self._clock.now(),)
            return
        kept, polls = after_replay(times, self._clock.now())
        ask.book.replayed_at[step.key] = kept
        if polls:
            told = {"upstream": step.upstream, "rule": step.rule, "call": step.id}
            self._observer.noted(POLLING, run=ask.book.run.name, **told)

    async def _join(self, ask: RunAsk, chosen: _Chosen, patience: Patience) -> Reply | None:
        """Somebody is sending it: get what that caller gets."""
        step, handover, counts = chosen
        flight = self._flights.by_key.get(step.key)
        if flight is None:
            return await self._watch(ask, chosen, patience)
        call = await flight.row()
        if call is None:  # its claim came to nothing
            return None
        if counts:
            await self.uses.count(call, handover)
        identity = occurrence_of(ask.family, step.run, step.occurrence)
        live = await self._flights.join(flight, identity, patience.others, ask.boards)
        return handing_on(live, handover)

    async def _watch(self, ask: RunAsk, chosen: _Chosen, patience: Patience) -> Reply | None:
        """Another process is sending it. Its released answer is for this caller too; nothing is claimed."""
        step, handover, counts = chosen
        call = await self._claiming.row(ask, step)
        if counts:
            call = await self.uses.count(call, handover)
        while call.state is State.PENDING:
            await self._exchange.stand_by(core.Wait(call), patience)
            present = await self._ledger.get(step.key)
            if present is None:
                return None
            self._books.row(present)
            call = present
        now = ask.book.step(step.key)
        if call.answer is not None and now is not None:
            return await self._replay(ask, _Chosen(now, handover, counts=False))
        if call.in_run is not None and call.in_run.receipts:
            raise recorded_problem(call, call.in_run.receipts[-1].problem)
        return None

    async def _held(self, ask: RunAsk, chosen: _Chosen, patience: Patience) -> Reply | None:
        step = chosen.step
        call = await self._claiming.row(ask, step)
        if call.state is State.IN_DOUBT:
            return await self._doubtful(ask, chosen, call)
        identity = occurrence_of(ask.family, step.run, step.occurrence)
        decision = core.decide(call, identity, now=self._clock.now())
        await self._exchange.stand_by(decision, patience)
        return None

    async def _doubtful(self, ask: RunAsk, chosen: _Chosen, call: Call) -> Reply | None:
        """What the rule allows is done. A doubt that is given to an attempt counts as received."""
        try:
            again = await self._exchange.doubts.may_resend(call, ask.rule, ask.sending)
        except InDoubt:
            await self.uses.receive(call, "in-doubt", ask.book)
            raise
        if not again:
            return None
        if call.run != ask.book.run.name:  # a fork has no row of it: sending it here would be a new call
            assert call.doubt is not None
            raise in_doubt(call, call.doubt, f"it belongs to the run {call.run}: make it there")
        chosen.handover.take_back()
        return await self._claiming.claim(ask, chosen.step.occurrence, chosen.step)
