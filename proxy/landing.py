"""From a claim to the end of a flight: send, judge, settle (durable); only then the caller gets the end.

What is here takes a task: it waits for whatever has to be waited for. A plain call gets along without
(nonstop.py), and comes here as soon as anything about it is not plain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from proxy import faults
from proxy.asking import Source
from proxy.carrying import Carrier
from proxy.claimed import UNTRIED, Tried
from proxy.clock import Clock
from proxy.core import decide as core
from proxy.core.intent import Call, Event
from proxy.core.run_record import RECEIVED_PROBLEMS, Receipt
from proxy.core.scrubbing import Secrets
from proxy.drift import differs
from proxy.errors import Refusal, StoreUnavailable
from proxy.faults import Point
from proxy.flight import Flight, Superseded
from proxy.intended import Intent
from proxy.judge import Judgement, judge, without_words
from proxy.ledger import Ledger
from proxy.observe import DRIFT, Observer
from proxy.pricing import Price
from proxy.problem import problem_of
from proxy.stream import Capture, CutOff
from proxy.upstream.base import Answered, Lost, Outgoing, Result

NoteDefect = Callable[[BaseException, Callable[[], Secrets]], None]


class Landing:
    def __init__(
        self,
        *,
        ledger: Ledger,
        carrier: Carrier,
        clock: Clock,
        observer: Observer,
        price: Price,
        note_defect: NoteDefect,
        is_stopping: Callable[[], bool],
    ) -> None:
        self.carrier = carrier
        self.position: Callable[[Call], int] = lambda call: call.seq  # how far its run has come
        self._ledger = ledger
        self._clock = clock
        self._observer = observer
        self._price = price
        self._note_defect = note_defect
        self._is_stopping = is_stopping

    async def carry_out(
        self,
        flight: Flight,
        intent: Intent,
        outgoing: Outgoing,
        call: Call,
        source: Source | None = None,
        begun: Awaitable[Result] | None = None,
    ) -> None:
        """`begun`: it is being sent, or was, and that is what comes of it."""
        patience = outgoing.timeouts.total
        try:
            if source is not None:
                judgement = await self._take_over(flight, source, intent, call)
            else:
                if call.terms is not None and call.terms.key:
                    call, judgement = await self.carrier.carry(flight, intent, outgoing, call)
                else:
                    judgement = await self.carrier.carry_once(flight, intent, outgoing, call, begun)
                judgement = without_words(judgement, call, intent.secrets)
            await self.settle(flight, intent, call, judgement, patience)
        except Exception as error:
            await self.fail(flight, intent, call, patience, error)

    async def fail(
        self, flight: Flight, intent: Intent, call: Call, patience: float, error: BaseException
    ) -> None:
        """A defect of ours. It was sent, and nobody knows what to make of it: that is doubt, not silence."""
        self._note_defect(error, intent.secrets)
        judgement = judge(
            Lost(f"semel failed ({type(error).__name__})"),
            Capture(limit=0),
            intent.rule,
            call,
            self._clock.now(),
        )
        await self.settle(flight, intent, call, judgement, patience)

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

    async def settle(
        self,
        flight: Flight,
        intent: Intent,
        call: Call,
        judgement: Judgement,
        patience: float,
        tried: Tried = UNTRIED,
    ) -> None:
        """The caller sees the end only after the record is durable; if that never happens, never."""
        deadline = self._clock.monotonic() + patience

        def on_trouble(trouble: StoreUnavailable) -> None:
            if self._is_stopping() or self._clock.monotonic() > deadline:
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
        settled = await self._ledger.settle(call, settlement, kept, intent.rule, on_trouble, tried)
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
