"""A flight without stops: a plain call that goes by the book needs no task of its own.

Claim, send, judge, settle, in the same order, by the same functions and past the same fault points as in
flying.py and landing.py; but each step is taken by whoever tells of the step before it: the store's commit,
the upstream's answer. Nothing else is done here. What does not go by the book (the claim is lost or unsure,
no connection is warm, the answer comes in parts, has to be read, or never comes, the store fails) is handed
at that very point to a task, under the same name, with what is known by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from proxy import faults
from proxy.asking import Labels
from proxy.claimed import ClaimResult, Tried
from proxy.core.identity import Identity
from proxy.core.intent import Answer, Call
from proxy.errors import StoreUnavailable
from proxy.faults import Point
from proxy.flight import Flight
from proxy.intended import Intent
from proxy.judge import Judgement
from proxy.refusals import in_progress
from proxy.store.base import Swap
from proxy.stream import Capture
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, UnderWay

if TYPE_CHECKING:
    from proxy.flying import Flights


class Nonstop(Flight):
    """The store tells it as it tells a future (`done`, `set_result`, `set_exception`), the upstream by
    `answered` or `goes_on`. None of them ever raises."""

    _call: Call | None = None  # as it is, or may be, claimed
    _judgement: Judgement | None = None  # by which it is being settled
    _answer: Answer | None = None  # and with which answer
    _way: UnderWay | None = None  # while the upstream has it
    _began = 0.0  # the step that is waited for
    _stands = False  # the claim is durable
    _hears = True  # until it has landed, or has a task

    def __init__(
        self,
        flights: Flights,
        intent: Intent,
        outgoing: Outgoing,
        make_capture: Callable[[], Capture],
        *,
        identity: Identity,
        longest: int,
    ) -> None:
        super().__init__(make_capture, cancels=False, identity=identity, longest=longest)
        self._flights = flights
        self._intent = intent
        self._outgoing = outgoing

    def done(self) -> bool:
        return not self._hears

    # ---- claim ----

    def depart(self) -> None:
        flights = self._flights
        try:
            faults.reach(Point.BEFORE_CLAIM)
            self._began = flights.clock.monotonic()
            self._call = flights.ledger.plain.claim_soon(self._intent, self)
        except StoreUnavailable as error:
            self._uncertain(None, error)
        except Exception as error:
            self._fail(error)

    def set_result(self, swap: Swap) -> None:
        """The store has swapped, or somebody else's row stands there."""
        try:
            if self._judgement is None:
                self._on_claim(swap)
            else:
                self._on_settlement(swap, self._judgement)
        except Exception as error:
            self._fail(error)

    def set_exception(self, error: BaseException) -> None:
        """The store does not know."""
        if not isinstance(error, StoreUnavailable):
            self._fail(error)
        elif self._judgement is not None:
            self._settle_patiently(self._judgement, error)
        else:
            self._uncertain(self._call, error)

    def _on_claim(self, swap: Swap) -> None:
        flights, call = self._flights, self._call
        assert call is not None
        if not flights.ledger.plain.swapped(swap, self._began):
            self._go_on(partial(self._claimed, flights.ledger.lost()))
            return
        self._stands = True
        faults.reach(Point.CLAIMED)
        self._send()

    # ---- send ----

    def _send(self) -> None:
        flights = self._flights
        assert flights.soon is not None
        self._began = flights.clock.monotonic()
        way: UnderWay | NotSent | None = NotSent("stopped before anything was sent")
        if not self.stopped:
            try:
                way = flights.soon(self._outgoing, self, self._may, self)
            except Exception as error:
                flights.note_defect(error, self._intent.secrets)
                why = f"semel failed ({type(error).__name__})"
                self.answered(Lost(why) if self._may_be_out else NotSent(why))
                return
        if way is None:
            self._carry_on(None)
        elif isinstance(way, NotSent):
            self.answered(way)
        else:
            self._way = way

    def _may(self) -> bool:
        assert self._call is not None
        self._may_be_out = self._flights.carrier.owns(self._call.owner)
        return self._may_be_out

    def answered(self, result: Result) -> None:
        """The send is over."""
        self._way = None
        call, intent, carrier = self._call, self._intent, self._flights.carrier
        assert call is not None
        try:
            judgement = None
            if self.whole is not None and type(result) is Answered:
                judgement = carrier.judge_at_once(self.whole.status, intent, call)
            if judgement is None or judgement.refusal is not None:
                told = asyncio.get_running_loop().create_future()
                told.set_result(result)
                self._carry_on(told)
                return
            carrier.sent(self, Labels(intent.upstream, intent.rule.name), result, self._began)
            faults.reach(Point.ANSWER_COMPLETE)
            self._settle(call, judgement)
        except Exception as error:
            self._fail(error)

    def goes_on(self, rest: Awaitable[Result]) -> None:
        self._way = None
        self._carry_on(rest)

    # ---- settle ----

    def _settle(self, call: Call, judgement: Judgement) -> None:
        flights = self._flights
        self._judgement = judgement
        self._began = flights.clock.monotonic()
        kept = self.whole if judgement.keeps_answer else None
        try:
            settled = flights.ledger.plain.settle_soon(call, judgement.settlement, kept, self)
        except StoreUnavailable as error:
            self._settle_patiently(judgement, error)
        else:
            self._answer = settled.answer

    def _on_settlement(self, swap: Swap, judgement: Judgement) -> None:
        if not self._flights.ledger.plain.swapped(swap, self._began):
            self._settle_patiently(judgement)
            return
        faults.reach(Point.SETTLED)
        self._hears = False
        self._flights.forget(self)
        self.seal(stored=judgement.keeps_answer)

    # ---- what does not go by the book ----

    def _go_on(self, rest: Callable[[], Awaitable[None]]) -> None:
        """In a task from here on."""
        self._hears = False
        self.on_defect = partial(self._flights.note_defect, secrets=self._intent.secrets)
        self._flights.goes_on(self, rest)

    def _uncertain(self, call: Call | None, error: StoreUnavailable) -> None:
        self._go_on(partial(self._claimed, self._flights.ledger.uncertain(call, error)))

    def _claimed(self, result: ClaimResult) -> Awaitable[None]:
        return self._flights.claimed(self, self._intent, self._outgoing, result)

    def _carry_on(self, begun: Awaitable[Result] | None) -> None:
        assert self._call is not None
        self.under_way_since = self._began
        carry_out = self._flights.landing.carry_out
        self._go_on(partial(carry_out, self, self._intent, self._outgoing, self._call, begun=begun))

    def _settle_patiently(self, judgement: Judgement, failed: StoreUnavailable | None = None) -> None:
        """It may have landed: whoever settles looks at what stands there."""
        assert self._call is not None
        patience, tried = self._outgoing.timeouts.total, Tried(self._answer, failed)
        settle = self._flights.landing.settle
        self._go_on(partial(settle, self, self._intent, self._call, judgement, patience, tried))

    def _fail(self, error: BaseException) -> None:
        """A defect of ours. Before the claim stands nothing was sent; from then on it is doubt."""
        flights, call = self._flights, self._call
        if self._hears and self._stands and call is not None:
            patience = self._outgoing.timeouts.total
            self._go_on(partial(flights.landing.fail, self, self._intent, call, patience, error))
            return
        flights.note_defect(error, self._intent.secrets)
        if self._hears:
            self._land_without()

    # ---- leaving ----

    def stop(self) -> bool:
        way, self._way = self._way, None
        if way is None:
            is_sending = super().stop()
            if not is_sending and not self._hears:  # its task may not have come to the send yet
                asyncio.get_running_loop().call_soon(super().stop)
            return is_sending
        self.stopped = True
        way.abandon()
        why = "semel stopped waiting for the answer"
        self.answered(Lost(why) if self._may_be_out else NotSent("stopped before anything was sent"))
        return True

    def give_up(self) -> None:
        super().give_up()
        if self._way is not None:
            self._way.abandon()
        if self._hears:  # the store has not said anything
            self._land_without()

    def _land_without(self) -> None:
        self._hears = False
        self._flights.forget(self)
        if not self.is_over:
            self.refuse(in_progress(self._intent.identity.id))
