"""Calls on their way: claim (durable), send, judge, settle (durable); only then the caller gets the end.

Free of aiohttp, threads and clocks. Every send runs in a task of its own, so a caller who leaves never
stops a call with effects. No swap result is ignored; what cannot be known ends in doubt.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from proxy import faults
from proxy.asking import Ask, Boards, Labels, Live, Source, unheard
from proxy.carrying import Carrier
from proxy.claimed import Claimed, ClaimResult, RaceLost, Uncertain
from proxy.clock import Clock
from proxy.core import decide as core
from proxy.core.approval import is_granted
from proxy.core.identity import Identity
from proxy.core.intent import Call, State
from proxy.core.policy import Mode, OnDisconnect
from proxy.core.scrubbing import Secrets, scrubbed
from proxy.errors import BudgetExceeded, StoreUnavailable
from proxy.faults import Point
from proxy.flight import Flight, Superseded, Unrecordable
from proxy.intended import Intent
from proxy.judge import catching, passing_failed
from proxy.landing import Landing
from proxy.ledger import Ledger
from proxy.nonstop import Nonstop
from proxy.observe import Observer
from proxy.outgoing import again
from proxy.pricing import Price, price_now
from proxy.recorded import Unrepeatable
from proxy.refusals import collision, conflict, in_doubt, in_progress
from proxy.store.base import Store
from proxy.store.codec import Codec
from proxy.stream import Capture, CaptureLimits, CutOff
from proxy.upstream.base import Answered, Outgoing, SendSoon, Tap, UpstreamClient

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
        soon: SendSoon | None = None,
    ) -> None:
        """`soon`: how to send where nothing has to be awaited; without it every flight has a task."""
        self._store = store
        self._codec = codec
        self.ledger = ledger
        self.carrier = Carrier(
            store=store,
            ledger=ledger,
            upstream=upstream,
            clock=clock,
            observer=observer,
            is_stopping=lambda: self.stopping,
        )
        self.landing = Landing(
            ledger=ledger,
            carrier=self.carrier,
            clock=clock,
            observer=observer,
            price=price,
            note_defect=self.note_defect,
            is_stopping=lambda: self.stopping,
        )
        self.clock = clock
        self._observer = observer
        self._limits = limits
        self._longest_whole = min(limits.kept, ledger.answers.inline_body)
        self.soon = soon
        self.by_key: dict[bytes, Flight] = {}
        self._aloft: dict[Flight, None] = {}  # in order; also those that are only passed through
        self._all_down: asyncio.Future[None] | None = None  # somebody waits for that
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
        # Nothing that leads back to the flight: what is in a circle is freed late.
        capture = partial(catching, self._limits, ask.safe, ask.rule, intent.key, outgoing.rpc)
        longest = self._longest_whole if _is_alone(ask, outgoing) else 0
        if longest and over is None and self.soon is not None and self.ledger.plain.takes(intent):
            nonstop = self.nonstop(intent, outgoing, capture)
            nonstop.depart()
            return nonstop
        flight = Flight(
            capture,
            cancels=ask.safe and ask.rule.on_disconnect is OnDisconnect.CANCEL,
            identity=ask.identity,
            longest=longest,
        )
        if over is not None:
            self._mind_the_past(flight, ask, over)
        flight.on_defect = partial(self.note_defect, secrets=intent.secrets)
        if ask.place is not None:
            flight.expect_row()
        self.by_key[ask.identity.key] = flight
        self._start(flight, self._fly(flight, intent, outgoing, over, ask.source))
        return flight

    def nonstop(self, intent: Intent, outgoing: Outgoing, capture: Callable[[], Capture]) -> Nonstop:
        """Of a call that is alone and plain. It has not departed yet."""
        identity = intent.identity
        flight = Nonstop(self, intent, outgoing, capture, identity=identity, longest=self._longest_whole)
        self.by_key[identity.key] = flight
        self._aloft[flight] = None
        return flight

    def capture_of(self, intent: Intent) -> Callable[[], Capture] | None:
        """How an answer to such calls is caught in parts, if they fly without stops."""
        if self.soon is None or not self._longest_whole or not self.ledger.plain.takes(intent):
            return None
        return partial(catching, self._limits, False, intent.rule, None, None)

    def _mind_the_past(self, flight: Flight, ask: Ask, over: Call) -> None:
        if over.state is State.IN_DOUBT:
            flight.capture.unresolved = True
        if ask.place is None and not ask.refresh and core.is_stale(over, ask.rule, self.clock.now()):
            flight.renews = over
            flight.capture.withhold()  # whether it differs is said in its head, and known at its end

    def _start(self, flight: Flight, flying: Coroutine[Any, Any, None]) -> None:
        flight.on_defect = flight.on_defect or self.note_defect
        flight.task = asyncio.get_running_loop().create_task(flying)
        self._aloft[flight] = None
        flight.task.add_done_callback(partial(self._landed, flight))

    def _landed(self, flight: Flight, task: asyncio.Task[None]) -> None:
        self.forget(flight)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.note_defect(error)
        if task.cancelled() and flight.identity is not None and not flight.is_over:  # it had not begun
            flight.refuse(in_progress(flight.identity.id))

    def forget(self, flight: Flight) -> None:
        """It has landed."""
        self._aloft.pop(flight, None)
        if flight.identity is not None and self.by_key.get(flight.identity.key) is flight:
            del self.by_key[flight.identity.key]
        if self._all_down is not None and not self._aloft and not self._all_down.done():
            self._all_down.set_result(None)

    def note_defect(self, error: BaseException, secrets: Callable[[], Secrets] = Secrets) -> None:
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
        left = deadline - self.clock.monotonic()
        if flight.stopped and flight.task is not None:
            # Its last caller left and it is being settled: this caller's call is another one.
            if left <= 0 or not await self.clock.within(left, asyncio.wait({flight.task})):
                raise in_progress(identity.id)
            raise Superseded
        boarded: list[Live] = []

        async def get_on() -> None:
            boarded.append(await self.board(flight, boards, joined=True))

        no_more = flight.capture.overflowed or isinstance(flight.capture.refusal, CutOff)
        if no_more or left <= 0 or not await self.clock.within(left, get_on()):
            raise in_progress(identity.id)
        return boarded[0]

    async def board(self, flight: Flight, boards: Boards, *, joined: bool) -> Live:
        flight.callers += 1
        live = Live(flight, joined, given=flight.capture.reader() if joined else None)
        boards(live)
        return await self.wait_for(live)

    async def wait_for(self, live: Live) -> Live:
        try:
            if live.given is None:
                await live.flight.begun(live)
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
            if intent.bound_to and not (doubted or is_granted(over, intent.permission, self.clock.now())):
                await self._ask_person(flight, intent, over)
                return
            if doubted is not None:
                outgoing = await again(doubted, intent, outgoing, self._store, self._codec)
            faults.reach(Point.BEFORE_CLAIM)
            await self.claimed(flight, intent, outgoing, await self.ledger.claim(intent, over), source)
        except (StoreUnavailable, BudgetExceeded) as error:  # nothing is claimed
            flight.refuse(error)
        except Unrepeatable as error:
            assert over is not None
            assert over.doubt is not None
            flight.refuse(in_doubt(over, over.doubt, str(error)))
        finally:
            self._over(flight, intent.identity)

    def _over(self, flight: Flight, identity: Identity) -> None:
        """When giving up, the row stays pending: recovery will see to it."""
        flight.claimed(None)
        self.forget(flight)
        if not flight.is_over:
            flight.refuse(in_progress(identity.id))

    async def claimed(
        self,
        flight: Flight,
        intent: Intent,
        outgoing: Outgoing,
        result: ClaimResult,
        source: Source | None = None,
    ) -> None:
        match result:
            case Claimed(call):
                faults.reach(Point.CLAIMED)
                flight.claimed(call)
                if outgoing.errand is not None:
                    outgoing.errand.claimed(call)
                await self.landing.carry_out(flight, intent, outgoing, call, source)
            case RaceLost():
                flight.refuse(Superseded())
            case Uncertain(claim, error):
                # In a run nothing goes out without a record, nor what a budget limits.
                passes = intent.safe and intent.place is None and intent.rule.budget is None
                flight.refuse(Unrecordable() if passes else error)
                if claim is not None:
                    await self.ledger.withdraw(claim)

    def goes_on(self, flight: Flight, rest: Callable[[], Awaitable[None]]) -> None:
        """In a task, from where it is. `rest` is asked for when that begins: it may be given up before."""
        self._start(flight, self._finish(flight, rest))

    async def _finish(self, flight: Flight, rest: Callable[[], Awaitable[None]]) -> None:
        assert flight.identity is not None
        try:
            await rest()
        finally:
            self._over(flight, flight.identity)

    async def _ask_person(self, flight: Flight, intent: Intent, over: Call | None) -> None:
        """Whoever asked looks again, and finds the question or what came first."""
        try:
            await self.ledger.ask_person(intent, over)
        except StoreUnavailable as error:
            flight.refuse(error)
        else:
            flight.refuse(Superseded())

    # ---- leaving ----

    @property
    def in_flight(self) -> int:
        return len(self._aloft)

    async def drain(self, patience: float) -> int:
        """Let what is in flight finish; stop and mark the rest. Returns how many had to be stopped."""
        self.stopping = True
        if await self._all_landed(patience):
            return 0
        stopped = sum(flight.stop() for flight in [*self._aloft])
        if not await self._all_landed(MARKING_PATIENCE):
            self.give_up()
            await self._all_landed(MARKING_PATIENCE)
        return stopped

    def give_up(self) -> None:
        for flight in [*self._aloft]:
            flight.give_up()

    async def _all_landed(self, patience: float) -> bool:
        if not self._aloft:
            return True
        self._all_down = asyncio.get_running_loop().create_future()
        return await self.clock.within(patience, self._all_down)


def _is_alone(ask: Ask, outgoing: Outgoing) -> bool:
    """Neither of a run, nor shared, nor done by others for us: of those more is asked than how it ended."""
    mine = ask.place is None and ask.source is None and ask.rule.mode is Mode.ONCE
    return mine and outgoing.errand is None and outgoing.rpc is None
