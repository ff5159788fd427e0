"""How far a run's past reaches: what a later attempt is given again, and where it goes live.

Everything an attempt received is recorded. As long as the record holds a call with effects made after it, a
later attempt gets it again, whatever its time to live: the effect may have been caused by it. Only beyond
the last call with effects do answers that are not final go live.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from proxy.core.intent import State
from proxy.core.runs import End, Occurrence

ANSWER = "answer"


class Standing(Protocol):
    """What the frontier needs to know of every row of a run."""

    @property
    def seq(self) -> int: ...
    @property
    def safe(self) -> bool: ...
    @property
    def state(self) -> State | None: ...
    @property
    def asked_by(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """`last_effect`: the highest seq of a standing call with effects; `asked`: the same, of those that this
    attempt has asked. Two numbers are enough because "is there one after p" compares with the highest."""

    last_effect: int = 0
    asked: int = 0


def frontier_of(rows: Iterable[Standing], attempt: str) -> Frontier:
    """A forgotten call (state None) no longer stands. Every other one does, released too: a late answer may
    still turn it into an executed one."""
    last = asked = 0
    for row in rows:
        if row.safe or row.state is None:
            continue
        last = max(last, row.seq)
        if attempt in row.asked_by:
            asked = max(asked, row.seq)
    return Frontier(last_effect=last, asked=asked)


@dataclass(frozen=True, slots=True)
class Again:
    """Give what was recorded, send nothing: `what` is ANSWER or the name of a problem."""

    what: str


@dataclass(frozen=True, slots=True)
class GoLive:
    """It may be claimed (again)."""


@dataclass(frozen=True, slots=True)
class ByState:
    """The state decides as everywhere: wait, resend, probe, hold, ask a person."""

    state: State


Recall: TypeAlias = Again | GoLive | ByState


def recorded(row: Occurrence) -> str | None:
    """What a caller was, or would have been, told by a call that is not done."""
    if row.answered:
        return ANSWER
    return row.receipts[-1].problem if row.receipts else None


def is_sealed(row: Occurrence, frontier: Frontier) -> bool:
    """Whether something that is not final must be given again because an effect came after it.

    A released answer is sealed by any call with effects after its own place, even if it came in later: its
    caller may have given up on it before. A doubt is sealed only by what was made after it was *given*;
    otherwise a parallel call would forbid the resend that settles it.
    """
    if row.resolved or recorded(row) is None:
        return False
    if row.state is State.RELEASED:
        return row.pinned or frontier.last_effect > row.seq
    if row.state is State.IN_DOUBT:
        given = [r.position for r in row.receipts if r.problem == "in-doubt"]
        return bool(given) and frontier.last_effect > min(given)
    return False


def is_passed(row: Occurrence, frontier: Frontier) -> bool:
    """This attempt has itself asked a call with effects after `row`: it is beyond it, as the first was."""
    return frontier.asked > row.seq


def is_superseded(row: Occurrence, attempt: str, frontier: Frontier) -> bool:
    """A released answer with a call with effects after it is never claimed again: its retry is the next
    occurrence. Before this attempt has come to that call, a retry must see it fail as the first attempt's
    retries did; and what was abandoned is still owed."""
    last = row.latest(attempt)
    return (
        row.state is State.RELEASED
        and is_sealed(row, frontier)
        and is_passed(row, frontier)
        and last is not None
        and last.end is not End.ABANDONED
    )


def recall(row: Occurrence, attempt: str, frontier: Frontier) -> Recall:
    """What an ask that was found to be this occurrence gets."""
    match row.state:
        case None:
            return GoLive()
        case State.DONE:
            return Again(ANSWER)
        case State.RELEASED:
            what = recorded(row)
            return Again(what) if what is not None and is_sealed(row, frontier) else GoLive()
        case State.IN_DOUBT:
            later = all(r.attempt != attempt for r in row.receipts)
            return Again("in-doubt") if later and is_sealed(row, frontier) else ByState(row.state)
        case State.PENDING | State.AWAITING_APPROVAL | State.DENIED:
            return ByState(row.state)


def is_used_up(row: Occurrence, attempt: str, frontier: Frontier) -> bool:
    """As many deliveries of the present answer as it has uses are complete or under way.

    A problem is still owed, until the attempt is beyond a sealed one. And before it is beyond, a failure
    that took the first attempt several tries is given as often: a loop of tries must end as it did.
    """
    served = row.deliveries(attempt)
    uses = row.uses
    if row.state is State.RELEASED and is_sealed(row, frontier):
        if is_passed(row, frontier):
            served += row.problems(attempt)
        elif row.claimed_by != attempt:
            uses += row.tries - 1
    return served >= uses
