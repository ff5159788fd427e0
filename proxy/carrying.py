"""Sending what was claimed: once, and again only where that is proven harmless.

Nothing was sent; or the call is safe and nobody has seen a part of its answer; or the upstream knows it by
its key. Everything else is for whoever asks again, or for a person.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from proxy import faults
from proxy.asking import Labels
from proxy.clock import Clock
from proxy.core.clauses import OnDoubt
from proxy.core.doubt import Resend, way_out
from proxy.core.intent import Call, evolve
from proxy.core.policy import Rule
from proxy.errors import StoreUnavailable
from proxy.faults import Point
from proxy.flight import Flight
from proxy.intended import Intent
from proxy.judge import Judgement, judge, judge_by_status, key_of
from proxy.ledger import Ledger
from proxy.observe import Observer, Sent
from proxy.outgoing import with_key
from proxy.store.base import Store
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, Tap, UpstreamClient

# A failed connect is tried once more after a moment: a restarting upstream is often back by then.
RECONNECT_PAUSE = 0.1
# Before each resend under an upstream key: what hinders an upstream is often over soon.
RESEND_PAUSES = (0.25, 1.0, 3.0)
# What is said of a send whose end nobody saw.
LEFT: Result = Lost("semel ended before the answer did")


def _unclaimed() -> bool:
    """Who has claimed nothing need not prove to be alive: what is only passed on goes out all the same."""
    return True


class Carrier:
    def __init__(
        self,
        *,
        store: Store,
        ledger: Ledger,
        upstream: UpstreamClient,
        clock: Clock,
        observer: Observer,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._store = store
        self._ledger = ledger
        self.upstream = upstream
        self._clock = clock
        self._observer = observer
        self._is_stopping = is_stopping
        # By upstream, rule and code: as many as there are figures of them.
        self._tellers: dict[tuple[str, str, str], Callable[[float], None]] = {}

    async def carry_once(
        self,
        flight: Flight,
        intent: Intent,
        outgoing: Outgoing,
        call: Call,
        begun: Awaitable[Result] | None = None,
    ) -> Judgement:
        """What has no upstream key: what is lost is lost. `begun`: it is under way already."""
        labels, may = Labels(intent.upstream, intent.rule.name), partial(self.owns, call.owner)
        result = await self.send(flight, outgoing, labels, safe=intent.safe, may=may, begun=begun)
        faults.reach(Point.ANSWER_COMPLETE)
        return self._judge(result, flight, intent, call)

    def _judge(self, result: Result, flight: Flight, intent: Intent, call: Call) -> Judgement:
        at_once = None if flight.whole is None else self.judge_at_once(flight.whole.status, intent, call)
        return at_once or judge(result, flight.capture, intent.rule, call, self._clock.now())

    def judge_at_once(self, status: int, intent: Intent, call: Call) -> Judgement | None:
        """The judgement of a whole answer, where nothing of it has to be read. Remembered for calls alike."""
        alike = intent.alike
        at_once = None if alike is None or call.unresolved else alike.judged.get(status)
        if at_once is None:
            at_once = judge_by_status(status, intent.rule, call)
            if at_once is not None and alike is not None:
                alike.judged[status] = at_once
        return at_once

    async def carry(
        self, flight: Flight, intent: Intent, outgoing: Outgoing, call: Call
    ) -> tuple[Call, Judgement]:
        """Under its upstream key: once, and a few times more while nobody has seen a part of an answer and
        what became of it is not known. The call as it is then, and what it came to."""
        labels, rule = Labels(intent.upstream, intent.rule.name), intent.rule
        key = key_of(call, rule)
        if key is not None and call.terms is not None:
            outgoing = with_key(outgoing, key, call.terms.key)
        deadline = self._clock.monotonic() + outgoing.timeouts.total
        pauses = iter(RESEND_PAUSES)
        while True:
            may = partial(self._may_go, call, rule)
            result = await self.send(flight, outgoing, labels, safe=intent.safe, may=may)
            faults.reach(Point.ANSWER_COMPLETE)
            judgement = self._judge(result, flight, intent, call)
            pause = next(pauses, None)
            in_time = pause is not None and self._clock.monotonic() + pause < deadline
            keyed = rule.in_doubt is OnDoubt.RESEND and key is not None
            if pause is None or not in_time or not (keyed and self._may_resend(flight, judgement, call)):
                return call, judgement
            flight.restart()  # whoever joins from now on waits for the next answer
            if not await self._prepared(call, rule, judgement.settlement.why, pause):
                return call, judgement
            assert judgement.settlement.doubt is not None
            call = evolve(call, unresolved=True, sends=call.sends + 1, doubt=judgement.settlement.doubt)
            flight.capture.unresolved = True

    def _may_resend(self, flight: Flight, judgement: Judgement, call: Call) -> bool:
        if judgement.settlement.doubt is None or judgement.mismatch:
            return False
        is_over = flight.handed_on or flight.stopped or self._is_stopping()
        return not is_over and self.owns(call.owner)

    async def _prepared(self, call: Call, rule: Rule, why: str, pause: float) -> bool:
        """Whether it may be sent again after a pause; the resend is in the history before."""
        try:
            await self._clock.sleep(pause)
            now = self._clock.now()
            if not isinstance(way_out(call, rule, now=now, mark=await self._store.clock_mark(now)), Resend):
                return False
            await self._ledger.note_resend(call, f"sent again under its upstream key: {why}")
        except StoreUnavailable:
            return False
        return not self._is_stopping()

    def owns(self, owner: str) -> bool:
        """Also by its name: a process that was taken for dead goes on under another, but not with what it had
        claimed before."""
        return self._store.owner == owner and self._store.owns()

    def _may_go(self, call: Call, rule: Rule) -> bool:
        """Asked at the last moment: of what is sent again also how old its key is, since a process may have
        stood still between its decision and its first byte."""
        usable = not call.unresolved or isinstance(
            way_out(call, rule, now=self._clock.now(), mark=0.0), Resend
        )
        return usable and self.owns(call.owner)

    async def send_once(self, flight: Flight, outgoing: Outgoing, labels: Labels, tap: Tap) -> Result:
        """As if nobody stood between: what fails has failed, and `tap` hears all of it."""
        began, result = self._clock.monotonic(), LEFT
        try:
            heard = tap.onto(flight.capture)
            result = await flight.interruptible(self.upstream, outgoing, heard, _unclaimed)
        finally:
            tap.ended(result)
        return self.sent(flight, labels, result, began)

    async def send(
        self,
        flight: Flight,
        outgoing: Outgoing,
        labels: Labels,
        *,
        safe: bool,
        may: Callable[[], bool] = _unclaimed,
        begun: Awaitable[Result] | None = None,
    ) -> Result:
        """Once; again only where nothing was sent, or the call is safe and nobody has seen a part."""
        began, sink = flight.under_way_since or self._clock.monotonic(), flight.sink
        result = await flight.interruptible(self.upstream, outgoing, sink, may, begun)
        harmless = (isinstance(result, NotSent) and not result.for_good) or (
            isinstance(result, Lost) and safe and not flight.handed_on
        )
        if harmless and not flight.stopped:
            flight.restart()
            if isinstance(result, NotSent):
                await self._clock.sleep(RECONNECT_PAUSE)
            first, result = result, await flight.interruptible(self.upstream, outgoing, sink, may)
            if isinstance(first, Lost) and isinstance(result, NotSent):
                result = first  # it was sent, that time: it counts, and may have cost something
        return self.sent(flight, labels, result, began)

    def sent(self, flight: Flight, labels: Labels, result: Result, began: float) -> Result:
        if isinstance(result, Answered):
            flight.complete()
        seconds = self._clock.monotonic() - began
        flight.seconds += seconds
        which = labels.upstream, labels.rule, result.code
        tell = self._tellers.get(which)
        if tell is None:
            tell = self._tellers[which] = self._observer.sent_again(Sent(*which, 0.0))
        tell(seconds)
        return result
