"""The life of a call: its states, its events, its record.

One table holds every legal transition; what is not in it raises. Every change of a call is made by
`advance`, so a store can only ever be asked to write what the table allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from proxy.core.run_record import InRun
from proxy.core.terms import Terms

# Raised whenever a field of the records below changes its meaning. Stored with every row.
RECORD_VERSION = 1


class Word(StrEnum):
    """Found in tables by its text: an enumeration's own hash is written in Python."""

    __hash__ = str.__hash__


class State(Word):
    PENDING = "pending"
    IN_DOUBT = "in_doubt"
    DONE = "done"
    RELEASED = "released"
    AWAITING_APPROVAL = "awaiting_approval"
    DENIED = "denied"


class Event(Word):
    CLAIM = "claim"  # somebody is about to send; durable before the first byte
    ANSWERED = "answered"  # a final answer, from the upstream, a probe or a person
    NOT_SENT = "not_sent"  # proven: no byte of the request left this machine
    NOT_EXECUTED = "not_executed"  # the upstream, a probe or a person says that nothing happened
    INCONCLUSIVE = "inconclusive"  # a safe call without a final answer: repeating it does no harm
    LOST = "lost"  # sent, or perhaps sent, and nobody knows what became of it
    RESEND = "resend"  # proven safe: same upstream key, or a probe saw nothing
    NEEDS_APPROVAL = "needs_approval"
    APPROVE = "approve"
    DENY = "deny"
    EXPIRE = "expire"  # an approval not given in time, or a denial that has lapsed


# None stands for "no live row": never seen, deleted, or past its time to live.
TRANSITIONS: Mapping[tuple[State | None, Event], State] = MappingProxyType(
    {
        (None, Event.CLAIM): State.PENDING,
        (None, Event.NEEDS_APPROVAL): State.AWAITING_APPROVAL,
        (State.RELEASED, Event.CLAIM): State.PENDING,
        (State.RELEASED, Event.NEEDS_APPROVAL): State.AWAITING_APPROVAL,
        (State.RELEASED, Event.ANSWERED): State.DONE,  # a late answer with the current fence
        (State.PENDING, Event.ANSWERED): State.DONE,
        (State.PENDING, Event.NOT_SENT): State.RELEASED,
        (State.PENDING, Event.NOT_EXECUTED): State.RELEASED,
        (State.PENDING, Event.INCONCLUSIVE): State.RELEASED,
        (State.PENDING, Event.LOST): State.IN_DOUBT,
        (State.IN_DOUBT, Event.ANSWERED): State.DONE,
        (State.IN_DOUBT, Event.NOT_EXECUTED): State.RELEASED,
        (State.IN_DOUBT, Event.RESEND): State.PENDING,
        (State.AWAITING_APPROVAL, Event.ANSWERED): State.DONE,  # a late answer: it had happened after all
        (State.AWAITING_APPROVAL, Event.APPROVE): State.RELEASED,
        (State.AWAITING_APPROVAL, Event.EXPIRE): State.RELEASED,
        (State.AWAITING_APPROVAL, Event.DENY): State.DENIED,
        (State.DENIED, Event.ANSWERED): State.DONE,  # the same
        (State.DENIED, Event.EXPIRE): State.RELEASED,
    }
)

# The states in which nobody may delete or evict a row: an effect may be out there.
OPEN_STATES = frozenset({State.PENDING, State.IN_DOUBT})
# The states that a person is told of (Observer.entered).
NEED_A_PERSON = frozenset({State.IN_DOUBT, State.AWAITING_APPROVAL})
SETTLED_STATES = frozenset({State.DONE, State.RELEASED, State.DENIED})


class IllegalTransition(Exception):
    """A bug in semel: somebody asked for a change that the table does not know."""


class Place(Word):
    """Where the body of an answer lies."""

    INLINE = "inline"  # in the row
    BLOB = "blob"  # a file named by its digest, fsynced before the row
    CACHE = "cache"  # the shared cache: may be lost, the call is then made again
    NOWHERE = "nowhere"  # it happened, its answer cannot be given


@dataclass(frozen=True, kw_only=True)  # without slots, as Call
class Answer:
    """What the upstream (or a person) said. `head` and `body` are sealed: only the codec reads them."""

    status: int
    size: int
    recorded_at: float
    place: Place
    head: bytes = b""
    body: bytes = b""
    blob: str = ""  # the digest, for Place.BLOB
    why_nowhere: str = ""

    def __post_init__(self) -> None:
        if (self.place is Place.BLOB) != bool(self.blob):
            raise ValueError("a blob answer names its digest, and no other does")
        if self.place is not Place.INLINE and self.body:
            raise ValueError("only an inline answer holds its body")
        if (self.place is Place.NOWHERE) != bool(self.why_nowhere):
            raise ValueError("an answer that cannot be given says why, and no other does")


def answer_in_row(status: int, recorded_at: float, head: bytes, body: bytes, *, size: int) -> Answer:
    """`Answer(...)` of what lies in the row, in a third of the time: nearly every call ends with one."""
    answer = object.__new__(Answer)
    fields = {
        "status": status,
        "size": size,
        "recorded_at": recorded_at,
        "place": Place.INLINE,
        "head": head,
        "body": body,
        "blob": "",
        "why_nowhere": "",
    }
    object.__setattr__(answer, "__dict__", fields)
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What is known about a send whose outcome is not."""

    since: float
    reason: str
    upstream_status: int | None = None
    excerpt: str = ""


@dataclass(frozen=True, kw_only=True)  # without slots: a dict is copied in a fifth of the time
class Call:
    """One row of the ledger: intent and answer together, so that no gap can open between them.

    `version` grows with every change (stores compare and swap on it), `fence` with every claim (an owner
    may settle only what carries its fence). `born` stays over all of that: a row that was collected and made
    again is another, though its versions start from one again. `request` and the answer's head and body are
    sealed bytes; what must be indexed or listed stands outside.
    """

    key: bytes  # 16 bytes of xxh3-128; its hex form is the call's id
    fingerprint: bytes  # BLAKE2b-256 over everything that names the call
    named_by: bytes = b""  # with a client's key: BLAKE2b-256 over what the key covers, else empty
    tenant: str
    run: str = ""
    attempt: str = ""
    seq: int = 0  # the order of first claims within a run
    occurrence: int = 1
    upstream: str
    rule: str
    tool: str
    safe: bool
    state: State
    version: int
    fence: int
    born: float = 0.0  # when the row was made
    owner: str  # the epoch of the process that claimed it last
    created_at: float
    sent_at: float | None = None
    settled_at: float | None = None
    expires_at: float | None = None  # never set while open
    sends: int = 0
    unresolved: bool = False  # an earlier send may have executed; only an answer, a probe or a person ends it
    request: bytes = b""  # sealed: what a resend needs, and the arguments for people
    request_blob: str = ""  # the body's digest where it is too large for the row
    answer: Answer | None = None
    doubt: Doubt | None = None
    cost_usd: float | None = None  # what the answer cost, where the rule says
    in_run: InRun | None = None  # what only calls of a run remember
    terms: Terms | None = None  # what only calls with an upstream key, or for a person to permit, remember

    def __post_init__(self) -> None:
        if len(self.key) != 16:
            raise ValueError("a key has 16 bytes")
        if self.version < 1:
            raise ValueError("a row has been written at least once")
        if self.state is State.DONE and self.answer is None:
            raise ValueError("done needs an answer")
        if self.state is State.IN_DOUBT and self.doubt is None:
            raise ValueError("in doubt needs a reason")
        if self.state in OPEN_STATES and self.expires_at is not None:
            raise ValueError("what is open never expires")
        if self.state is State.PENDING and not self.owner:
            raise ValueError("pending needs an owner")
        if self.state is State.AWAITING_APPROVAL and (self.terms is None or not self.terms.bound_to):
            raise ValueError("who waits for approval says what for")
        if bool(self.run) != (self.in_run is not None):
            raise ValueError("a call of a run remembers what runs need, and no other does")

    @property
    def id(self) -> str:
        return self.key.hex()


class Entry(NamedTuple):
    """One line of a call's history; appended in the same transaction as the change it tells of."""

    at: float
    actor: str  # "proxy:<owner>", "operator:<name>", "recovery:<owner>"
    event: str  # an Event, or "evidence" for what is only noted
    before: State | None
    after: State | None
    why: str
    fence: int


_FIELDS = frozenset(field.name for field in fields(Call))
_DEFAULTS = {field.name: field.default for field in fields(Call) if field.default is not MISSING}
_REQUIRED = _FIELDS - _DEFAULTS.keys()


def _of(values: dict[str, Any]) -> Call:
    """Field by field takes longer than the rest of a claim. Of the fields none is missing: one more is known
    by their number."""
    if len(values) != len(_FIELDS):
        raise TypeError(f"no fields of a call: {sorted(values.keys() - _FIELDS)}")
    call = object.__new__(Call)
    object.__setattr__(call, "__dict__", values)
    call.__post_init__()
    return call


def begun(**values: Any) -> Call:  # noqa: ANN401 (fields of Call)
    """A call with these fields, as `Call(...)`, in half of the time: every send does this."""
    if not values.keys() >= _REQUIRED:
        raise TypeError(f"a call has these, too: {sorted(_REQUIRED - values.keys())}")
    return _of({**_DEFAULTS, **values})


def evolve(call: Call, **changes: Any) -> Call:  # noqa: ANN401 (fields of Call)
    """dataclasses.replace, in a quarter of the time: every send does this."""
    return _of(_changed(call, changes))


def _changed(call: Call, changes: dict[str, Any]) -> dict[str, Any]:
    """A copy takes what stands there as it is; building another takes twice as long."""
    values = call.__dict__.copy()
    values.update(changes)
    return values


def next_state(state: State | None, event: Event) -> State:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event} in state {state or 'none'}") from None


def advance(
    call: Call,
    event: Event,
    *,
    at: float,
    actor: str,
    why: str,
    **changes: Any,  # noqa: ANN401 (fields of Call)
) -> tuple[Call, Entry]:
    """The call after `event`, and the history line that goes with it."""
    after = next_state(call.state, event)
    changes["state"], changes["version"] = after, call.version + 1
    moved = _of(_changed(call, changes))
    return moved, Entry(at, actor, event, call.state, after, why, moved.fence)


def is_live(call: Call, now: float) -> bool:
    """A settled row past its time is as good as deleted; collecting it is only housekeeping."""
    return call.expires_at is None or call.state in OPEN_STATES or now < call.expires_at
