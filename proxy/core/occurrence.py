"""Which recorded call an ask in a run is: the same one retried, one in flight, the next, or a new one.

The n-th identical call of an attempt is the n-th recorded one; a new attempt counts from one. Evidence of a
retry comes first, an identical call in flight second, counting last. semel takes two calls for one only on
evidence; where a mark may be missing it prefers the replay, because a send cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from proxy.core.frontier import Frontier, GoLive, is_superseded, is_used_up, recall
from proxy.core.intent import State
from proxy.core.policy import Mode, Repeat, Scope
from proxy.core.runs import End, Exchange, Occurrence, Standing

# Lazy marks ride on the next commit, or on one of their own within a second; half a second for the way.
MARK_LAG = 1.5

# The fifth replay of one call to one attempt within a minute looks like polling.
POLL_REPLAYS = 5
POLL_WINDOW = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, as far as the choice depends on it. All asks compared here are identical calls."""

    attempt: str  # empty: the agent gave none
    safe: bool
    proxy: str  # this process, to tell its own exchanges, which it knows exactly, from others'
    repeat: Repeat = Repeat.ORDINAL
    credentials: bytes = b""
    tokens: frozenset[str] = frozenset()
    wording: str = ""  # where its name leaves something out that changes, as dates in a prompt
    retry_count: int = 0  # x-stainless-retry-count
    occurrence: int | None = None  # Semel-Occurrence


class Why(StrEnum):
    TOKEN = "same Idempotency-Key or invocation id"  # noqa: S105 (not a password)
    RETRY_COUNT = "the client says that it retries"
    ABANDONED = "the caller of the latest exchange left before its end"
    IN_FLIGHT = "the same call is in flight"
    NEXT = "the first one that this attempt has not used up"
    SAME = "an identical call is the same call"
    NUMBERED = "the client numbered it"


EVIDENCE = frozenset({Why.TOKEN, Why.RETRY_COUNT, Why.ABANDONED})


@dataclass(frozen=True, slots=True)
class Existing:
    """It is occurrence `n`. `frontier.recall` says what it gets. With evidence: `runs.after_retry`."""

    n: int
    why: Why

    @property
    def is_retry(self) -> bool:
        return self.why in EVIDENCE


@dataclass(frozen=True, slots=True)
class Join:
    """It overlaps with `n` and is taken for it: one more use, durable first (`runs.after_join`)."""

    n: int


@dataclass(frozen=True, slots=True)
class New:
    """Not in the record: `divergence.judge` it if it has effects, then claim it under this number."""

    n: int


@dataclass(frozen=True, slots=True)
class AwaitMark:
    """Another process is handing on, or was and its mark is on the way: look again within `seconds`."""

    n: int
    seconds: float


Choice: TypeAlias = Existing | Join | New | AwaitMark


def repeat_in_run(mode: Mode, scope: Scope, repeat: Repeat) -> Repeat:
    """For `once`, scope tenant implies `same`. For `cache`, each ask in a run is an occurrence."""
    return Repeat.SAME if mode is Mode.ONCE and scope is Scope.TENANT else repeat


def choose_occurrence(
    record: Sequence[Occurrence], ask: Ask, frontier: Frontier, *, waited: float = 0.0
) -> Choice:
    """`record`: all occurrences of this identical call, dead owners' exchanges marked as abandoned
    (`runs.with_dead_owners`). `waited`: how long this ask has already followed an `AwaitMark`."""
    rows = sorted(record, key=lambda row: row.n)
    new = New(free_number(row.n for row in rows))
    if ask.occurrence is not None:
        return _numbered(rows, ask, ask.occurrence)
    rows = [row for row in rows if not row.numbered]
    if ask.safe and not ask.attempt:
        return new  # without an attempt, the past cannot be told from the present: reads go live
    rows = [row for row in rows if not _in_other_words(row, ask)]
    if ask.repeat is Repeat.SAME or not ask.attempt:
        return _same(rows, ask, frontier) or new
    choice = (
        _retry(rows, ask, frontier, waited)
        or _overlap(rows, ask, frontier)
        or _next(rows, ask, frontier)
        or new
    )
    return choice if ask.safe else _before_a_send(choice, rows, ask, frontier, waited)


# Up to so many rows it is not worth choosing among them first.
FEW = 16


def worth_choosing_from(rows: Sequence[Occurrence], ask: Ask) -> Sequence[Occurrence]:
    """The rows on which the choice can depend, of very many: an agent may poll for hours. `free_number` tells
    what `New` would be among all of them."""
    if len(rows) <= FEW or ask.occurrence is not None or ask.repeat is Repeat.SAME:
        return rows
    if not ask.attempt:
        return () if ask.safe else rows
    kept: list[Occurrence] = []
    last_spent = first_fresh = None
    for row in rows:
        if _in_other_words(row, ask):
            continue
        standing = row.standing(ask.attempt)
        if standing is Standing.SPENT and not _shares_a_token(row, ask):
            last_spent = row
        elif standing is Standing.FRESH:
            first_fresh = first_fresh or row
        else:
            kept.append(row)
    return [*kept, *(row for row in (last_spent, first_fresh) if row is not None)]


def _in_other_words(row: Occurrence, ask: Ask) -> bool:
    """This attempt has asked for it in other words, and only in those. After a crash a prompt says another
    "now" and is the same call all the same; within one attempt two days are two questions, and the answer to
    one that was given up is not the answer to the other. An effect is rather given again than sent again."""
    mine = row.by(ask.attempt) if ask.wording and ask.safe else ()
    return bool(mine) and all(x.wording != ask.wording for x in mine)


def _shares_a_token(row: Occurrence, ask: Ask) -> bool:
    return bool(ask.tokens) and any(x.tokens & ask.tokens for x in row.by(ask.attempt))


def _retry(rows: list[Occurrence], ask: Ask, frontier: Frontier, waited: float) -> Choice | None:
    """Retry on evidence: a token, then the client's word, then a caller that left."""
    claimable = [row for row in rows if not is_superseded(row, ask.attempt, frontier)]
    for row in reversed(rows):
        if ask.tokens and any(x.tokens & ask.tokens for x in row.by(ask.attempt)):
            if row in claimable:
                return Existing(row.n, Why.TOKEN)
            return None  # its retry is the next occurrence, whatever else could be guessed
    if ask.retry_count > 0:
        found = _retried(claimable, rows, ask, waited)
        if found is not None:
            return found
    for row in claimable:
        last = row.latest(ask.attempt)
        if last is not None and last.end is End.ABANDONED:
            return Existing(row.n, Why.ABANDONED)
    return None


def _retried(claimable: list[Occurrence], rows: list[Occurrence], ask: Ask, waited: float) -> Choice | None:
    """The oldest occurrence of this attempt whose latest exchange was abandoned or not final, else the last.

    An exchange under way on a settled row counts as abandoned: its client says that it gave up.
    """
    reached = [(row, last) for row in rows if (last := row.latest(ask.attempt)) is not None]
    for row, last in reached:
        if row not in claimable:
            continue
        giving_up = last.end is End.UNDER_WAY and row.state is not State.PENDING
        if giving_up and last.owner != ask.proxy and waited < MARK_LAG:
            return AwaitMark(row.n, MARK_LAG - waited)
        if giving_up or last.end in (End.ABANDONED, End.PROBLEM) or not last.final:
            return Existing(row.n, Why.RETRY_COUNT)
    if reached and reached[-1][0] in claimable:
        return Existing(reached[-1][0].n, Why.RETRY_COUNT)
    return None


def _overlap(rows: list[Occurrence], ask: Ask, frontier: Frontier) -> Choice | None:
    """An identical call of this attempt still pending: with effects and the same credentials it is joined."""
    if ask.safe:
        return None  # parallel samples
    for row in rows:
        mine = [x for x in row.by(ask.attempt) if x.fence == row.fence]
        if row.state is State.PENDING and any(x.credentials == ask.credentials for x in mine):
            return _wait_or_join(row, ask, frontier, Why.IN_FLIGHT)
    return None


def _next(rows: list[Occurrence], ask: Ask, frontier: Frontier) -> Choice | None:
    """The first occurrence that this attempt has not used up."""
    for row in rows:
        if not is_used_up(row, ask.attempt, frontier):
            return Existing(row.n, Why.NEXT)
    return None


def _before_a_send(
    choice: Choice, rows: list[Occurrence], ask: Ask, frontier: Frontier, waited: float
) -> Choice:
    """A send with effects cannot be taken back, so it comes after whatever the record can still answer.

    First what is owed below it: its mark was lost. Then what is being handed on: its caller may be gone
    without our knowing yet, and overlapping identical calls with effects are taken for one. A token is exact
    and needs no such care.
    """
    live = [row.n for row in rows if recall(row, ask.attempt, frontier) == GoLive()]
    match choice:
        case Existing(n, why) if n not in live or why is Why.TOKEN:
            return choice
        case Join() | AwaitMark():
            return choice
        case Existing(n) | New(n):
            others = [row for row in rows if row.n < n or isinstance(choice, New)]
    for row in others:
        if row.n not in live and not is_used_up(row, ask.attempt, frontier):
            return Existing(row.n, Why.NEXT)
    for row in reversed(others):
        x = _handing_on(row, ask)
        if x is not None and x.owner != ask.proxy and waited < MARK_LAG:
            return AwaitMark(row.n, MARK_LAG - waited)
        if x is not None:
            return Join(row.n)
    return choice


def _handing_on(row: Occurrence, ask: Ask) -> Exchange | None:
    for x in row.by(ask.attempt):
        if x.end is End.UNDER_WAY and x.fence == row.fence and x.credentials == ask.credentials:
            return x
    return None


def _same(rows: list[Occurrence], ask: Ask, frontier: Frontier) -> Choice | None:
    """`repeat: same`: whatever there is, save a released answer that may not be claimed again."""
    for row in rows:
        if not is_superseded(row, ask.attempt, frontier):
            return _wait_or_join(row, ask, frontier, Why.SAME)
    return None


def _numbered(rows: list[Occurrence], ask: Ask, n: int) -> Choice:
    """The client's number is the occurrence: twice the same number is the same call."""
    for row in rows:
        if row.n == n:
            return _wait_or_join(row, ask, Frontier(), Why.NUMBERED)
    return New(n)


def _wait_or_join(row: Occurrence, ask: Ask, frontier: Frontier, why: Why) -> Choice:
    """A first ask of this attempt, or one still owed, waits on its own use; any further one joins."""
    if row.state is State.PENDING and is_used_up(row, ask.attempt, frontier):
        return Join(row.n)
    return Existing(row.n, why)


def free_number(numbers: Iterable[int]) -> int:
    """The lowest number not taken: a client's own `Semel-Occurrence: 2` leaves 1 to the plain call."""
    taken = set(numbers)
    return next(n for n in range(1, len(taken) + 2) if n not in taken)


def after_replay(times: tuple[float, ...], now: float) -> tuple[tuple[float, ...], bool]:
    """Counts the replays of one call to one attempt: (what to keep, whether this one looks like polling).

    Having said so, it counts anew: one line per five replays, not one per replay from then on.
    """
    recent = (*(at for at in times if now - POLL_WINDOW < at <= now), now)
    return ((), True) if len(recent) >= POLL_REPLAYS else (recent, False)
