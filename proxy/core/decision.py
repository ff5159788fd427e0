"""What can be decided about a call that is asked for. Values only; decide.py decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from proxy.core.intent import Answer, Call


@dataclass(frozen=True, slots=True)
class Claim:
    """Nobody has sent it, or nothing came of it: claim the row, then send. `over` stands there now."""

    over: Call | None


@dataclass(frozen=True, slots=True)
class Replay:
    call: Call
    answer: Answer


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody is sending it right now."""

    call: Call


@dataclass(frozen=True, slots=True)
class Hold:
    """Sent, outcome unknown. The rule says what may be done about it (core/doubt.py)."""

    call: Call


@dataclass(frozen=True, slots=True)
class Unavailable:
    call: Call
    why: str


@dataclass(frozen=True, slots=True)
class AwaitPerson:
    call: Call


@dataclass(frozen=True, slots=True)
class Refused:
    call: Call


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A question that nobody decided in time, or a refusal that is over: say so first."""

    call: Call


@dataclass(frozen=True, slots=True)
class Conflict:
    """The client's key stands for another call."""

    call: Call


@dataclass(frozen=True, slots=True)
class Collision:
    """Equal key, other fingerprint."""


@dataclass(frozen=True, slots=True)
class TooOld:
    """Its answer is older than the rule allows, and the rule wants that said."""

    call: Call
    age: float
    most: float


Decision: TypeAlias = (
    Claim
    | Replay
    | Wait
    | Hold
    | Unavailable
    | AwaitPerson
    | Refused
    | Lapsed
    | Conflict
    | Collision
    | TooOld
)
