"""The runs that are being asked in: opened, pinned, kept up to date, put away when nobody asks any more."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

from proxy.clock import Clock
from proxy.core.divergence import is_expired
from proxy.core.intent import Call
from proxy.core.policy import Upstream
from proxy.core.recipe import UnknownRecipe, pinned, recipe_of
from proxy.core.run_record import Parent, Run, RunEntry, RunState
from proxy.core.runs import step_of
from proxy.errors import BadRequest, RunExpired, StoreUnavailable
from proxy.observe import Observer
from proxy.runs.book import Book
from proxy.store.base import Store

# So many attempts are kept at hand, with so many steps in all; others are read again when they are asked in.
AT_HAND, STEPS_AT_HAND = 512, 20_000


class Pinned(NamedTuple):
    """An upstream as a run names its calls."""

    upstream: Upstream
    canonical: int
    pin: str  # stands for the recipe where names are remembered


class RunBooks:
    def __init__(self, *, store: Store, clock: Clock, observer: Observer, retention: float) -> None:
        self._store = store
        self._clock = clock
        self._observer = observer
        self._retention = retention
        self._books: OrderedDict[tuple[str, str, str], Book] = OrderedDict()
        self._of_run: dict[tuple[str, str], list[Book]] = {}
        self._beside = 0
        self._forks = 0  # among the books
        self._pinned: dict[tuple[int, str], tuple[Upstream, Pinned]] = {}

    async def open(self, tenant: str, name: str, attempt: str) -> Book:
        """The run, up to date. Raises RunExpired."""
        key = (tenant, name, attempt)
        book = self._books.get(key)
        if book is None:
            # Kept before it is read: what this process writes meanwhile is told to it.
            book = self._keep(key, await self._first_look(tenant, name, attempt))
        else:
            self._books.move_to_end(key)
        await self.refresh(book)
        self.refuse_expired(book)
        book.asked_at = self._clock.now()
        return book

    async def _first_look(self, tenant: str, name: str, attempt: str) -> Book:
        known = await self._store.get_run(tenant, name)
        if known is not None:
            self._refuse_expired(known)
        run = await self._store.open_run(tenant, name, attempt, self._clock.now())
        return Book(run, attempt, self._store.owner)

    def refuse_expired(self, book: Book) -> None:
        self._refuse_expired(book.run, book.asked_at)

    def _refuse_expired(self, run: Run, asked_at: float = 0.0) -> None:
        """`asked_at`: what this process was asked is activity too, long before it is written down."""
        last = max(run.active_at, asked_at)
        over = is_expired(last_activity=last, retention=self._retention, now=self._clock.now())
        if over or run.state is RunState.EXPIRED:
            raise RunExpired(
                f"The run {run.name!r} is over: its record is kept for {self._retention:g} seconds after its "
                "last activity (runs.retention). Nothing was sent. Use another name for new work.",
                run=run.name,
            )

    async def refresh(self, book: Book, *, anyway: bool = False) -> None:
        """What others have written since. `anyway`: also if it seems that they have not."""
        stamp = self._stamp()  # before reading: what changes after it changes it
        if stamp is not None and stamp == book.stamp and not anyway:
            return
        tenant, run = book.run.tenant, book.run
        await self._read(book, run.name)
        parent = run.parent
        while parent is not None:
            parent = await self._inherit(book, tenant, parent)
        book.stamp = stamp

    def _stamp(self) -> tuple[int, int] | None:
        foreign = self._store.runs_stamp()
        return None if foreign is None else (foreign, self._beside)

    def changed_beside(self) -> None:
        """Somebody in this process has written past the books: an operator at the desk."""
        self._beside += 1

    async def _read(self, book: Book, name: str) -> None:
        since = book.pulses.get(name, 0)
        changes = await self._store.run_changes(book.run.tenant, name, book.attempt, since)
        if changes is None:
            raise StoreUnavailable(f"The run {name!r} is not in the store any more. Nothing was sent.")
        if changes.run.pulse != since or since == 0:
            book.apply(changes)

    async def _inherit(self, book: Book, tenant: str, parent: Parent) -> Parent | None:
        since = book.pulses.get(parent.run, -1)
        changes = await self._store.run_changes(tenant, parent.run, "", max(since, 0))
        if changes is None:
            raise StoreUnavailable(
                f"The run {parent.run!r}, a parent, is not in the store. Nothing was sent."
            )
        if changes.run.state is RunState.EXPIRED:  # what it had done is not known any more
            raise RunExpired(
                f"The run {book.run.name!r} is a fork of {parent.run!r}, whose record is over. Nothing was "
                "sent. Use another name for new work.",
                run=book.run.name,
            )
        if changes.run.pulse != since:
            book.inherit(changes, parent.at, resend=parent.resend)
        above = changes.run.parent
        if above is None:
            return None
        return replace(above, at=min(above.at, parent.at), resend=above.resend or parent.resend)

    def row(self, call: Call) -> None:
        """A row of a run that this process has written."""
        for book in self._of_run.get((call.tenant, call.run), ()):
            book.learn(step_of(call))
        if self._forks:  # one of them may refer to it
            self.changed_beside()

    def position(self, call: Call) -> int:
        books = self._of_run.get((call.tenant, call.run), ())
        return max((book.position for book in books), default=call.seq)

    def _keep(self, key: tuple[str, str, str], book: Book) -> Book:
        """The one that is kept: two may have looked at once."""
        kept = self._books.setdefault(key, book)
        if kept is book:
            self._of_run.setdefault(key[:2], []).append(book)
            self._forks += book.run.parent is not None
        for old in list(self._books)[:-1]:  # the oldest first
            weight = sum(map(len, self._books.values()))
            if len(self._books) <= AT_HAND and weight <= STEPS_AT_HAND:
                break
            if self._books[old].is_idle():
                gone = self._books.pop(old)
                self._forks -= gone.run.parent is not None
                self._of_run[old[:2]].remove(gone)
                if not self._of_run[old[:2]]:
                    del self._of_run[old[:2]]
        return kept

    # ---- the run itself ----

    async def pin(self, book: Book, upstream: Upstream) -> Pinned:
        """The upstream as this run names its calls: as when it was first asked in this run."""
        recipe = book.run.recipes.get(upstream.name)
        while recipe is None:
            recipes = {**book.run.recipes, upstream.name: recipe_of(upstream)}
            await self._change(book, f"pinned the names of {upstream.name}'s calls", recipes=recipes)
            recipe = book.run.recipes.get(upstream.name)
        known = self._pinned.get((id(upstream), recipe))
        if known is not None and known[0] is upstream:
            return known[1]
        try:
            as_then, canonical = pinned(upstream, recipe)
        except UnknownRecipe as error:
            raise BadRequest(f"{error} Nothing was sent.") from None
        found = Pinned(as_then, canonical, blake2b(recipe.encode(), digest_size=16).hexdigest())
        if len(self._pinned) > AT_HAND:
            self._pinned.clear()
        self._pinned[id(upstream), recipe] = (upstream, found)
        return found

    async def passed(self, book: Book, kind: str) -> None:
        """The run has calls of a kind that is not recorded. Said once; a store in trouble loses no call."""
        while kind not in book.run.passed:
            try:
                await self._change(book, f"passed without a record: {kind}", passed=book.run.passed | {kind})
            except StoreUnavailable as error:
                self._observer.noted("store-trouble", doing="noting on a run", error=error.detail)
                return

    async def _change(self, book: Book, why: str, **changes: object) -> None:
        """Once; if somebody else was faster, `book` has what they wrote and the caller looks again."""
        run = book.run
        changed = replace(run, version=run.version + 1, **changes)  # type: ignore[arg-type]
        entry = RunEntry(self._clock.now(), f"proxy:{self._store.owner}", "changed", why)
        won = await self._store.swap_run(changed, entry, expected=run.version)
        if won:
            book.run = changed
        # Who was faster may be another attempt's book in here, and of those the stamp says nothing.
        await self.refresh(book, anyway=not won)

    async def note(self, book: Book, event: str, why: str) -> None:
        entry = RunEntry(self._clock.now(), f"proxy:{self._store.owner}", event, why)
        with contextlib.suppress(StoreUnavailable):  # it is told to the log too
            await self._store.note_run(book.run.tenant, book.run.name, entry)
