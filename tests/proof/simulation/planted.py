"""Defects put into the shipping code one at a time, to see that the simulation finds them.

Each is a mistake that somebody could make, and that a suite of ordinary tests might not notice: everything
works, until a process dies or stands still at the wrong moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import proxy.core.decide
import proxy.core.frontier
import proxy.ledger
import proxy.runs.asking
from proxy.carrying import Carrier
from proxy.core.decision import Claim, Decision
from proxy.core.identity import Identity
from proxy.core.intent import Call, Entry, Event, State, evolve
from proxy.core.policy import Rule
from proxy.core.run_record import End
from proxy.core.runs import Occurrence
from proxy.errors import StoreUnavailable
from proxy.flight import Flight
from proxy.flying import Flights
from proxy.known_doubts import KnownDoubts
from proxy.ledger import Ledger
from proxy.runs.asking import RunAsking
from proxy.runs.claiming import RunAsk
from proxy.store.base import Swap
from proxy.stream import Capture
from proxy.upstream.base import Headers


@contextmanager
def claim_not_durable() -> Iterator[None]:
    """Nobody has the call, so the claim is handed to the store, and the call is sent before the store has
    said that it has it."""
    writing = Ledger._swap

    async def hastily(self: Ledger, call: Call, entry: Entry, *, expected: int, **more: Any) -> Swap:
        written = writing(self, call, entry, expected=expected, **more)
        if entry.event == Event.CLAIM and not call.run:
            present = await self._store.get(call.key)
            if (present.version if present is not None else 0) == expected:
                asyncio.ensure_future(written).add_done_callback(_forgive)
                return Swap(True)
        return await written

    with mock.patch.object(Ledger, "_swap", hastily):
        yield


def _forgive(written: asyncio.Future[Swap]) -> None:
    error = None if written.cancelled() else written.exception()
    if error is not None and not isinstance(error, StoreUnavailable):
        raise error


@contextmanager
def fence_ignored() -> Iterator[None]:
    """Whoever made the row last, an owner of before settles it with what it knows of its own send."""

    def can_settle(present: Call, fence: int, event: Event) -> bool:
        late = present.state in proxy.core.decide.LATE_ANSWERS_SETTLE and event is Event.ANSWERED
        return present.state is State.PENDING or late

    def same_row(present: Call, call: Call) -> bool:
        return present.born == call.born

    with (
        mock.patch.object(proxy.core.decide, "can_settle", can_settle),
        mock.patch.object(proxy.ledger, "_same_owner", same_row),
    ):
        yield


@contextmanager
def pending_expires() -> Iterator[None]:
    """A claim is a lease: after a minute without news the call is taken for not made."""
    deciding = proxy.core.decide.decide

    def decide(
        row: Call | None, identity: Identity, *, now: float, refresh: bool = False, rule: Rule | None = None
    ) -> Decision:
        if row is not None and row.state is State.PENDING and now - (row.sent_at or row.created_at) > 60:
            return Claim(evolve(row, state=State.RELEASED))
        return deciding(row, identity, now=now, refresh=refresh, rule=rule)

    with mock.patch.object(proxy.core.decide, "decide", decide):
        yield


@contextmanager
def resend_forgets_the_doubt() -> Iterator[None]:
    """What is sent again under its key is taken for a first send: "refused" then speaks for both."""
    resending = proxy.core.decide.resend

    def resend(fresh: Call, over: Call, *, actor: str, now: float) -> tuple[Call, Entry, int]:
        again, entry, expected = resending(fresh, over, actor=actor, now=now)
        return evolve(again, unresolved=False, doubt=None), entry, expected

    with mock.patch.object(proxy.core.decide, "resend", resend):
        yield


@contextmanager
def lost_mark_becomes_a_send() -> Iterator[None]:
    """What a dead proxy was handing on counts as delivered, so the next identical call is a new one."""

    def delivered(rows: Iterable[Occurrence], dead: frozenset[str]) -> list[Occurrence]:
        return [_as_delivered(row, dead) for row in rows]

    with mock.patch.object(proxy.runs.asking, "with_dead_owners", delivered):
        yield


def _as_delivered(row: Occurrence, dead: frozenset[str]) -> Occurrence:
    ended = (
        x._replace(end=End.COMPLETE) if x.owner in dead and x.end is End.UNDER_WAY else x
        for x in row.exchanges
    )
    return replace(row, exchanges=tuple(ended))


@contextmanager
def absence_by_what_was_written_down() -> Iterator[None]:
    """How long a call has been in doubt is told by the time in its record, and by this machine's clock."""

    def since(self: KnownDoubts, call: Call) -> float:
        assert call.doubt is not None
        return self._clock.monotonic() - (self._clock.now() - call.doubt.since)

    with mock.patch.object(KnownDoubts, "since", since):
        yield


@contextmanager
def age_looked_at_once() -> Iterator[None]:
    """How old a key is, is looked at when the resend is decided, and not again before its first byte."""

    def may_go(self: Carrier, call: Call, rule: Rule) -> bool:
        return self.owns(call.owner)

    with mock.patch.object(Carrier, "_may_go", may_go):
        yield


@contextmanager
def end_not_held_back() -> Iterator[None]:
    """The last byte is handed on as it comes, and the answer is kept afterwards."""
    making = Capture.__init__

    def hasty(self: Capture, **more: Any) -> None:
        making(self, **(more | {"hold_end": False}))

    with mock.patch.object(Capture, "__init__", hasty):
        yield


@contextmanager
def whole_answers_shown_at_once() -> Iterator[None]:
    """What came in one piece is complete, so whoever waits is given it; it is written down afterwards."""
    taking = Flight.take

    def take(self: Flight, status: int, headers: Headers, body: bytes) -> None:
        taking(self, status, headers, body)
        self.seal(stored=True)

    with mock.patch.object(Flight, "take", take):
        yield


@contextmanager
def frontier_forgotten() -> Iterator[None]:
    """A refusal is tried again by the next attempt, whatever the one before did about it."""
    with mock.patch.object(proxy.core.frontier, "is_sealed", return_value=False):
        yield


@contextmanager
def problems_not_remembered() -> Iterator[None]:
    """Only answers are given again: that an upstream could not be reached is not written down."""
    with mock.patch.object(proxy.core.decide, "_received", lambda call, settlement: call.in_run):
        yield


@contextmanager
def evidence_of_retries_lost() -> Iterator[None]:
    """The key of a request and the number of its try are overlooked."""
    asking = RunAsking._asked

    def asked(self: RunAsking, ask: RunAsk) -> Any:
        return replace(asking(self, ask), tokens=frozenset(), retry_count=0)

    with mock.patch.object(RunAsking, "_asked", asked):
        yield


@contextmanager
def who_joins_is_never_answered() -> Iterator[None]:
    """Whoever comes to a call that is under way waits for something that nobody tells."""

    async def join(self: Flights, *_: Any) -> Any:
        await asyncio.Event().wait()

    with mock.patch.object(Flights, "join", join):
        yield


PLANTED: dict[str, Callable[[], Any]] = {
    "claim not durable": claim_not_durable,
    "fence ignored": fence_ignored,
    "pending expires": pending_expires,
    "resend forgets the doubt": resend_forgets_the_doubt,
    "a lost delivery mark becomes a send": lost_mark_becomes_a_send,
    "the end is not held back": end_not_held_back,
    "answers in one piece are shown at once": whole_answers_shown_at_once,
    "the frontier is forgotten": frontier_forgotten,
    "problems are not remembered": problems_not_remembered,
    "the evidence of retries is lost": evidence_of_retries_lost,
    "who joins is never answered": who_joins_is_never_answered,
}
# What the simulation found in semel itself, and is mended, put back.
FOUND_BEFORE: dict[str, Callable[[], Any]] = {
    "absence counts by what was written down": absence_by_what_was_written_down,
    "a key's age is looked at once": age_looked_at_once,
}
