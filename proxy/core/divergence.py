"""Whether an attempt has left its run's record, judged at the one moment that matters: before a new effect.

Sets are compared, never order. A call with effects that is not in the record, while one of the same rule
that was or may have been executed is still unasked, may be the same intention in other words. semel waits a
little for the record to be asked, then holds the call. Nothing is claimed; the next ask is judged afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from proxy.core.intent import State

# Parallel calls of one step arrive within this time; longer than lazy marks need (occurrence.MARK_LAG).
GRACE = 2.0

# Was executed, may have been, or may yet be with a person's consent.
MATTERS = frozenset({State.DONE, State.PENDING, State.IN_DOUBT, State.AWAITING_APPROVAL})


class OnDivergence(StrEnum):
    HOLD = "hold"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a run, as divergence, the frontier and forks see it. `state` None: forgotten."""

    id: str
    seq: int
    safe: bool
    state: State | None
    group: tuple[str, ...]  # see `group_of`
    attempt: str  # the attempt that claimed it last
    asked_by: frozenset[str] = frozenset()  # attempts that asked it, the claiming one included
    retired: bool = False  # by `runs allow`
    inherited: bool = False  # a fork's view of its parent's row, from before its starting point
    beyond: bool = False  # the same, from after that point
    answered: bool = False


def group_of(*, upstream: str, rule: str | None, method: str, host: str, path: str) -> tuple[str, ...]:
    """Same rule means, without a rule, same method, host and path."""
    return ("rule", upstream, rule) if rule is not None else ("call", method, host, path)


@dataclass(frozen=True, slots=True)
class Proceed:
    """`noted`: with `on_divergence: allow`, what was unasked; to be told as a run event."""

    noted: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Judge again when a row of the run is asked, at the latest after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Answer `diverged`, note the event, claim nothing."""

    unasked: tuple[Row, ...]


Verdict: TypeAlias = Proceed | WaitUntil | Hold


def unasked(rows: Iterable[Row], attempt: str, attempts: Sequence[str]) -> tuple[Row, ...]:
    """The calls with effects of earlier attempts that matter and that this attempt has not asked.

    `attempts`: the run's attempts in order of their first use. One that is not listed is only now beginning.
    """
    earlier = set(attempts[: attempts.index(attempt)] if attempt in attempts else attempts)
    return tuple(
        row
        for row in sorted(rows, key=lambda row: row.seq)
        if not row.safe
        and row.state in MATTERS
        and not row.retired
        and not row.beyond
        and (row.inherited or row.attempt in earlier)
        and attempt not in row.asked_by
    )


def judge(
    *,
    group: tuple[str, ...],
    attempt: str,
    attempts: Sequence[str],
    rows: Iterable[Row],
    waited: float,
    on_divergence: OnDivergence = OnDivergence.HOLD,
) -> Verdict:
    """For a call with effects that `choose_occurrence` found to be New; others never diverge."""
    if not attempt:
        return Proceed()  # without an attempt divergence is not seen
    missing = tuple(row for row in unasked(rows, attempt, attempts) if row.group == group)
    if not missing:
        return Proceed()
    if waited < GRACE:
        return WaitUntil(GRACE - waited)
    return Hold(missing) if on_divergence is OnDivergence.HOLD else Proceed(missing)


def allow(rows: Iterable[Row], attempts: Sequence[str]) -> tuple[Row, ...]:
    """`runs allow`: retires the calls now unasked by the latest attempt, and opens nothing else.

    A retired call stays in the record: it is still replayed when asked, it only causes no divergence.
    """
    rows = tuple(rows)
    now_unasked = unasked(rows, attempts[-1], attempts) if attempts else ()
    ids = {row.id for row in now_unasked}
    return tuple(replace(row, retired=True) if row.id in ids else row for row in rows)


def fork(parent: Iterable[Row], *, at: int, resend: bool = False) -> tuple[Row, ...]:
    """The parent's rows that a fork refers to: all answers up to `at`, and its calls with effects always,
    unless `resend` opts out of those after `at`. Rows after `at` never cause divergence.

    Who asked them in the parent says nothing about the fork, whose attempts may even have the same names.
    An inherited row's `Occurrence` is `pinned`: up to `at` the fork meets the past, final or not.
    """
    seen = []
    for row in sorted(parent, key=lambda row: row.seq):
        has_effects = not row.safe and row.state is not None
        fresh = replace(row, asked_by=frozenset(), inherited=False, beyond=False, retired=False)
        if row.seq <= at and (row.answered or has_effects):
            seen.append(replace(fresh, inherited=True, retired=row.retired))
        elif row.seq > at and has_effects and not resend:
            seen.append(replace(fresh, beyond=True))
    return tuple(seen)


def is_expired(*, last_activity: float, retention: float, now: float) -> bool:
    """Runs expire whole; the name stays known and is refused."""
    return now >= last_activity + retention


def may_delete(row: Row, *, run_expired: bool, referred_to: frozenset[str]) -> bool:
    """Nothing of a living run, nothing a living fork refers to, and never what is open: `pending` and
    `in_doubt` do not expire. A call shared with the tenant is kept the same way while a run was given it."""
    open_call = row.state in (State.PENDING, State.IN_DOUBT)
    return run_expired and not open_call and row.id not in referred_to
