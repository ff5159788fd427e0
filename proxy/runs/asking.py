"""Asking in a run: which recorded call it is, and what becomes of it.

What the run's record holds decides (core/occurrence.py, frontier.py, divergence.py): give it again
(serving.py), send it (claiming.py), wait, or hold. What is chosen is reserved in the run's book before
anything is awaited, so that no two callers of this process take the same one; between processes the claim
decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from proxy.asking import Patience, Reply
from proxy.clock import Clock
from proxy.core import occurrence as choosing
from proxy.core.divergence import Hold, OnDivergence, Proceed, Row, WaitUntil, judge
from proxy.core.frontier import GoLive, recall
from proxy.core.occurrence import (
    AwaitMark,
    Existing,
    Join,
    New,
    choose_occurrence,
    free_number,
    worth_choosing_from,
)
from proxy.core.run_record import End
from proxy.core.runs import Occurrence, with_dead_owners
from proxy.exchange import Exchange
from proxy.flight import Superseded
from proxy.flying import Flights
from proxy.ledger import Ledger
from proxy.observe import DIVERGED, Observer
from proxy.refusals import diverged, in_progress
from proxy.runs.book import Book
from proxy.runs.books import RunBooks
from proxy.runs.claiming import Claiming, RunAsk
from proxy.runs.serving import FromRecord
from proxy.store.base import Store

# While waiting for other processes: how soon to look again. A wait that is nearly over is still one.
LOOK, SOON = 0.1, 0.001


@dataclass(slots=True)
class _Turn:
    """One ask, however often it looks. `overlapped`: the number of the call in flight that it was found to
    be; it stays that call."""

    began: float
    patience: Patience
    overlapped: int = 0


class RunAsking:
    def __init__(
        self,
        *,
        store: Store,
        ledger: Ledger,
        flights: Flights,
        exchange: Exchange,
        books: RunBooks,
        clock: Clock,
        observer: Observer,
        on_divergence: OnDivergence,
    ) -> None:
        self._store = store
        self._books = books
        self._clock = clock
        self._observer = observer
        self._on_divergence = on_divergence
        self._dead: set[str] = set()
        self._claiming = Claiming(store, ledger, flights, exchange, clock)
        self._from_record = FromRecord(
            store, ledger, flights, exchange, books, clock, observer, self._claiming
        )
        ledger.on_row, flights.landing.position = books.row, books.position

    async def ask(self, ask: RunAsk) -> Reply:
        began = self._clock.monotonic()
        turn = _Turn(began, Patience.of(ask.rule, began))
        while True:  # the book was opened for this ask: the first time it is up to date
            try:
                reply = await self._ask_once(ask, turn)
            except Superseded:
                reply = None
            if reply is not None:
                return reply
            if self._clock.monotonic() > turn.patience.end + LOOK:
                raise in_progress(ask.family.id)
            await asyncio.sleep(0)  # what is over by now is cleared away, also where no store is waited for
            await self._books.refresh(ask.book, anyway=True)
            self._books.refuse_expired(ask.book)

    async def gave_up(self, book: Book, tokens: frozenset[str]) -> None:
        """Whoever asked with these says that it no longer waits."""
        await self._from_record.uses.gave_up(tokens, book)

    async def _ask_once(self, ask: RunAsk, turn: _Turn) -> Reply | None:
        """None: something has changed, look again."""
        if ask.occurrence is None:
            step = ask.book.untouched(ask.family.key)
            if step is not None:
                return await self._from_record.first(ask, step)
        book, waited = ask.book, self._clock.monotonic() - turn.began
        known = book.occurrences(ask.family.key)
        asked = self._asked(ask)
        rows = worth_choosing_from([row for _, row in known], asked)
        if self._served_elsewhere(rows):
            await self._learn_who_died(rows)
            known = book.occurrences(ask.family.key)
            rows = worth_choosing_from([row for _, row in known], asked)
        if self._dead:
            rows = with_dead_owners(rows, frozenset(self._dead))
        choice = choose_occurrence(rows, asked, book.frontier, waited=waited)
        if isinstance(choice, New) and turn.overlapped and not ask.safe:
            choice = Join(
                turn.overlapped
            )  # it came while that one was in flight, whatever has happened since
        elif isinstance(choice, Join):
            turn.overlapped = choice.n
        match choice:
            case AwaitMark(_, seconds):
                await self._pause(book, seconds)
                return None
            case New():
                n = ask.occurrence or free_number(step.occurrence for step, _ in known)
                if not ask.safe and not await self._stays_on_record(ask, waited):
                    return None
                if book.occurrences(ask.family.key) != known:
                    return None  # something happened while that was judged
                return await self._claiming.claim(ask, n, None)
            case Join(n) | Existing(n):
                step = next(step for step, _ in known if step.occurrence == n)
                row = next(row for row in (*rows, *(row for _, row in known)) if row.n == n)
                what = recall(row, book.attempt, book.frontier)
                if isinstance(what, GoLive):
                    return await self._claiming.claim(ask, n, step)
                return await self._from_record.serve(ask, step, row, what, choice, turn.patience)
            case _:
                assert_never(choice)

    def _asked(self, ask: RunAsk) -> choosing.Ask:
        return choosing.Ask(
            attempt=ask.book.attempt,
            safe=ask.safe,
            proxy=self._store.owner,
            repeat=ask.repeat,
            credentials=ask.evidence.credentials,
            tokens=ask.evidence.tokens,
            wording=ask.evidence.wording,
            retry_count=ask.evidence.retry_count,
            occurrence=ask.occurrence,
        )

    def _served_elsewhere(self, rows: Sequence[Occurrence]) -> bool:
        own = self._store.owner
        return any(x.end is End.UNDER_WAY and x.owner != own for row in rows for x in row.exchanges)

    async def _learn_who_died(self, rows: Iterable[Occurrence]) -> None:
        for row in rows:
            for x in row.exchanges:
                foreign = x.end is End.UNDER_WAY and x.owner != self._store.owner
                if foreign and x.owner not in self._dead and await self._store.owner_is_dead(x.owner):
                    self._dead.add(x.owner)

    async def _pause(self, book: Book, seconds: float) -> None:
        await self._clock.within(min(max(seconds, SOON), LOOK), book.changed())

    async def _stays_on_record(self, ask: RunAsk, waited: float) -> bool:
        """Whether a new call with effects may be made. False: look again; raises Diverged."""
        book = ask.book
        verdict = judge(
            group=ask.group,
            attempt=book.attempt,
            attempts=book.run.attempt_names,
            rows=book.rows(ask.group),
            waited=waited,
            on_divergence=self._on_divergence,
        )
        match verdict:
            case Proceed(noted):
                if noted:
                    await self._books.note(book, "diverged", f"allowed: {_told(ask, noted)}")
                return True
            case WaitUntil(seconds):
                await self._pause(book, seconds)
                return False
            case Hold(unasked):
                why = _told(ask, unasked)
                self._observer.noted(
                    DIVERGED,
                    tenant=book.run.tenant,
                    run=book.run.name,
                    attempt=book.attempt,
                    rule=ask.rule.name,
                    unasked=len(unasked),
                    why=why,
                )
                await self._books.note(book, "diverged", f"held: {why}")
                raise diverged(book.run.name, [book.step(bytes.fromhex(row.id)) for row in unasked])
            case _:
                assert_never(verdict)


def _told(ask: RunAsk, rows: tuple[Row, ...]) -> str:
    """Both sides, by name: arguments may be secret, and a line of history is read by many."""
    kind, *named = ask.group
    new = f"rule {named[1]}" if kind == "rule" else f"{named[0]} to {named[1]}"
    steps = [ask.book.step(bytes.fromhex(row.id)) for row in rows]
    old = ", ".join(f"{step.tool} (step {step.seq})" for step in steps[:10] if step is not None)
    return f"{ask.book.attempt} asked a new call ({new}) and has not asked {old}"
