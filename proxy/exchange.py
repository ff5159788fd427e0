"""What becomes of a call that is asked for: replay it, join who is sending it, hold it, or send it.

    ask      what is stored decides; flying.py does the sending

Free of aiohttp, threads and clocks.
"""

from __future__ import annotations

from typing import assert_never

from proxy.asking import Ask, Labels, Live, Replayed, Reply, Unrecorded
from proxy.clock import Clock
from proxy.core import decide as core
from proxy.errors import AwaitingApproval, Denied, StoreUnavailable
from proxy.flight import Superseded, Unrecordable
from proxy.flying import Flights
from proxy.ledger import Ledger
from proxy.refusals import collision, conflict, in_doubt, in_progress, unavailable
from proxy.store.base import Store
from proxy.upstream.base import Outgoing

# How soon somebody who waits for another process notices that it has died.
OWNER_CHECK = 0.5


class Exchange:
    def __init__(self, *, store: Store, ledger: Ledger, flights: Flights, clock: Clock) -> None:
        self._store = store
        self._ledger = ledger
        self._flights = flights
        self._clock = clock

    async def ask(self, ask: Ask) -> Reply:
        deadline = self._clock.monotonic() + ask.rule.wait
        unread = not self._flights.stopping and self._ledger.expects_nothing(ask.identity.key)
        has_flown = False
        while True:
            try:
                reply = await self._ask_once(ask, deadline, unread=unread, has_flown=has_flown)
            except Superseded:
                has_flown = has_flown or not unread  # a guess that was wrong is no turn in the air
                unread = False
                continue
            except Unrecordable:
                return Unrecorded()
            except StoreUnavailable:
                if ask.safe and not self._flights.stopping:  # outside runs it needs no record
                    return Unrecorded()
                raise
            if reply is not None:
                return reply

    async def _ask_once(self, ask: Ask, deadline: float, *, unread: bool, has_flown: bool) -> Reply | None:
        """None: something has changed, look again. `unread`: most likely there is no row; the claim sees."""
        identity = ask.identity
        flight = self._flights.by_key.get(identity.key)
        if flight is not None:
            return await self._flights.join(flight, identity, deadline)
        row = None if unread else await self._ledger.get(identity.key)
        decision = core.decide(row, identity, now=self._clock.now(), refresh=ask.refresh)
        if isinstance(decision, core.Replay):
            answer = await self._ledger.answers.produce(decision.call, decision.answer)
            if answer is not None:
                self._store.mark_replayed(identity.key, self._clock.now())
                return Replayed(decision.call, answer)
            decision = core.answer_lost(decision.call, "its answer is lost or damaged")
        if not isinstance(decision, core.Claim):
            await self.stand_by(decision, deadline)
            return None
        if identity.key in self._flights.by_key:  # somebody took off while we were reading
            return None
        if has_flown and self._clock.monotonic() >= deadline:  # others keep taking it away from us
            raise in_progress(identity.id)
        return await self._flights.board(self._flights.take_off(ask, decision.over), joined=False)

    async def forward(self, outgoing: Outgoing, labels: Labels, *, safe: bool) -> Live:
        """Without a record: parts go through as they come, and the send ends when its caller leaves."""
        return await self._flights.forward(outgoing, labels, safe=safe)

    async def stand_by(self, decision: core.Decision, deadline: float) -> None:
        """Somebody else has the call: wait for a change, or say why it is held."""
        match decision:
            case core.Wait(call):
                # Our own without a flight is as orphaned as a dead owner's; the swap fails if it has landed.
                left_behind = call.owner == self._store.owner and call.key not in self._flights.by_key
                if left_behind or await self._store.owner_is_dead(call.owner):
                    await self._ledger.recover(call)
                    return
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise in_progress(call.id)
                # A dead owner changes nothing: look again now and then, not only when something changes.
                await self._store.changed(call.key, call.version, min(left, OWNER_CHECK))
            case core.Hold(call):
                assert call.doubt is not None  # Call refuses to be in doubt without one
                raise in_doubt(call, call.doubt)
            case core.Unavailable(call, why):
                raise unavailable(call.id, why)
            case core.AwaitPerson(call):
                raise AwaitingApproval(
                    "A person has to approve this call; make it again later.", call=call.id
                )
            case core.Refused(call):
                raise Denied("A person refused this call.", call=call.id)
            case core.Conflict(call):
                raise conflict(call.id)
            case core.Collision():
                raise collision()
            case core.Claim() | core.Replay():
                raise AssertionError("not for standing by")
            case _:
                assert_never(decision)
