"""Claim, send, settle: the one driver.

    ask      what is stored decides: replay it, join who is sending it, hold it, or fly
    _fly     claim (durable) -> send -> judge -> settle (durable) -> only then the caller gets the end

Free of aiohttp, threads and clocks. Every send runs in a task of its own, so a caller who leaves never
stops a call with effects. No swap result is ignored; what cannot be known ends in doubt.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import assert_never

from proxy import faults
from proxy.asking import Ask, Labels, Live, Replayed, Reply, Unrecorded
from proxy.clock import Clock
from proxy.core import decide as core
from proxy.core.identity import Identity
from proxy.core.intent import Call
from proxy.core.policy import OnDisconnect
from proxy.errors import AnswerUnavailable, AwaitingApproval, Denied, StoreUnavailable
from proxy.faults import Point
from proxy.flight import Flight, Superseded, Unrecordable
from proxy.judge import Judgement, judge, passing_failed, withholds
from proxy.ledger import Claimed, Intent, Ledger, RaceLost, Uncertain
from proxy.observe import Observer, Sent
from proxy.refusals import collision, conflict, in_doubt, in_progress
from proxy.store.base import Store
from proxy.stream import Capture, CaptureLimits, CutOff
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, UpstreamClient

# A failed connect is tried once more after a moment: a restarting upstream is often back by then.
RECONNECT_PAUSE = 0.1
# How soon somebody who waits for another process notices that it has died.
OWNER_CHECK = 0.5
# Marking what had to be stopped is a write or two. If the store does not take it, recovery will see to it.
MARKING_PATIENCE = 5.0


class Exchange:
    def __init__(
        self,
        *,
        store: Store,
        ledger: Ledger,
        upstream: UpstreamClient,
        clock: Clock,
        observer: Observer,
        limits: CaptureLimits,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._upstream = upstream
        self._clock = clock
        self._observer = observer
        self._limits = limits
        self._flights: dict[bytes, Flight] = {}
        self._aloft: dict[asyncio.Task[None], Flight] = {}  # also those that are only passed through
        self._stopping = False

    # ---- asking ----

    async def ask(self, ask: Ask) -> Reply:
        deadline = self._clock.monotonic() + ask.rule.wait
        unread = not self._stopping and self._ledger.expects_nothing(ask.identity.key)
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
                if ask.safe and not self._stopping:  # outside runs it needs no record
                    return Unrecorded()
                raise
            if reply is not None:
                return reply

    async def _ask_once(self, ask: Ask, deadline: float, *, unread: bool, has_flown: bool) -> Reply | None:
        """None: something has changed, look again. `unread`: most likely there is no row; the claim sees."""
        identity = ask.identity
        flight = self._flights.get(identity.key)
        if flight is not None:
            return await self._join(flight, identity, deadline)
        row = None if unread else await self._ledger.get(identity.key)
        decision = core.decide(row, identity, now=self._clock.now(), refresh=ask.refresh)
        if isinstance(decision, core.Replay):
            answer = await self._ledger.answers.produce(decision.call, decision.answer)
            if answer is not None:
                self._store.mark_replayed(identity.key, self._clock.now())
                return Replayed(decision.call, answer)
            decision = core.answer_lost(decision.call, "its answer is lost or damaged")
        if not isinstance(decision, core.Claim):
            await self._stand_by(decision, deadline)
            return None
        if identity.key in self._flights:  # somebody took off while we were reading
            return None
        if has_flown and self._clock.monotonic() >= deadline:  # others keep taking it away from us
            raise in_progress(identity.id)
        return await self._board(self._take_off(ask, decision.over), joined=False)

    def _take_off(self, ask: Ask, over: Call | None) -> Flight:
        if self._stopping:
            raise StoreUnavailable("semel is shutting down and nothing was sent; call again.")
        outgoing = ask.sending.outgoing()
        intent = ask.sending.intent(ask.identity, outgoing)
        limits = self._limits
        capture = Capture(
            limit=limits.kept,
            memory=limits.memory,
            directory=limits.directory,
            withholds=partial(withholds, safe=ask.safe, rule=ask.rule.outcome),
        )
        cancels = ask.safe and ask.rule.on_disconnect is OnDisconnect.CANCEL
        flight = Flight(capture, cancels=cancels, identity=ask.identity)
        self._flights[ask.identity.key] = flight
        self._start(flight, self._fly(flight, intent, outgoing, over))
        return flight

    def _start(self, flight: Flight, flying: Coroutine[None, None, None]) -> None:
        flight.on_defect = self._note_defect
        flight.task = asyncio.get_running_loop().create_task(flying)
        self._aloft[flight.task] = flight
        flight.task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        del self._aloft[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._note_defect(error)

    def _note_defect(self, error: BaseException) -> None:
        self._observer.noted("defect", error="".join(traceback.format_exception(error)))

    async def forward(self, outgoing: Outgoing, labels: Labels, *, safe: bool) -> Live:
        """Without a record: parts go through as they come, and the send ends when its caller leaves."""
        flight = Flight(Capture(limit=0, hold_end=False), cancels=True)
        self._start(flight, self._pass_through(flight, outgoing, labels, safe=safe))
        return await self._board(flight, joined=False)

    async def _pass_through(self, flight: Flight, outgoing: Outgoing, labels: Labels, *, safe: bool) -> None:
        result = await self._send(flight, outgoing, labels, safe=safe)
        if isinstance(result, Answered):
            flight.capture.seal(stored=False)
        else:
            flight.capture.refuse(passing_failed(result, safe=safe))

    async def _join(self, flight: Flight, identity: Identity, deadline: float) -> Live:
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

        async def board() -> None:
            boarded.append(await self._board(flight, joined=True))

        no_more = flight.capture.overflowed or isinstance(flight.capture.refusal, CutOff)
        if no_more or left <= 0 or not await self._clock.within(left, board()):
            raise in_progress(identity.id)
        return boarded[0]

    async def _board(self, flight: Flight, *, joined: bool) -> Live:
        flight.callers += 1
        live = Live(flight, flight.capture.reader(), joined)
        try:
            await live.reader.begin()
        except BaseException:
            live.leave()
            raise
        return live

    async def _stand_by(self, decision: core.Decision, deadline: float) -> None:
        """Somebody else has the call: wait for a change, or say why it is held."""
        match decision:
            case core.Wait(call):
                # Our own without a flight is as orphaned as a dead owner's; the swap fails if it has landed.
                left_behind = call.owner == self._store.owner and call.key not in self._flights
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
                raise AnswerUnavailable(f"The call happened and is not sent again, but {why}.", call=call.id)
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

    # ---- flying ----

    async def _fly(self, flight: Flight, intent: Intent, outgoing: Outgoing, over: Call | None) -> None:
        capture = flight.capture
        try:
            faults.reach(Point.BEFORE_CLAIM)
            match await self._ledger.claim(intent, over):
                case RaceLost():
                    capture.refuse(Superseded())
                case Uncertain(call, error):
                    capture.refuse(Unrecordable() if intent.safe else error)
                    if call is not None:
                        await self._ledger.withdraw(call)
                case Claimed(call):
                    faults.reach(Point.CLAIMED)
                    await self._carry_out(flight, intent, outgoing, call)
        finally:
            # When giving up, the row stays pending: recovery will see to it.
            identity = intent.identity
            del self._flights[identity.key]
            if not capture.is_over:
                capture.refuse(in_progress(identity.id))

    async def _carry_out(self, flight: Flight, intent: Intent, outgoing: Outgoing, call: Call) -> None:
        labels = Labels(intent.upstream, intent.rule.name)
        result = await self._send(flight, outgoing, labels, safe=intent.safe)
        faults.reach(Point.ANSWER_COMPLETE)
        patience = outgoing.timeouts.total
        try:
            judgement = judge(result, flight.capture, intent.rule, call, self._clock.now())
            await self._settle(flight, intent, call, judgement, patience)
        except Exception as error:
            # A defect of ours. It was sent, and nobody knows what to make of it: that is doubt, not silence.
            self._note_defect(error)
            judgement = judge(
                Lost(f"semel failed ({type(error).__name__})"),
                Capture(limit=0),
                intent.rule,
                call,
                self._clock.now(),
            )
            await self._settle(flight, intent, call, judgement, patience)

    async def _send(self, flight: Flight, outgoing: Outgoing, labels: Labels, *, safe: bool) -> Result:
        """Once; again only where nothing was sent, or the call is safe and nobody has seen a part."""
        began = self._clock.monotonic()
        capture = flight.capture
        # Who has claimed nothing need not prove to be alive: what is only passed on goes out all the same.
        owns = self._store.owns if flight.identity is not None else lambda: True

        def send(may_send: Callable[[], bool]) -> Awaitable[Result]:
            return self._upstream.send(outgoing, capture, may_send)

        result = await flight.interruptible(send, owns)
        harmless = isinstance(result, NotSent) or (
            isinstance(result, Lost) and safe and not capture.handed_on
        )
        if harmless and not flight.stopped:
            capture.restart()
            if isinstance(result, NotSent):
                await self._clock.sleep(RECONNECT_PAUSE)
            result = await flight.interruptible(send, owns)
        if isinstance(result, Answered):
            capture.complete()
        self._observer.sent(
            Sent(
                upstream=labels.upstream,
                rule=labels.rule,
                code=_code(result),
                seconds=self._clock.monotonic() - began,
            )
        )
        return result

    async def _settle(
        self, flight: Flight, intent: Intent, call: Call, judgement: Judgement, patience: float
    ) -> None:
        """The caller sees the end only after the record is durable; if that never happens, never."""
        capture = flight.capture
        deadline = self._clock.monotonic() + patience

        def on_trouble(trouble: StoreUnavailable) -> None:
            if self._stopping or self._clock.monotonic() > deadline:
                capture.refuse(CutOff(trouble.detail))

        kept = capture if judgement.keeps_answer else None
        settled = await self._ledger.settle(call, judgement.settlement, kept, intent.rule, on_trouble)
        faults.reach(Point.SETTLED)
        if capture.is_over:
            return
        if settled is None:
            capture.refuse(Superseded())
        elif judgement.refusal is not None:
            capture.refuse(judgement.refusal)
        else:
            capture.seal(stored=judgement.keeps_answer)

    # ---- leaving ----

    @property
    def in_flight(self) -> int:
        return len(self._aloft)

    async def drain(self, patience: float) -> int:
        """Let what is in flight finish; stop and mark the rest. Returns how many had to be stopped."""
        self._stopping = True
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


def _code(result: Result) -> str:
    match result:
        case Answered(status):
            return str(status)
        case NotSent():
            return "not_sent"
        case Lost():
            return "lost"
        case _:
            assert_never(result)
