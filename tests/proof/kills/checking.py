"""Three accounts of one round compared: the upstream's books, the record, and what each agent saw.

Each check is a function that gives the steps it finds wrong, and why. None of them asks semel: the lists of
what is in doubt and the answers given at the end were fetched before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from proxy.core.intent import Event, State
from tests.proof.kills.agent import digest_of, meaning_of
from tests.proof.kills.agents import LAST, Seen
from tests.proof.kills.books import Line, answer_to, said_to
from tests.proof.kills.clerk import Listing
from tests.proof.kills.record import Row
from tests.proof.kills.script import EFFECTS, SAFE

# What may be said about a call whose answer was seen before: only that the record is out of reach.
STILL_SAID = {"store-unavailable"}
FAILURES = {"upstream-unreachable", "upstream-timeout"}
# What semel notes when something in itself is broken.
TRACEBACK = 40  # lines
DEFECTS = ("defect", "sweep-failed", "unreadable-row", "answer-lost")


# How long a change may be under way to the record where nothing is wrong: its time is taken before.
LANDS = 1.0
# What an attempt was given again is marked every second: after that a semel's death takes no mark with it.
MARKED = 2.5
NEVER = Listing(float("-inf"), float("-inf"), frozenset())


class Wrong(NamedTuple):
    check: str
    step: str
    why: str


class Span(NamedTuple):
    """`port`: of the semel that it was about; 0: of the store, and so about all."""

    begin: float
    end: float
    port: int = 0


class Death(NamedTuple):
    """A semel was killed, or a worker of it."""

    at: float
    port: int


@dataclass
class Accounts:
    """Of one round, when all is quiet. `listed`: ids, as semel lists what is in doubt. `deaths`: of
    semels. `log`: of all semels, line by line. `shown`: what the clerk was listed meanwhile. `troubled`:
    when something was wrong with a semel, the store or the way between them."""

    acts: dict[str, list[Line]]
    rows: list[Row]
    seen: list[Seen]
    listed: set[str]
    deaths: list[Death]
    log: list[str]
    shown: list[Listing] = field(default_factory=list)
    troubled: list[Span] = field(default_factory=list)
    by_step: dict[str, list[Row]] = field(init=False)
    seen_of: dict[str, list[Seen]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_step, self.seen_of = defaultdict(list), defaultdict(list)
        for row in self.rows:
            self.by_step[row.step].append(row)
        for seen in self.seen:
            self.seen_of[seen.step].append(seen)


Found = Iterator[tuple[str, str]]


def second_effects(told: Accounts) -> Found:
    """Of b (once per key, and a call has one), c and d: at most one each."""
    for step, acts in told.acts.items():
        if acts[0].kind in EFFECTS and len(acts) > 1:
            yield step, f"kind {acts[0].kind} took effect {len(acts)} times"


def answers_that_changed(told: Accounts) -> Found:
    """Whoever saw it to its end saw the same, byte for byte; and that is on record."""
    for step, seen in told.seen_of.items():
        digests = {one.digest for one in seen if one.is_answer}
        kept = {row.answered for row in told.by_step[step] if row.state is State.DONE}
        if len(digests) > 1:
            yield step, f"{len(digests)} different answers were seen"
        elif digests and digests != kept:
            yield step, f"an answer was seen that is not on record: {digests} but {kept}"


def answers_nobody_gave(told: Accounts) -> Found:
    """Every answer is one that the upstream gave for that very step, byte for byte. Only of a call that was
    in doubt when its answer came, a probe or a person may have told it: then it means the same as JSON."""
    for step, seen in told.seen_of.items():
        acts = told.acts.get(step, [])
        given = {digest_of(*said_to(act)) for act in acts}
        meant = {meaning_of(answer_to(act)) for act in acts}
        retold = {row.id for row in told.by_step[step] if _answered_in_doubt(row)}
        for one in seen:
            is_meant = one.call in retold and one.meaning in meant
            if one.has_body and one.digest not in given and not is_meant:
                yield step, f"an answer was seen that the upstream never gave: {one.semel} {one.digest}"


def _answered_in_doubt(row: Row) -> bool:
    return any((entry.event, entry.before) == (Event.ANSWERED, State.IN_DOUBT) for entry in row.history)


def answers_lost(told: Accounts) -> Found:
    """What was seen once is given whenever it is asked for later, and in the end. Where the first attempt saw
    it fail before, and made a call with effects after that, later ones see it fail first. And a safe call
    outside runs is passed on without a record while the store is away: it may fail by itself."""
    for step, seen in told.seen_of.items():
        first = min((one.at for one in seen if one.is_answer), default=float("inf"))
        failed = any(row.state is State.RELEASED for row in told.by_step[step])
        allowed = STILL_SAID | (FAILURES if failed else set())
        for one in seen:
            passed = one.problem in FAILURES and not one.call and _is_safe_and_outside(told, one)
            if one.asked_at > first and one.problem and one.problem not in allowed and not passed:
                yield step, f"answered before, and then {one.problem}"
        in_the_end = [one for one in seen if one.log.endswith(f"-{LAST}")]
        if first < float("inf") and not any(one.is_answer for one in in_the_end):
            yield step, "answered before, and not in the end"


def _is_safe_and_outside(told: Accounts, one: Seen) -> bool:
    safe = all(row.rule.startswith(SAFE) for row in told.by_step[one.step])
    return safe and not one.where.startswith("/@")


def effects_without_account(told: Accounts) -> Found:
    """Whatever happened is on record as done, or listed in doubt."""
    for step, acts in told.acts.items():
        rows = told.by_step[step]
        if acts[0].kind not in EFFECTS:
            continue
        if not rows:
            yield step, "it happened, and nothing is on record"
        elif all(row.state not in (State.DONE, State.IN_DOUBT) for row in rows):
            yield step, f"it happened, and is {', '.join(row.state for row in rows)}"


def answers_out_of_nothing(told: Accounts) -> Found:
    for row in told.rows:
        if row.state is State.DONE and not told.acts.get(row.step):
            yield row.step, "done, and the upstream knows nothing of it"
        if row.state is State.DONE and not row.answered:
            yield row.step, "done, and its answer cannot be given"


def left_pending(told: Accounts) -> Found:
    for row in told.rows:
        if row.state not in (State.DONE, State.IN_DOUBT, State.RELEASED):
            yield row.step, f"still {row.state} when all is quiet"


def not_listed(told: Accounts) -> Found:
    """What is in doubt is listed, and nothing else is."""
    steps = {row.id: row.step for row in told.rows}
    doubtful = {row.id for row in told.rows if row.state is State.IN_DOUBT}
    for call_id in doubtful ^ told.listed:
        why = "in doubt and not listed" if call_id in doubtful else "listed, and not in doubt"
        yield steps.get(call_id, call_id), why


def hidden_doubts(told: Accounts) -> Found:
    """What is in doubt is listed whenever somebody asks, not only in the end. A call that left its doubt
    after a list had come must be in it, if its doubt was on record before that list was asked for."""
    for row in told.rows:
        for doubt in _doubts_of(row):
            for before, now in pairwise((NEVER, *told.shown)):
                if (
                    now.end < doubt.end
                    and row.id not in now.ids
                    and _on_record(told, row, doubt, before, now)
                ):
                    why = f"hidden {now.begin - doubt.begin:.2f} s after it came in doubt"
                    yield row.step, why
                    break


def _doubts_of(row: Row) -> Iterator[Span]:
    """A change is written after the time that it bears: a doubt begins later than that, and ends later."""
    begin: float | None = None
    for entry in row.history:
        if entry.after is State.IN_DOUBT and begin is None:
            begin = entry.at
        elif entry.after is not State.IN_DOUBT and begin is not None:
            yield Span(begin, entry.at)
            begin = None
    if begin is not None:
        yield Span(begin, float("inf"))


def _on_record(told: Accounts, row: Row, doubt: Span, before: Listing, now: Listing) -> bool:
    """Somebody was told of this very doubt before: semel says nothing that is not on record. Or it bears a
    time before the list before, and nothing stood still since then that could have been writing it."""
    first = doubt == next(_doubts_of(row))
    knew = any(
        one.problem == "in-doubt" and one.call == row.id
        and doubt.begin < one.at < now.begin and (first or doubt.begin < one.asked_at)
        for one in told.seen_of[row.step]
    )  # fmt: skip
    listed = row.id in before.ids and doubt.begin < before.begin
    long_ago = doubt.begin < min(before.begin, now.begin - LANDS)
    quiet = Span(min(before.begin, now.begin - LANDS), now.end)
    troubled = any(one.begin < quiet.end and quiet.begin < one.end for one in told.troubled)
    return knew or listed or (long_ago and not troubled)


def answers_of_strangers(told: Accounts) -> Found:
    """Whatever an agent was told was said by semel, and is one of the things that it says."""
    for seen in told.seen:
        if not seen.is_answer and not seen.problem and seen.semel != "passed":
            yield seen.step, f"an agent was told {seen.status} {seen.semel!r}"


def doubt_without_account(told: Accounts) -> Found:
    """Whoever was told of doubt finds it in the history of that call; safe calls are never in doubt."""
    lost = {row.id for row in told.rows if any(entry.event == Event.LOST for entry in row.history)}
    for row in told.rows:
        if row.id in lost and row.rule.startswith(SAFE):
            yield row.step, "a safe call was in doubt"
    for seen in told.seen:
        if seen.problem == "in-doubt" and seen.call not in lost:
            yield seen.step, "an agent was told of doubt that is not in the history"


def diverged_without_cause(told: Accounts) -> Found:
    """All starts of an agent do the same. What a semel gave again shortly before it was killed is not marked
    as asked: only then a later call of the same attempt may be held as diverged."""
    for seen in told.seen:
        if seen.problem == "diverged" and not any(
            one.log == seen.log
            and one.is_answer
            and one.semel != "executed"
            and _mark_was_lost(told, one, seen)
            for one in told.seen
        ):
            yield seen.step, "held as diverged, though nothing was lost"


def _mark_was_lost(told: Accounts, given: Seen, held: Seen) -> bool:
    """The semel that gave it was killed before it had a second to mark it, between the two. While it stood
    still, or the store was not there, it could not."""
    return any(
        death.port == given.port
        and given.asked_at < death.at < held.at
        and death.at < given.at + MARKED + _hindered(told, given, death)
        for death in told.deaths
    )


def _hindered(told: Accounts, given: Seen, death: Death) -> float:
    """For how long, between the answer and the death."""
    spans = [one for one in told.troubled if one.port in (0, death.port)]
    return sum(max(0.0, min(one.end, death.at) - max(one.begin, given.asked_at)) for one in spans)


def one_call_per_step(told: Accounts) -> Found:
    """Every step was asked for under one name, whatever died in between. Only what came to nothing, before a
    call with effects that was made after it, is left as it is: its retry is the next occurrence."""
    for step, rows in told.by_step.items():
        if sum(row.state is not State.RELEASED for row in rows) > 1:
            yield step, f"{len(rows)} calls, occurrences {[row.occurrence for row in rows]}"
    asked = {seen.call: seen.step for seen in told.seen if seen.call}
    known = {row.id: row.step for row in told.rows}
    for call_id, step in asked.items():
        if known.get(call_id) != step:
            yield step, f"an agent was given call {call_id}, which is {known.get(call_id, 'not on record')}"


def broken_histories(told: Accounts) -> Found:
    """Each change begins where the one before ended, and the last one ended in what the call is now."""
    for row in told.rows:
        state: State | None = None
        for entry in row.history:
            if entry.before != state:
                yield row.step, f"{entry.event} from {entry.before}, but it was {state}"
            state = entry.after
        if state is not row.state:
            yield row.step, f"its history ends in {state}, and it is {row.state}"


def defects(told: Accounts) -> Found:
    """No semel has said of itself that it does not work."""
    for n, line in enumerate(told.log):
        if any(f'"event":"{event}"' in line for event in DEFECTS) or line.startswith("Traceback"):
            yield "a semel's log", "\n".join(told.log[n : n + TRACEBACK])


CHECKS: tuple[Callable[[Accounts], Found], ...] = (
    second_effects,
    answers_that_changed,
    answers_nobody_gave,
    answers_lost,
    effects_without_account,
    answers_out_of_nothing,
    left_pending,
    not_listed,
    hidden_doubts,
    answers_of_strangers,
    doubt_without_account,
    diverged_without_cause,
    one_call_per_step,
    broken_histories,
    defects,
)


def all_wrongs(told: Accounts) -> list[Wrong]:
    return [Wrong(check.__name__, step, why) for check in CHECKS for step, why in check(told)]
