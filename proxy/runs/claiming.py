"""Sending in a run: a number is reserved, claimed, and the flight's answer handed on."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from proxy.asking import Ask, Boards, Live, Reply, Sendable, unheard
from proxy.clock import Clock
from proxy.core.identity import Identity, occurrence_of
from proxy.core.intent import Call, State, is_live
from proxy.core.policy import Repeat, Rule
from proxy.core.retry_evidence import Evidence
from proxy.core.run_record import Exchange as Served
from proxy.core.run_record import How, InRun, Step
from proxy.errors import BudgetExceeded, Refusal
from proxy.exchange import Exchange
from proxy.flight import Superseded
from proxy.flying import Flights
from proxy.intended import RunPlace
from proxy.ledger import Ledger
from proxy.refusals import collision, no_longer_known
from proxy.runs.book import Book
from proxy.runs.handover import Handover
from proxy.runs.shared import SharedCall, identity_of
from proxy.store.base import Store

# So many rows are read ahead, and only small ones are kept: half a megabyte for a run, at most.
READ_AHEAD, AHEAD_SIZE = 32, 16 * 1024


class RunAsk(NamedTuple):
    """A call in a run as the front hands it over. `family` names all its occurrences together."""

    book: Book
    family: Identity
    rule: Rule
    safe: bool
    sending: Sendable
    group: tuple[str, ...]
    evidence: Evidence
    occurrence: int | None  # the client's number
    repeat: Repeat
    shared: SharedCall | None  # where the rule shares it with the whole tenant
    boards: Boards = unheard


class Claiming:
    def __init__(
        self, store: Store, ledger: Ledger, flights: Flights, exchange: Exchange, clock: Clock
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._flights = flights
        self._exchange = exchange
        self._clock = clock

    async def claim(self, ask: RunAsk, n: int, step: Step | None) -> Reply | None:
        """`step`: what stands there now, released, forgotten or without an answer to give."""
        book = ask.book
        identity = occurrence_of(ask.family, book.run.name, n)
        inherited = step is not None and step.run != book.run.name
        over = None
        if step is not None:
            ask = ask._replace(shared=await self._shared(ask, step))
            over = None if inherited else await self.row(ask, step)
            if book.step(step.key) != step:
                return None
        flying = self._flights.by_key.get(identity.key)
        if flying is not None:  # of another attempt, whose book alone knows what it is about to claim
            await flying.row()
            return None
        handover, place, claim = self._reserved_claim(ask, identity, n, step if over is not None else None)
        try:
            flight = self._flights.take_off(self._as_ask(ask, identity, n, place), over)
        except BaseException:
            book.not_claimed(identity.key)
            handover.take_back()
            raise
        assert flight.task is not None
        flight.task.add_done_callback(lambda _: _landed(book, claim, handover))
        try:
            live = await self._flights.board(flight, ask.boards, joined=False)
        except Superseded:
            if book.step(claim.key) is not claim:  # it waits for a person now: nobody was served
                handover.take_back()
            return None
        except Refusal as refusal:
            if isinstance(refusal, BudgetExceeded) and book.step(claim.key) is claim:
                handover.take_back()  # nothing is claimed: asked again, it is this very occurrence
            else:
                handover.problem()
            raise
        except BaseException:
            handover.abandoned()
            raise
        return handing_on(live, handover)

    async def _shared(self, ask: RunAsk, step: Step) -> SharedCall | None:
        """The tenant's call that this one was filled from. A refreshed token would name another, but what may
        have been executed is the one that was asked."""
        if ask.shared is None or not step.in_run.shared:
            return ask.shared
        known = await self._ledger.get(bytes.fromhex(step.in_run.shared))
        if known is None or not is_live(known, self._clock.now()):
            if step.in_run.orphaned and not ask.safe:
                raise no_longer_known(step)
            return ask.shared
        return SharedCall(ask.shared.ask._replace(identity=identity_of(known)))

    def _reserved_claim(
        self, ask: RunAsk, identity: Identity, n: int, over: Step | None
    ) -> tuple[Handover, RunPlace, Step]:
        book, now = ask.book, self._clock.now()
        in_run = InRun(
            family=ask.family.key,
            group=ask.group,
            tries=over.in_run.tries + 1 if over is not None and _tried_by(over, book.attempt) else 1,
            numbered=ask.occurrence is not None,
            retired=over is not None and over.in_run.retired,
            shared="" if ask.shared is None else ask.shared.ask.identity.id,
        )
        claim = Step(
            key=identity.key,
            run=book.run.name,
            attempt=book.attempt,
            seq=book.position + 1,
            occurrence=n,
            upstream="",
            rule=ask.rule.name,
            tool="",
            safe=ask.safe,
            state=State.PENDING,
            version=0 if over is None else over.version,
            fence=1 if over is None else over.fence + 1,
            owner=self._store.owner,
            created_at=now,
            settled_at=None,
            status=None,
            size=0,
            cost_usd=None,
            in_run=in_run,
        )
        book.claiming(claim)
        handover = self.reserve(ask, claim, How.EXECUTED)
        return handover, RunPlace(book.run.name, book.attempt, in_run, handover.exchange), claim

    def _as_ask(self, ask: RunAsk, identity: Identity, n: int, place: RunPlace) -> Ask:
        source = None if ask.shared is None else ask.shared.source(self._exchange)
        return Ask(identity, ask.rule, ask.safe, False, ask.sending, place, n, source)

    def reserve(self, ask: RunAsk, step: Step, how: How) -> Handover:
        """For this caller, before anything is awaited."""
        served = Served(
            number=ask.book.next_number(step.key),
            attempt=ask.book.attempt,
            fence=step.fence,
            owner=self._store.owner,
            credentials=ask.evidence.credentials,
            tokens=ask.evidence.tokens,
            wording=ask.evidence.wording,
            how=how,
            at=self._clock.now(),
        )
        return Handover(self._store, ask.book, step.key, ask.book.start(step.key, served))

    async def row(self, ask: RunAsk, step: Step) -> Call:
        """The row itself. Where it is another by now: Superseded, look again."""
        call = self._ledger.answers.at_hand(step.key)
        if call is None or call.version != step.version:
            call = ask.book.ahead.pop(step.key, None)
        if call is None or call.version != step.version:
            call = await self._read(ask.book, step)
        if call is None or not _is_still(call, step):
            raise Superseded
        if call.fingerprint != ask.family.fingerprint:
            raise collision()
        return call

    async def _read(self, book: Book, step: Step) -> Call | None:
        """A run that is asked again is mostly asked in its order: the next rows are read along."""
        if step.state is not State.DONE:
            return await self._ledger.get(step.key)
        rows = await self._store.get_many([step.key, *book.following(step.key, READ_AHEAD)])
        found = {call.key: call for call in rows if _size(call) <= AHEAD_SIZE}
        book.ahead = {key: call for key, call in found.items() if key != step.key}
        return next((call for call in rows if call.key == step.key), None)


def _is_still(call: Call, step: Step) -> bool:
    """The very row, or one of which only the uses have changed since."""
    if call.version == step.version:
        return True
    same = call.fence == step.fence and call.state is step.state and call.expires_at is None
    return same and call.version > step.version


def _size(call: Call) -> int:
    return len(call.request) + (len(call.answer.body) if call.answer else 0)


def handing_on(live: Live, handover: Handover) -> Live:
    handover.follows(live.flight)
    return replace(live, delivery=handover)


def _tried_by(step: Step, attempt: str) -> bool:
    return step.state is not None and step.attempt == attempt


def _landed(book: Book, claim: Step, handover: Handover) -> None:
    """If it was never claimed, what was reserved for it is free again."""
    if book.step(claim.key) is claim:
        book.not_claimed(claim.key)
        handover.take_back()
