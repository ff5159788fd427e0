"""What must be written before a caller is answered: one more use of a call, a problem that it was given."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from proxy.clock import Clock
from proxy.core.identity import occurrence_key
from proxy.core.intent import Call, Entry, State, evolve
from proxy.core.run_record import InRun, Receipt
from proxy.flight import Superseded
from proxy.ledger import Ledger
from proxy.runs.book import Book
from proxy.runs.books import RunBooks
from proxy.runs.handover import Handover
from proxy.store.base import Store


class Uses:
    def __init__(self, store: Store, ledger: Ledger, clock: Clock, books: RunBooks) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._books = books

    @property
    def _actor(self) -> str:
        """As the store knows this process now."""
        return f"proxy:{self._store.owner}"

    async def count(self, call: Call, handover: Handover) -> Call:
        """One more use, durable. The row as it stands then; raises Superseded where it is another claim's."""
        if call.run != handover.run:
            return await self._adopt(call, handover)
        fence = call.fence
        while True:
            in_run = _in_run(call)
            used = replace(in_run, uses=in_run.uses + 1)
            swapped = await self._write(call, used, "used", "one more caller is served by it", handover)
            if swapped is not None:
                return swapped
            call = await self._again(call, fence)

    async def _adopt(self, call: Call, handover: Handover) -> Call:
        """In a fork: how often its agent is served by a parent's call is not the parent's to count. The fork
        gets a row of its own with the same answer. While the call is open there is nothing to count yet."""
        if call.state is not State.DONE:
            return call
        now, in_run = self._clock.now(), _in_run(call)
        own = evolve(
            call,
            key=occurrence_key(in_run.family, handover.run, call.occurrence),
            run=handover.run,
            attempt=handover.exchange.attempt,
            version=1,
            fence=1,
            born=now,
            in_run=replace(in_run, uses=in_run.uses + 1, receipts=(), retired=False),
        )
        handover.move(own.key, own.fence)
        entry = Entry(now, self._actor, "adopted", None, own.state, f"from {call.id} of {call.run}", 1)
        swap = await self._store.swap(own, entry, expected=0, served=handover.serving())
        if not swap.won:
            raise Superseded
        self._books.row(own)
        return own

    async def receive(self, call: Call, problem: str, book: Book) -> None:
        """A problem that this attempt is given counts as received. In a fork a parent's call is the parent's:
        nothing is written there."""
        if call.run != book.run.name:
            return
        fence = call.fence
        while True:
            in_run = _in_run(call)
            if any(r.attempt == book.attempt and r.problem == problem for r in in_run.receipts):
                return
            receipt = Receipt(attempt=book.attempt, problem=problem, position=book.position)
            received = replace(in_run, receipts=(*in_run.receipts, receipt))
            if await self._write(call, received, "received", f"given to {book.attempt}: {problem}", None):
                return
            state, call = call.state, await self._again(call, fence)
            if call.state is not state:  # it has an answer by now, or a person knew more
                raise Superseded

    async def gave_up(self, tokens: frozenset[str], book: Book) -> None:
        """Whoever asked with these no longer waits, whichever process serves it: the same call, made again,
        is that one. Durable, and behind whatever that process still says of handing it on."""
        found = book.served_with(tokens)
        call = None if found is None else await self._ledger.get(found[0])
        if found is None or call is None or call.run != book.run.name:
            return
        key, served = found
        number, now = book.next_number(key), self._clock.now()
        left = served._replace(number=number, owner=self._store.owner, at=now)
        handover = Handover(self._store, book, key, book.start(key, left))
        handover.abandoned()
        with suppress(Superseded):
            while not await self._write(call, _in_run(call), "left", "its caller no longer waits", handover):
                call = await self._again(call, call.fence)

    async def _write(
        self, call: Call, in_run: InRun, event: str, why: str, handover: Handover | None
    ) -> Call | None:
        now = self._clock.now()
        changed = evolve(call, version=call.version + 1, in_run=in_run)
        entry = Entry(now, self._actor, event, call.state, call.state, why, call.fence)
        served = None if handover is None else handover.serving()
        swap = await self._store.swap(changed, entry, expected=call.version, served=served)
        if not swap.won:
            return None
        changed = evolve(changed, seq=swap.seq)
        self._books.row(changed)
        return changed

    async def _again(self, call: Call, fence: int) -> Call:
        present = await self._ledger.get(call.key)
        if present is None or present.fence != fence:
            raise Superseded
        return present


def _in_run(call: Call) -> InRun:
    assert call.in_run is not None  # only calls of runs come here
    return call.in_run
