"""Calls on their way: claim (durable), send, judge, settle (durable); only then the caller gets the end.

Free of aiohttp, threads and clocks. Every send runs in a task of its own, so a caller who leaves never
stops a call with effects. No swap result is ignored; what cannot be known ends in doubt.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from functools import partial

from proxy import faults
from proxy.asking import Ask, Boards, Labels, Live, Source, unheard
from proxy.carrying import Carrier
from proxy.clock import Clock
from proxy.core import decide as core
from proxy.core.approval import is_granted
from proxy.core.clauses import UpstreamKey
from proxy.core.identity import Identity
from proxy.core.intent import Call, Event, State
from proxy.core.jsonrpc import Id
from proxy.core.policy import Mode, OnDisconnect, Rule
from proxy.core.run_record import RECEIVED_PROBLEMS, Receipt
from proxy.core.scrubbing import Secrets, scrubbed
from proxy.drift import differs
from proxy.errors import BudgetExceeded, Refusal, StoreUnavailable
from proxy.faults import Point
from proxy.flight import Flight, Superseded, Unrecordable
from proxy.intended import Intent
from proxy.judge import Judgement, judge, passing_failed, withholds, without_words
from proxy.ledger import Claimed, Ledger, RaceLost, Uncertain
from proxy.observe import DRIFT, Observer
from proxy.outgoing import again
from proxy.pricing import Price, price_now
from proxy.problem import problem_of
from proxy.recorded import Unrepeatable
from proxy.refusals import collision, conflict, in_doubt, in_progress
from proxy.store.base import Store
from proxy.store.codec import Codec
from proxy.stream import Capture, CaptureLimits, CutOff
from proxy.upstream.base import Answered, Lost, Outgoing, Tap, UpstreamClient

# Marking what had to be stopped is a write or two. If the store does not take it, recovery will see to it.
MARKING_PATIENCE = 5.0


class Flights:
    """`by_key` are those that have a name."""

    def __init__(
        self,
        *,
        store: Store,
        ledger: Ledger,
        upstream: UpstreamClient,
        clock: Clock,
        observer: Observer,
        limits: CaptureLimits,
        codec: Codec,
        price: Price = price_now,
    ) -> None:
        self._store = store
        self._codec = codec
        self._ledger = ledger
        self.carrier = Carrier(
            store=store,
            ledger=ledger,
            upstream=upstream,
            clock=clock,
            observer=observer,
            is_stopping=lambda: self.stopping,
        )
        self._clock = clock
        self._observer = observer
        self._limits = limits
        self._longest_whole = min(limits.kept, ledger.answers.inline_body)
        self._price = price
        self.by_key: dict[bytes, Flight] = {}
        self.position: Callable[[Call], int] = lambda call: call.seq  # how far its run has come
        self._aloft: dict[asyncio.Task[None], Flight] = {}  # also those that are only passed through
        self.stopping = False

    # ---- taking off ----

    def take_off(self, ask: Ask, over: Call | None) -> Flight:
        if self.stopping:
            raise StoreUnavailable("semel is shutting down and nothing was sent; call again.")
        outgoing = ask.sending.outgoing()
        intent = ask.sending.intent(ask.identity, outgoing)
        if ask.payer:
            intent = intent._replace(payer=ask.payer)
        if ask.place is not None:
            intent = intent._replace(place=ask.place, occurrence=ask.occurrence)
        if ask.source is not None:  # the shared call is the one that is sent, and permitted
            intent = intent._replace(key=None, bound_to=b"", free=True)
        flight = Flight(
            # Nothing that leads back to the flight: what is in a circle is freed late.
            partial(self._capture, ask.safe, ask.rule, intent.key, outgoing.rpc),
            cancels=ask.safe and ask.rule.on_disconnect is OnDisconnect.CANCEL,
            identity=ask.identity,
            longest=self._longest_whole if _is_alone(ask, outgoing) else 0,
        )
        if over is not None:
            self._mind_the_past(flight, ask, over)
        flight.on_defect = partial(self._note_defect, secrets=intent.secrets)
        if ask.place is not None:
            flight.expect_row()
        self.by_key[ask.identity.key] = flight
        self._start(flight, self._fly(flight, intent, outgoing, over, ask.source))
        return flight

    def _capture(self, safe: bool, rule: Rule, sent_with: UpstreamKey | None, rpc: Id | None) -> Capture:
        held, limits = partial(withholds, safe=safe, rule=rule, sent_with=sent_with, rpc=rpc), self._limits
        return Capture(limit=limits.kept, memory=limits.memory, directory=limits.directory, withholds=held)

    def _mind_the_past(self, flight: Flight, ask: Ask, over: Call) -> None:
        if over.state is State.IN_DOUBT:
            flight.capture.unresolved = True
        if ask.place is None and not ask.refresh and core.is_stale(over, ask.rule, self._clock.now()):
            flight.renews = over
            flight.capture.withhold()  # whether it differs is said in its head, and known at its end

    def _start(self, flight: Flight, flying: Coroutine[None, None, None]) -> None:
        flight.on_defect = flight.on_defect or self._note_defect
        flight.task = asyncio.get_running_loop().create_task(flying)
        self._aloft[flight.task] = flight
        flight.task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        del self._aloft[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._note_defect(error)

    def _note_defect(self, error: BaseException, secrets: Callable[[], Secrets] = Secrets) -> None:
        """An error's message may repeat what it stumbled over."""
        hidden = secrets()
        told = "".join(traceback.format_exception(error))
        if hidden.anything:
            told = "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__
        self._observer.noted("defect", error=scrubbed(told, hidden._replace(anything=False)))

    async def forward(self, outgoing: Outgoing, labels: Labels, *, safe: bool, tap: Tap | None) -> Live:
        flight = Flight(partial(Capture, limit=0, hold_end=False), cancels=True)
        self._start(flight, self._pass_through(flight, outgoing, labels, safe, tap))
        return await self.board(flight, unheard, joined=False)

    async def _pass_through(
        self, flight: Flight, outgoing: Outgoing, labels: Labels, safe: bool, tap: Tap | None
    ) -> None:
        if tap is None:
            result = await self.carrier.send(flight, outgoing, labels, safe=safe)
        else:
            result, safe = await self.carrier.send_once(flight, outgoing, labels, tap), False
        if isinstance(result, Answered):
            flight.capture.seal(stored=False)
        else:
            flight.refuse(passing_failed(result, safe=safe))

    async def join(self, flight: Flight, identity: Identity, deadline: float, boards: Boards) -> Live:
        assert flight.identity is not None  # only named flights are in the table
        if flight.identity.named_by != identity.named_by:
            raise collision()
        if flight.identity.fingerprint != identity.fingerprint:
            raise conflict(identity.id) if identity.named_by else collision()
        left = deadline - self._clock.monotonic()
        if flight.stopped and flight.task is not None:
            # Its last caller left and it is being settled: this caller's call is another one.
            if left <= 0 or not await self._clock.within(left, asyncio.wait({flight.task})):
                raise in_progress(identity.id)
            raise Superseded
        boarded: list[Live] = []

        async def get_on() -> None:
            boarded.append(await self.board(flight, boards, joined=True))

        no_more = flight.capture.overflowed or isinstance(flight.capture.refusal, CutOff)
        if no_more or left <= 0 or not await self._clock.within(left, get_on()):
            raise in_progress(identity.id)
        return boarded[0]

    async def board(self, flight: Flight, boards: Boards, *, joined: bool) -> Live:
        flight.callers += 1
        live = Live(flight, joined, given=flight.capture.reader() if joined else None)
        boards(live)
        try:
            if live.given is None:
                await flight.begun(live)
            if live.given is not None:
                await live.given.begin()
        except BaseException:
            live.leave()
            raise
        return live

    # ---- flying ----

    async def _fly(
        self, flight: Flight, intent: Intent, outgoing: Outgoing, over: Call | None, source: Source | None
    ) -> None:
        # What is in doubt was permitted before it was sent, and is the same call still.
        doubted = over if over is not None and over.state is State.IN_DOUBT else None
        try:
            if intent.bound_to and not (doubted or is_granted(over, intent.permission, self._clock.now())):
                await self._ask_person(flight, intent, over)
                return
            if doubted is not None:
                outgoing = await again(doubted, intent, outgoing, self._store, self._codec)
            faults.reach(Point.BEFORE_CLAIM)
            match await self._ledger.claim(intent, over):
                case Claimed(call):
                    faults.reach(Point.CLAIMED)
                    flight.claimed(call)
                    if outgoing.errand is not None:
                        outgoing.errand.claimed(call)
                    await self._carry_out(flight, intent, outgoing, call, source)
                case RaceLost():
                    flight.refuse(Superseded())
                case Uncertain(claim, error):
                    # In a run nothing goes out without a record, nor what a budget limits.
                    passes = intent.safe and intent.place is None and intent.rule.budget is None
                    flight.refuse(Unrecordable() if passes else error)
                    if claim is not None:
                        await self._ledger.withdraw(claim)
        except (StoreUnavailable, BudgetExceeded) as error:  # nothing is claimed
            flight.refuse(error)
        except Unrepeatable as error:
            assert over is not None
            assert over.doubt is not None
            flight.refuse(in_doubt(over, over.doubt, str(error)))
        finally:
            flight.claimed(None)
            # When giving up, the row stays pending: recovery will see to it.
            del self.by_key[intent.identity.key]
            if not flight.is_over:
                flight.refuse(in_progress(intent.identity.id))

    async def _ask_person(self, flight: Flight, intent: Intent, over: Call | None) -> None:
        """Whoever asked looks again, and finds the question or what came first."""
        try:
            await self._ledger.ask_person(intent, over)
        except StoreUnavailable as error:
            flight.refuse(error)
        else:
            flight.refuse(Superseded())

    async def _carry_out(
        self, flight: Flight, intent: Intent, outgoing: Outgoing, call: Call, source: Source | None
    ) -> None:
        patience = outgoing.timeouts.total
        try:
            if source is not None:
                judgement = await self._take_over(flight, source, intent, call)
            else:
                if call.terms is not None and call.terms.key:
                    call, judgement = await self.carrier.carry(flight, intent, outgoing, call)
                else:
                    judgement = await self.carrier.carry_once(flight, intent, outgoing, call)
                judgement = without_words(judgement, call, intent.secrets)
            await self._settle(flight, intent, call, judgement, patience)
        except Exception as error:
            # A defect of ours. It was sent, and nobody knows what to make of it: that is doubt, not silence.
            self._note_defect(error, intent.secrets)
            judgement = judge(
                Lost(f"semel failed ({type(error).__name__})"),
                Capture(limit=0),
                intent.rule,
                call,
                self._clock.now(),
            )
            await self._settle(flight, intent, call, judgement, patience)

    async def _take_over(self, flight: Flight, source: Source, intent: Intent, call: Call) -> Judgement:
        """From a call that others share: that one was claimed, sent and settled by itself."""
        try:
            result = await source(flight)
        except Refusal as refusal:
            why = f"the shared call was refused: {problem_of(refusal).name}"
            return Judgement(core.Settlement(event=Event.NOT_EXECUTED, why=why), refusal=refusal)
        if isinstance(result, Answered):
            flight.capture.complete()
        return judge(result, flight.capture, intent.rule, call, self._clock.now())

    async def _settle(
        self, flight: Flight, intent: Intent, call: Call, judgement: Judgement, patience: float
    ) -> None:
        """The caller sees the end only after the record is durable; if that never happens, never."""
        deadline = self._clock.monotonic() + patience

        def on_trouble(trouble: StoreUnavailable) -> None:
            if self.stopping or self._clock.monotonic() > deadline:
                flight.refuse(CutOff(trouble.detail))

        settlement = self._with_receipt(judgement, call) if call.run else judgement.settlement
        if intent.rule.cost is not None and settlement.event is Event.ANSWERED:
            flight.cost_usd = await self._price(intent.rule, flight.capture)
            settlement = settlement._replace(cost_usd=flight.cost_usd)
        if flight.renews is not None and judgement.keeps_answer:
            flight.drifted = await differs(flight.renews, flight.capture, self._ledger.answers)
            if flight.drifted:
                settlement = settlement._replace(why=f"{settlement.why}, and not what was recorded before")
                self._observer.noted(DRIFT, call=call.id, upstream=call.upstream, rule=call.rule)
        kept = (flight.whole or flight.capture) if judgement.keeps_answer else None
        settled = await self._ledger.settle(call, settlement, kept, intent.rule, on_trouble)
        faults.reach(Point.SETTLED)
        if flight.is_over:
            return
        if settled is None:
            flight.refuse(Superseded())
        elif judgement.refusal is not None:
            flight.refuse(judgement.refusal)
        else:
            flight.seal(stored=judgement.keeps_answer)

    def _with_receipt(self, judgement: Judgement, call: Call) -> core.Settlement:
        """In a run the problem that the caller is given is written along: it goes on knowing it."""
        name = "" if judgement.refusal is None else problem_of(judgement.refusal).name
        if name not in RECEIVED_PROBLEMS:
            return judgement.settlement
        receipt = Receipt(attempt=call.attempt, problem=name, position=self.position(call))
        return judgement.settlement._replace(receipt=receipt)

    # ---- leaving ----

    @property
    def in_flight(self) -> int:
        return len(self._aloft)

    async def drain(self, patience: float) -> int:
        """Let what is in flight finish; stop and mark the rest. Returns how many had to be stopped."""
        self.stopping = True
        if await self._all_landed(patience):
            return 0
        stopped = sum(flight.stop() for flight in self._aloft.values())
        if not await self._all_landed(MARKING_PATIENCE):
            for flight in self._aloft.values():
                flight.give_up()
            await self._all_landed(MARKING_PATIENCE)
        return stopped

    async def _all_landed(self, patience: float) -> bool:
        return not self._aloft or await self._clock.within(patience, asyncio.wait(self._aloft))


def _is_alone(ask: Ask, outgoing: Outgoing) -> bool:
    """Neither of a run, nor shared, nor done by others for us: of those more is asked than how it ended."""
    mine = ask.place is None and ask.source is None and ask.rule.mode is Mode.ONCE
    return mine and outgoing.errand is None and outgoing.rpc is None
