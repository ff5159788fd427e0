"""What an operator can ask and decide about runs, and how it is done on a store.

What a run inherits, and which of its calls nobody has asked, is read with the same books that agents are
served from (proxy/runs): there is no second reading of a run. Nothing is half done: a fork is one write; what
`allow` retires is written row by row, each with its line of history, and asking again goes on where it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from proxy.admin import run_views
from proxy.admin.checked import mistakes
from proxy.admin.run_schemas import WHY
from proxy.admin.views import Json
from proxy.clock import Clock
from proxy.core.divergence import MATTERS, Row, is_expired, unasked
from proxy.core.intent import Call, Entry, evolve
from proxy.core.run_record import Parent, Run, RunEntry, RunState, Step
from proxy.errors import BadRequest, NotFound, RunExists, RunExpired, StaleVersion, StoreUnavailable
from proxy.front.run_ref import check_attempt, check_run
from proxy.observe import Deaf
from proxy.runs.book import Book
from proxy.runs.books import RunBooks
from proxy.store.base import RunQuery, Store

T = TypeVar("T")

# Somebody else may be faster; whoever loses so often is told.
TRIES = 20
RETIRED = "retired"
# So many histories are read at once.
PORTION = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    by: str
    reason: str
    at: int
    name: str
    resend: bool = False


class RunDesk(Protocol):
    """Raises the errors of proxy/errors.py."""

    async def page(self, query: RunQuery) -> Json: ...

    async def show(self, name: str) -> Json: ...

    async def fork(self, name: str, fork: Fork) -> Json:
        """The new run, as `page` gives it."""

    async def allow(self, name: str, *, by: str, reason: str) -> Json: ...

    async def complete(self, name: str, *, by: str, attempt: str) -> Json: ...

    async def export(self, name: str) -> AsyncIterator[bytes]:
        """Lines; a run that cannot be exported is refused before the first."""


# The lines of one call of an export, in export.py.
Exported = Callable[[run_views.Seen], AsyncIterator[bytes]]


class LocalRunDesk:
    """`tenant` empty: everybody's, as long as a name is one tenant's. `retention`: of runs, in seconds.
    `decided`: told after every decision, whether it is known to be written or not."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        tenant: str,
        retention: float | None,
        export: Exported,
        decided: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tenant = tenant
        self._retention = math.inf if retention is None else retention
        self._export = export
        self._told = decided
        self._books = RunBooks(store=store, clock=clock, observer=Deaf(), retention=math.inf)

    # ---- looking ----

    async def page(self, query: RunQuery) -> Json:
        page = await self._store.list_runs(replace(query, tenant=self._tenant))
        held: list[int] = []
        for begin in range(0, len(page.runs), PORTION):
            held += await asyncio.gather(*map(self._held, page.runs[begin : begin + PORTION]))
        shown = [
            run_views.run(run, self._state(run)) | {"diverged": times}
            for run, times in zip(page.runs, held, strict=True)
        ]
        # One whose time is over, and that is not collected yet, is no longer what the store says.
        fits = [run for run in shown if query.state is None or run["state"] == query.state]
        return {"runs": fits, "next": page.next}

    async def _held(self, run: Run) -> int:
        """Only its history says so; one that is over holds nobody."""
        if self._state(run) is RunState.EXPIRED:
            return 0
        return run_views.diverged(run, await self._store.run_history(run.tenant, run.name))

    async def show(self, name: str) -> Json:
        return run_views.detail(await self._seen(await self._find(name)))

    async def export(self, name: str) -> AsyncIterator[bytes]:
        seen = await self._seen(await self._living(name))
        return self._export(seen)

    async def _seen(self, run: Run) -> run_views.Seen:
        book = await self._read(run, "")
        return run_views.Seen(
            run=book.run,
            state=self._state(book.run),
            steps=sorted(_steps(book, book.rows()), key=lambda step: (step.seq, step.run != run.name)),
            tallies=await self._store.run_tallies(run.tenant, run.name),
            history=await self._store.run_history(run.tenant, run.name),
            now=self._clock.now(),
        )

    async def _read(self, run: Run, attempt: str) -> Book:
        book = Book(run, attempt, self._store.owner)
        if run.state is not RunState.EXPIRED:  # then its parents may be gone too
            await self._books.refresh(book)
        return book

    # ---- deciding ----

    async def fork(self, name: str, fork: Fork) -> Json:
        _check_reason(fork.reason)
        check_run(fork.name)
        parent = await self._living(name)
        if not 0 <= fork.at <= parent.last_seq:
            raise BadRequest(
                f"The run {name} has steps 1 to {parent.last_seq}: a fork begins behind one of them, at "
                f"{parent.last_seq} at the most (0: behind none).",
                run=name,
            )
        now = self._clock.now()
        forked = Run(
            tenant=parent.tenant,
            name=fork.name,
            created_at=now,
            active_at=now,
            last_seq=parent.last_seq,  # its own steps are numbered after its parent's
            parent=Parent(run=parent.name, at=fork.at, resend=fork.resend),
            origin=parent.origin or parent.name,
            recipes=parent.recipes,
            retired=parent.retired,
        )
        again = ", calls with effects after that are made again" if fork.resend else ""
        why = f"forked from {parent.name} at step {fork.at}{again}: {fork.reason.strip()}"
        entry = RunEntry(now, f"operator:{fork.by}", "forked", why)
        if not await self._sure(self._store.swap_run(forked, entry, expected=0)):
            raise RunExists(
                f"There is, or was, a run {fork.name}: choose a name that no run has had.", run=fork.name
            )
        told = entry._replace(why=f"{fork.name} begins at step {fork.at}{again}: {fork.reason.strip()}")
        with contextlib.suppress(StoreUnavailable):  # the fork says it too
            await self._store.note_run(parent.tenant, parent.name, told)
        return run_views.run(forked, RunState.OPEN)

    async def allow(self, name: str, *, by: str, reason: str) -> Json:
        _check_reason(reason)
        run = await self._living(name)
        latest = run.attempts[-1].name if run.attempts else None
        retired: list[Step] = []
        if latest is not None:
            book = await self._read(run, latest)
            rows = unasked(book.rows(), latest, book.run.attempt_names)
            steps = _steps(book, rows)
            entry = RunEntry(
                self._clock.now(),
                f"operator:{by}",
                "allowed",
                f"{latest} may leave the record: {_named(steps)}: {reason.strip()}",
            )
            retired = await self._sure(self._retire(run, steps, entry))
        return {
            "run": run.name,
            "attempt": latest,
            "retired": [run_views.retired(step) for step in retired],
        }

    async def complete(self, name: str, *, by: str, attempt: str) -> Json:
        if attempt:
            check_attempt(attempt)
        await self._living(name)
        entry = RunEntry(self._clock.now(), by, "completed", f"by {attempt or 'an agent without an attempt'}")

        def completed(run: Run) -> Run | None:
            return None if run.state is RunState.COMPLETE else replace(run, state=RunState.COMPLETE)

        run = await self._sure(self._change(name, completed, entry))
        return run_views.run(run, self._state(run))

    # ---- writing ----

    async def _retire(self, run: Run, steps: list[Step], entry: RunEntry) -> list[Step]:
        """Rows of the run itself are retired where they are. What it inherited stands in the parent as
        before: there nobody has allowed anything."""
        own = [step for step in steps if step.run == run.name]
        done = [step for step in own if await self._retire_row(step, entry)]
        inherited = [step for step in steps if step.run != run.name]
        if inherited:
            keys = frozenset(step.key for step in inherited)
            await self._change(run.name, lambda run: replace(run, retired=run.retired | keys), entry)
        elif done:
            await self._store.note_run(run.tenant, run.name, entry)
        return sorted([*done, *inherited], key=lambda step: step.seq)

    async def _retire_row(self, step: Step, entry: RunEntry) -> bool:
        for _ in range(TRIES):
            call = await self._store.get(step.key)
            if call is None or call.state not in MATTERS or call.expires_at is not None:
                return False  # there is nothing any more that could be asked
            changed, line = _retired(call, entry)
            if (await self._store.swap(changed, line, expected=call.version)).won:
                return True
        raise StaleVersion(f"The call {step.id} changes all the time: try again when the run is at rest.")

    async def _change(self, name: str, change: Callable[[Run], Run | None], entry: RunEntry) -> Run:
        """`change` gives None where there is nothing to do."""
        for _ in range(TRIES):
            run = await self._living(name)
            changed = change(run)
            if changed is None:
                return run
            changed = replace(changed, version=run.version + 1)
            if await self._store.swap_run(changed, entry, expected=run.version):
                return changed
        raise StaleVersion(f"The run {name} changes all the time: try again when it is at rest.", run=name)

    async def _sure(self, deciding: Awaitable[T]) -> T:
        try:
            return await deciding
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"{error.detail}. Whether the decision was written is not known, and nothing was sent: look "
                "at the run again before you decide."
            ) from error
        finally:
            self._told()

    # ---- finding ----

    async def _find(self, name: str) -> Run:
        check_run(name)
        tenants = [self._tenant] if self._tenant else await self._store.tenants_of(name)
        if len(tenants) > 1:
            raise BadRequest(
                f"The tenants {', '.join(tenants)} each have a run {name}: say whose (--tenant T beside the "
                "store, or a token of that tenant).",
                run=name,
            )
        run = await self._store.get_run(tenants[0], name) if tenants else None
        if run is None:
            raise NotFound(f"There is no run {name}.", run=name)
        return run

    async def _living(self, name: str) -> Run:
        run = await self._find(name)
        if self._state(run) is RunState.EXPIRED:
            raise RunExpired(
                f"The run {name} is over: its retention (runs.retention) has passed, and only its name is "
                "left.",
                run=name,
            )
        return run

    def _state(self, run: Run) -> RunState:
        over = is_expired(last_activity=run.active_at, retention=self._retention, now=self._clock.now())
        return RunState.EXPIRED if over else run.state


def _steps(book: Book, rows: tuple[Row, ...] | list[Row]) -> list[Step]:
    found = (book.step(bytes.fromhex(row.id)) for row in rows)
    return [step for step in found if step is not None]


def _retired(call: Call, entry: RunEntry) -> tuple[Call, Entry]:
    assert call.in_run is not None  # it was found in a run
    in_run = replace(call.in_run, retired=True)
    changed = evolve(call, version=call.version + 1, in_run=in_run)
    return changed, Entry(entry.at, entry.actor, RETIRED, call.state, call.state, entry.why, call.fence)


def _named(steps: list[Step]) -> str:
    named = ", ".join(f"{step.tool} (step {step.seq})" for step in steps[:10])
    return f"{named} and {len(steps) - 10} more" if len(steps) > 10 else named or "nothing was unasked"


def _check_reason(reason: str) -> None:
    if mistakes(WHY, reason) or reason.encode("utf-8", "replace") != reason.encode("utf-8", "surrogatepass"):
        raise BadRequest("The reason must be one line of at most 2000 characters, without control ones.")
