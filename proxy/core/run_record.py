"""What is written down of a run: the run itself, what each of its calls remembers, who was served from it.

Plain values without rules; the rules are in runs.py, occurrence.py, frontier.py and divergence.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from proxy.core.intent import State

# Problems that count as received when they were given to an attempt: the agent went on knowing them.
RECEIVED_PROBLEMS = frozenset({"upstream-unreachable", "upstream-timeout", "in-doubt", "denied"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A problem that an attempt was given live, and how far the run had come by then (its highest seq)."""

    attempt: str
    problem: str
    position: int

    def __post_init__(self) -> None:
        if self.problem not in RECEIVED_PROBLEMS:
            raise ValueError(f"{self.problem} does not count as received")


@dataclass(frozen=True, slots=True, kw_only=True)
class InRun:
    """What a call of a run remembers beside what every call does."""

    family: bytes  # all occurrences of one identical call have this in common
    group: tuple[str, ...]  # see divergence.group_of
    uses: int = 1
    tries: int = 1  # claims in a row by one attempt
    receipts: tuple[Receipt, ...] = ()
    numbered: bool = False  # the client gave the number
    resolved: bool = False  # a person said what became of it
    retired: bool = False  # by `runs allow`
    orphaned: bool = False  # its proxy died while the shared call was made; what came of that, that one knows
    shared: str = ""  # the id of the tenant's call from which it is filled, and which is the one that is sent


class End(StrEnum):
    """How an exchange stands."""

    UNDER_WAY = "under_way"
    COMPLETE = "complete"  # the whole answer was handed on
    ABANDONED = "abandoned"  # the caller left before the end, or the proxy died while handing on
    PROBLEM = "problem"  # semel answered itself; the answer proper is still owed


class How(StrEnum):
    """How a caller was served; for people and sums."""

    EXECUTED = "executed"
    JOINED = "joined"
    REPLAYED = "replayed"
    REFUSED = "refused"


class Exchange(NamedTuple):
    """One caller served from one occurrence. A tuple: every step of a run that is replayed makes two."""

    number: int  # grows within the row
    attempt: str
    fence: int  # the claim whose answer is handed on
    owner: str  # the proxy that serves it
    end: End = End.UNDER_WAY
    final: bool = True  # what was handed on: a final answer, or one that a retry may change
    credentials: bytes = b""  # a keyed hash; only compared
    tokens: frozenset[str] = frozenset()  # Idempotency-Key, amz-sdk-invocation-id (hashed, told apart)
    wording: str = ""  # a keyed hash of the arguments before anything is normalised, where something is
    how: How = How.EXECUTED
    at: float = 0.0


class Serving(NamedTuple):
    """An exchange with the call and the run it belongs to: how stores keep it."""

    tenant: str
    run: str
    key: bytes
    exchange: Exchange


class RunState(StrEnum):
    OPEN = "open"
    COMPLETE = "complete"  # the agent ended well; it may be started again all the same
    EXPIRED = "expired"  # only the name is left


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """Where a fork comes from."""

    run: str
    at: int
    resend: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    name: str
    first_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`version` is compared and swapped when the run itself changes. `pulse` grows with every change of it,
    of its calls and of its exchanges; it is the store's to count, as are `last_seq` and `active_at`."""

    tenant: str
    name: str
    created_at: float
    active_at: float
    state: RunState = RunState.OPEN
    version: int = 1
    pulse: int = 0
    last_seq: int = 0
    attempts: tuple[Attempt, ...] = ()
    parent: Parent | None = None
    origin: str = ""  # the run under whose name its calls are named; a fork's is its parent's
    recipes: dict[str, str] = field(default_factory=dict)  # by upstream: how its calls are named, as JSON
    passed: frozenset[str] = frozenset()  # kinds of calls that went by without a record
    # Calls of its parents that `runs allow` has retired here; in the parents they stand as before.
    retired: frozenset[bytes] = frozenset()

    @property
    def attempt_names(self) -> tuple[str, ...]:
        return tuple(attempt.name for attempt in self.attempts)


class Step(NamedTuple):
    """A call of a run without what is large. `state` None: forgotten by a person, only its number stays."""

    key: bytes
    run: str
    attempt: str  # that claimed it last
    seq: int
    occurrence: int
    upstream: str
    rule: str
    tool: str
    safe: bool
    state: State | None
    version: int
    fence: int
    owner: str
    created_at: float
    settled_at: float | None
    status: int | None  # of the answer, if the row holds one
    size: int
    cost_usd: float | None
    in_run: InRun
    sent_at: float | None = None

    @property
    def id(self) -> str:
        return self.key.hex()


class Changes(NamedTuple):
    """What has changed in a run: its steps, and the exchanges of one attempt."""

    run: Run
    steps: list[Step]
    exchanges: list[tuple[bytes, Exchange]]


class Tally(NamedTuple):
    """How often an attempt was served how from one call, and when last."""

    attempt: str
    key: bytes
    how: How
    times: int
    last_at: float


class RunEntry(NamedTuple):
    """One line of a run's history."""

    at: float
    actor: str
    event: str
    why: str
