"""The seam between semel and whatever keeps its calls.

Stores compare and swap; they never decide. They raise `StoreUnavailable` and nothing else. A swap that
raised may or may not have landed: the caller reads the row again and looks at the fence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from proxy.core.budget import Account, Charge, Spent
from proxy.core.intent import Call, Entry, Event, State
from proxy.core.run_record import Changes, How, Run, RunEntry, RunState, Serving, Tally


@dataclass(frozen=True, slots=True)
class Swap:
    """`won`: the row is now what was asked for, durably. Otherwise `present` is what stands there instead, or
    `exceeded` is what the account holds whose limit the charge would pass."""

    won: bool
    present: Call | None = None
    seq: int = 0  # in a run: the row's place in the order of claims
    exceeded: tuple[Spent, ...] | None = None


# Outside runs most swaps end so: one for all of them.
WON = Swap(True)
# Hears how many writes each commit carried. On the event loop.
Batched: TypeAlias = Callable[[int], None]


def uncounted(_: int) -> None:
    """Nobody counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """For metrics: how many calls are in which state, since when the oldest doubt and the oldest question
    wait for a person, how big is it all. `owners`: how many processes work on the store and live, as far as
    this one knows. `parts`: of the bytes, as far as the store can tell them apart cheaply: rows, blobs,
    cache, and unused (room in files that collecting has left, and that is filled before they grow)."""

    by_state: dict[State, int]
    oldest_doubt_at: float | None
    bytes_used: int
    parts: dict[str, int] = field(default_factory=dict)
    oldest_question_at: float | None = None
    owners: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """Pending calls of the dead. `unreadable`: by id, those of which the store can only say why not."""

    calls: list[Call]
    unreadable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which calls to list. Empty means any. `after` is where the page before ended."""

    tenant: str = ""
    state: State | None = None
    upstream: str = ""
    tool: str = ""
    run: str = ""
    limit: int = 100
    after: int | None = None

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError("a page holds at least one call")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`next` is None on the last page. `unreadable`: by id, those of which the store can only say why not."""

    calls: list[Call]
    next: int | None = None
    unreadable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs to list, newest first."""

    tenant: str = ""
    state: RunState | None = None
    limit: int = 100
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    runs: list[Run]
    next: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a portion of collecting removed, or would remove. `runs`: of which only the name is left now.
    `more`: there is another portion."""

    calls: int
    blobs: int
    bytes: int
    more: bool
    runs: int = 0

    def __bool__(self) -> bool:
        """Whether there was anything."""
        return bool(self.calls or self.runs or self.blobs)

    def with_portion(self, portion: Collected) -> Collected:
        return Collected(
            calls=self.calls + portion.calls,
            blobs=self.blobs + portion.blobs,
            bytes=self.bytes + portion.bytes,
            more=portion.more,
            runs=self.runs + portion.runs,
        )


@dataclass(frozen=True, slots=True)
class BlobRef:
    digest: str  # hex BLAKE2b-256 of the content
    size: int


class BlobLost(Exception):
    """A blob that a row names is missing or damaged."""


class Told(Protocol):
    """Whoever waits for a swap without being in a task: told as a future is, where the store tells its own
    waiters, so of nothing that takes long."""

    def done(self) -> bool:
        """Whether it has stopped listening."""

    def set_result(self, swap: Swap) -> None: ...

    def set_exception(self, error: BaseException) -> None: ...


def changes_settled(entry: Entry, expected: int) -> bool:
    """Whether a swap may be one over a row that was done: a decision about it, or a new claim over one that
    has lapsed (whose history starts anew, so the line tells of nothing before)."""
    return expected > 0 and (entry.before is None or entry.before is State.DONE)


def takes_seq(call: Call, entry: Entry) -> bool:
    """In a run every claim takes the next place in the order: what is asked again is made after all that was
    asked meanwhile. What waits for a person has its place too: others are asked after it."""
    return bool(call.run) and entry.event in (Event.CLAIM, Event.NEEDS_APPROVAL)


class Store(Protocol):
    @property
    def name(self) -> str:
        """For semel_build_info: embedded, memory, …"""

    @property
    def owner(self) -> str:
        """This process's epoch: unique for ever, written into every claim. A process that others have taken
        for dead goes on with a new one."""

    @property
    def secret(self) -> bytes:
        """32 random bytes, made with the store and shared by all proxies on it; of an encrypted record the
        keystone that hides them (keystone.py)."""

    async def swap_secret(self, old: bytes, new: bytes) -> bytes:
        """Keep `new` in its place if it is still `old`. What stands there now, durably."""

    async def scrub(self) -> str:
        """Forget the shared cache, and bring what was overwritten before out of the store's files, as far as
        that can be done while others work with it. What is left to do, for people; empty: nothing."""

    async def get(self, key: bytes, known: Call | None = None) -> Call | None:
        """With `known`, a row read before: if it is still that one, in that version, it need not be read
        again."""

    async def get_many(self, keys: Sequence[bytes]) -> list[Call]:
        """Those of them that are there and can be read; the others are left out."""

    def settled_stamp(self) -> int | None:
        """What `get` gives as done after this was asked stands for as long as this says the same: whoever
        changes or removes a done row, in whatever process, changes it before anybody is told. None: it cannot
        be known now. Costs next to nothing."""

    async def swap(
        self,
        call: Call,
        entry: Entry,
        *,
        expected: int,
        served: Serving | None = None,
        charge: Charge | None = None,
    ) -> Swap:
        """Write `call` and append `entry` if the stored row has version `expected` (0: no row) and was born
        with `call`. Durable when it returns. `call.version` is `expected + 1`. In a run (which was opened) a
        claim is given its `seq`, and `served` is written along. `charge` is taken in the same step as the row
        is written; if it has limits and what counts of its account, with it, passes one, nothing is written.
        Without limits it changes what is there, never below zero, and adds no bucket."""

    def swap_soon(self, call: Call, entry: Entry, *, expected: int, told: Told) -> None:
        """`swap`, of a call outside runs and without a charge. What it comes to is told later, also what
        `swap` would raise; only that the store takes nothing may be raised at once."""

    async def spent(self, account: Account) -> list[Spent]:
        """All that it holds, in the order of meters and buckets; also what no longer counts."""

    async def note(self, key: bytes, entry: Entry) -> None:
        """Append a history line without changing the row (evidence)."""

    async def history(self, key: bytes) -> list[Entry]: ...

    def mark_replayed(self, key: bytes, at: float) -> None:
        """Count a replay, lazily: it rides on the next commit, or on one of its own within a second."""

    async def replays(self, key: bytes) -> int: ...

    # ---- runs ----

    async def open_run(self, tenant: str, name: str, attempt: str, now: float) -> Run:
        """The run, made if it is new; the attempt, if one is given, is listed in it. Durable."""

    def runs_stamp(self) -> int | None:
        """What `run_changes` says after this was asked is all there is, save for this process's own changes,
        for as long as this says the same. None: it cannot be known now. Costs next to nothing."""

    async def get_run(self, tenant: str, name: str) -> Run | None: ...

    async def swap_run(self, run: Run, entry: RunEntry, *, expected: int) -> bool:
        """Write the run and a line of its history if its version is `expected` (0: no such run). Durable.
        `pulse` and, of a run that is there, `last_seq` are the store's own."""

    async def run_changes(self, tenant: str, name: str, attempt: str, since: int) -> Changes | None:
        """What has changed since the run had that pulse, with the exchanges of this attempt (none without
        one). None: there is no such run."""

    def mark_served(self, served: Serving) -> None:
        """How an exchange stands, lazily, like `mark_replayed`."""

    async def note_run(self, tenant: str, name: str, entry: RunEntry) -> None: ...

    async def run_history(self, tenant: str, name: str) -> list[RunEntry]: ...

    async def list_runs(self, query: RunQuery) -> RunPage: ...

    async def run_sums(self, tenant: str, name: str) -> dict[str, Counter[How]]:
        """By attempt: how many were served how."""

    async def run_asked(self, tenant: str, name: str, attempt: str) -> frozenset[bytes]:
        """The keys of the calls that this attempt has asked."""

    async def run_tallies(self, tenant: str, name: str) -> list[Tally]:
        """Who was served how, by call: what `run_sums` and `run_asked` say of all attempts at once."""

    async def tenants_of(self, name: str) -> list[str]:
        """Who has a run of this name, in order."""

    # ---- watching and listing ----

    async def changed(self, key: bytes, version: int, timeout: float) -> bool:
        """Wait until the row's version is not `version`, whoever changes it, in whatever process.
        False when `timeout` seconds passed first."""

    async def find(self, query: Query) -> Page:
        """Newest first. A page may take its time; nobody else waits for it."""

    async def collect(
        self, now: float, *, limit: int = 500, dry_run: bool = False, runs_before: float = 0.0
    ) -> Collected:
        """Remove settled calls past their time, with their history, and blobs that no row names and nobody
        has touched for an hour; at most `limit` of each, so that nobody waits for it. What is open, or waits
        for a person, is never removed. Runs go whole: those last active before `runs_before`, unless a
        living fork refers to them; their names stay, and their accounts go; of other accounts, what is past.
        `dry_run` removes nothing, and counts what all portions
        together would remove."""

    async def orphans(self) -> Orphans:
        """Pending calls whose owner is dead. A living owner's calls are never among them."""

    def owns(self) -> bool:
        """Asked directly before the first byte: may this process still act as the owner it claims to be?
        Costs next to nothing."""

    async def owner_is_dead(self, owner: str) -> bool: ...

    async def census(self) -> Census: ...

    def evictions(self) -> int:
        """How many shared answers this process has thrown out for want of room, since it opened the store."""

    async def live_calls(self, upstream: str, rule: str, now: float) -> int:
        """How many calls of this rule have not lapsed. May walk the whole store: asked only on a reload."""

    async def put_blob(self, chunks: Iterable[bytes]) -> BlobRef:
        """Durable when it returns. `chunks` is consumed off the event loop."""

    def read_blob(self, ref: BlobRef) -> AsyncIterator[bytes]:
        """Raises BlobLost, at the latest in place of the last chunk: never a wrong or half body as whole."""

    async def cache_put(self, key: bytes, value: bytes, ttl: float) -> None: ...

    async def cache_get(self, key: bytes) -> bytes | None:
        """None when it is gone: evicted, expired, damaged."""

    async def clock_mark(self, now: float) -> float:
        """The latest time that any process has told, this one with it. Durable, but for the last minute."""

    async def ping(self) -> None:
        """A real round trip, for /readyz. Raises too when this process may no longer send."""

    async def close(self) -> None: ...
