"""What becomes of a call that is asked for: replay it, join who is sending it, hold it, or send it.

    ask      what is stored decides; flying.py does the sending

Free of aiohttp, threads and clocks.
"""

from __future__ import annotations

from typing import assert_never

from proxy.asking import Ask, Labels, Live, Patience, Replayed, Reply, Unrecorded
from proxy.clock import Clock
from proxy.core import decide as core
from proxy.core.intent import Call
from proxy.doubts import Doubts
from proxy.errors import StoreUnavailable
from proxy.flight import Superseded, Unrecordable
from proxy.flying import Flights
from proxy.ledger import Ledger
from proxy.refusals import awaiting, collision, conflict, denied, in_progress, stale, unavailable
from proxy.store.base import Store
from proxy.upstream.base import Outgoing, Tap

# How soon somebody who waits for another process notices that it has died.
OWNER_CHECK = 0.5
# How soon somebody who waits for a person notices that the question has lapsed.
LAPSE_CHECK = 5.0


class Exchange:
    def __init__(
        self, *, store: Store, ledger: Ledger, flights: Flights, doubts: Doubts, clock: Clock
    ) -> None:
        self.doubts = doubts
        self._store = store
        self._ledger = ledger
        self._flights = flights
        self._clock = clock

    async def ask(self, ask: Ask, boarded: Live | None = None, since: float = 0.0) -> Reply:
        """`boarded`: whoever asks has taken off already, then, and waits for that first."""
        patience = Patience.of(ask.rule, since or self._clock.monotonic())
        unread = boarded is not None or (
            not self._flights.stopping and self._ledger.expects_nothing(ask.identity.key)
        )
        has_flown = False
        while True:
            try:
                if boarded is None:
                    reply = await self._ask_once(ask, patience, unread=unread, has_flown=has_flown)
                else:
                    live, boarded = boarded, None
                    return await self._flights.wait_for(live)
            except Superseded:
                has_flown = has_flown or not unread  # a guess that was wrong is no turn in the air
                unread = False
                continue
            except Unrecordable:
                return Unrecorded()
            except StoreUnavailable:
                # Outside runs a safe call needs no record, but what a budget limits is counted or not sent.
                if ask.safe and not self._flights.stopping and ask.rule.budget is None:
                    return Unrecorded()
                raise
            if reply is not None:
                return reply

    async def _ask_once(self, ask: Ask, patience: Patience, *, unread: bool, has_flown: bool) -> Reply | None:
        """None: something has changed, look again. `unread`: most likely there is no row; the claim sees."""
        identity = ask.identity
        flight = self._flights.by_key.get(identity.key)
        if flight is not None:
            return await self._flights.join(flight, identity, patience.others, ask.boards)
        row = None if unread else await self._ledger.get(identity.key)
        decision = core.decide(row, identity, now=self._clock.now(), refresh=ask.refresh, rule=ask.rule)
        if isinstance(decision, core.Replay):
            answer = await self._ledger.answers.produce(decision.call, decision.answer)
            if answer is not None:
                self._store.mark_replayed(identity.key, self._clock.now())
                return Replayed(decision.call, answer)
            decision = core.answer_lost(decision.call, "its answer is lost or damaged")
        over: Call | None
        match decision:
            case core.Claim(over):
                pass
            case core.Hold(over):
                if not await self.doubts.may_resend(over, ask.rule, ask.sending):
                    return None
            case _:
                await self.stand_by(decision, patience)
                return None
        if identity.key in self._flights.by_key:  # somebody took off while we were reading
            return None
        if has_flown and self._clock.monotonic() >= patience.end:  # others keep taking it away from us
            raise in_progress(identity.id)
        return await self._flights.board(self._flights.take_off(ask, over), ask.boards, joined=False)

    async def forward(
        self, outgoing: Outgoing, labels: Labels, *, safe: bool, tap: Tap | None = None
    ) -> Live:
        """Without a record: parts go through as they come, and the send ends when its caller leaves. With a
        `tap` as if nobody stood between: sent once whatever comes of it, and a break is handed on as one."""
        return await self._flights.forward(outgoing, labels, safe=safe, tap=tap)

    async def stand_by(self, decision: core.Decision, patience: Patience) -> None:
        """Somebody else has the call: wait for a change, or say why it is held."""
        match decision:
            case core.Wait(call):
                # Our own without a flight is as orphaned as a dead owner's; the swap fails if it has landed.
                left_behind = call.owner == self._store.owner and call.key not in self._flights.by_key
                if left_behind or await self._store.owner_is_dead(call.owner):
                    await self._ledger.recover(call)
                    return
                left = patience.others - self._clock.monotonic()
                if left <= 0:
                    raise in_progress(call.id)
                # A dead owner changes nothing: look again now and then, not only when something changes.
                await self._store.changed(call.key, call.version, min(left, OWNER_CHECK))
            case core.Unavailable(call, why):
                raise unavailable(call.id, why)
            case core.AwaitPerson(call):
                left = patience.person - self._clock.monotonic()
                if left <= 0:
                    raise awaiting(call)
                # A question that lapses changes nothing by itself: look again now and then.
                await self._store.changed(call.key, call.version, min(left, LAPSE_CHECK))
            case core.Refused(call):
                raise denied(call)
            case core.Lapsed(call):
                await self._ledger.lapse(call)
            case core.TooOld(call, age, most):
                raise stale(call, age, most)
            case core.Conflict(call):
                raise conflict(call.id)
            case core.Collision():
                raise collision()
            case core.Claim() | core.Replay() | core.Hold():
                raise AssertionError("not for standing by")
            case _:
                assert_never(decision)
