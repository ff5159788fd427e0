"""Each check finds what it is there for: accounts made by hand, right but for one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from proxy.core.intent import Entry, Event, State
from tests.proof.kills.agent import digest_of, meaning_of
from tests.proof.kills.agents import LAST, Seen
from tests.proof.kills.books import Line, answer_to, said_to
from tests.proof.kills.checking import CHECKS, Accounts, Death, Span, all_wrongs
from tests.proof.kills.clerk import Listing
from tests.proof.kills.record import Row
from tests.proof.kills.story import Fault, story_of

STEP, ID = "r0-0.1", "c" * 32
OTHER, OTHER_ID = "r0-0.2", "b" * 32
LOG = "a semel's log"


def entry(event: str, before: State | None, after: State | None, at: float = 10.0) -> Entry:
    return Entry(at=at, actor="proxy:p", event=event, before=before, after=after, why="", fence=1)


CLAIM = entry(Event.CLAIM, None, State.PENDING)
DONE = [CLAIM, entry(Event.ANSWERED, State.PENDING, State.DONE)]
LOST = [CLAIM, entry(Event.LOST, State.PENDING, State.IN_DOUBT)]
ACT = Line(1, 10.0, "act", "d", STEP, 0)
OTHER_ACT = ACT._replace(serial=2, step=OTHER)
DIGEST, MEANING = digest_of(*said_to(ACT)), meaning_of(answer_to(ACT))
ROW = Row(ID, STEP, "d", State.DONE, 1, DIGEST, DONE)
DOUBT = ROW._replace(state=State.IN_DOUBT, answered="", history=LOST)
SEEN = Seen(STEP, 9.0, 11.0, 200, "", "/@r0-0+1", "executed", ID, DIGEST, MEANING, "r0-0+0-1")
AGAIN = SEEN._replace(asked_at=20.0, at=21.0, semel="replayed", log=f"r0-0+0-{LAST}")
HELD = SEEN._replace(status=409, problem="in-doubt", semel="refused", digest="", meaning="")
RIGHT = Accounts({STEP: [ACT]}, [ROW], [SEEN, AGAIN], set(), [], [])
DOUBTFUL = Accounts({STEP: [ACT]}, [DOUBT], [HELD], {ID}, [], [])

# The doubt bears the time 10, its agent was told at 11.
LISTS = [Listing(11.1, 11.2, frozenset()), Listing(12.0, 12.2, frozenset())]
ALWAYS = [Span(0.0, 100.0)]
# Given again between 20 and 21, and later in the same attempt held as diverged.
DIVERGED = HELD._replace(problem="diverged", asked_at=29.0, at=30.0, log=AGAIN.log, step=OTHER, call="")
GIVEN = [SEEN, AGAIN._replace(port=80), DIVERGED]


def answered(row: Row, body: bytes, serial: str, *seen: Seen) -> Accounts:
    """That, on record and to everybody alike."""
    digest, meaning = digest_of(200, ("application/json", serial), body), meaning_of(body)
    return replace(
        RIGHT,
        rows=[row._replace(answered=digest)],
        seen=[one._replace(digest=digest, meaning=meaning) for one in seen or (SEEN, AGAIN)],
    )


def swapped() -> Accounts:
    """Two calls, each with the other's answer, on record and to everybody alike."""
    pair = ((STEP, ID, OTHER_ACT), (OTHER, OTHER_ID, ACT))
    told = [
        (step, answered(ROW._replace(id=i, step=step), answer_to(act), str(act.serial)))
        for step, i, act in pair
    ]
    return replace(
        RIGHT,
        acts={STEP: [ACT], OTHER: [OTHER_ACT]},
        rows=[row for _, one in told for row in one.rows],
        seen=[seen._replace(step=step, call=one.rows[0].id) for step, one in told for seen in one.seen],
    )


RETOLD = ROW._replace(history=[*LOST, entry(Event.ANSWERED, State.IN_DOUBT, State.DONE)])
PRETTY = answer_to(ACT).replace(b": ", b":")
WRONG = {
    "second_effects": [replace(RIGHT, acts={STEP: [ACT, ACT]})],
    "answers_that_changed": [
        replace(RIGHT, seen=[SEEN, AGAIN._replace(digest="e" * 32)]),
        replace(RIGHT, rows=[ROW._replace(answered="e" * 32)]),
    ],
    "answers_nobody_gave": [
        answered(ROW, answer_to(ACT).replace(b"pad", b"dap"), "1"),
        answered(ROW, answer_to(ACT), "2"),
        answered(ROW, PRETTY, ""),
        answered(RETOLD, answer_to(OTHER_ACT), ""),
        answered(ROW, PRETTY, "1", SEEN, AGAIN, SEEN._replace(semel="passed", call="")),
        swapped(),
    ],
    "answers_lost": [
        replace(RIGHT, seen=[SEEN, AGAIN, HELD._replace(asked_at=12.0, at=13.0)]),
        replace(RIGHT, seen=[SEEN]),
    ],
    "effects_without_account": [
        replace(RIGHT, rows=[]),
        replace(RIGHT, rows=[ROW._replace(state=State.RELEASED)]),
    ],
    "answers_out_of_nothing": [replace(RIGHT, acts={}), replace(RIGHT, rows=[ROW._replace(answered="")])],
    "left_pending": [replace(DOUBTFUL, rows=[DOUBT._replace(state=State.PENDING)])],
    "not_listed": [replace(DOUBTFUL, listed=set()), replace(RIGHT, listed={ID})],
    "hidden_doubts": [
        replace(DOUBTFUL, shown=LISTS, seen=[]),  # nobody was told, and it was long ago
        replace(DOUBTFUL, shown=LISTS[1:]),  # an agent was told just before
        replace(DOUBTFUL, shown=[LISTS[0]._replace(ids=frozenset({ID})), LISTS[1]], troubled=ALWAYS, seen=[]),
    ],
    "answers_of_strangers": [replace(RIGHT, seen=[SEEN, AGAIN, SEEN._replace(semel="")])],
    "doubt_without_account": [
        replace(DOUBTFUL, rows=[DOUBT._replace(history=[CLAIM])]),
        replace(DOUBTFUL, rows=[DOUBT._replace(rule="a")]),
    ],
    "diverged_without_cause": [
        replace(RIGHT, seen=GIVEN, deaths=deaths, troubled=troubled)
        for deaths, troubled in (
            ([], []),
            ([Death(23.6, 80)], []),  # the mark had its time
            ([Death(21.5, 81)], []),  # another semel
            ([Death(19.9, 80)], []),  # before it was given
            ([Death(31.0, 80)], ALWAYS),  # after it was held
            (
                [Death(25.0, 80)],
                [Span(21.0, 22.0, 80), Span(21.0, 25.0, 81)],
            ),  # it stood still, but not so long
        )
    ]
    + [
        replace(RIGHT, seen=[SEEN._replace(log=AGAIN.log, port=80), DIVERGED], deaths=[Death(12.0, 80)])
    ],  # nothing was given again
    "one_call_per_step": [
        replace(RIGHT, rows=[ROW, ROW._replace(id="f" * 32, occurrence=2)]),
        replace(RIGHT, seen=[SEEN, AGAIN._replace(call="f" * 32)]),
    ],
    "broken_histories": [
        replace(RIGHT, rows=[ROW._replace(history=DONE[1:])]),
        replace(RIGHT, rows=[ROW._replace(history=DONE[:1])]),
    ],
    "defects": [replace(RIGHT, log=['{"at":"…","event":"defect","error":"…"}'])],
}


def test_what_is_right_is_not_wrong() -> None:
    """A call that was made and seen twice; one in doubt that is listed."""
    assert all_wrongs(RIGHT) == all_wrongs(DOUBTFUL) == []
    assert {check.__name__ for check in CHECKS} == WRONG.keys()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_each_check_finds_its_own(check: Callable[..., object]) -> None:
    """And says of which step."""
    for told in WRONG[check.__name__]:
        assert check.__name__ in {
            wrong.check for wrong in all_wrongs(told) if wrong.step in (STEP, OTHER, LOG)
        }


@pytest.mark.parametrize("told", WRONG["answers_nobody_gave"])
def test_semel_may_agree_with_itself_and_be_wrong(told: Accounts) -> None:
    """No check that compares agents with the record sees it."""
    assert {wrong.check for wrong in all_wrongs(told)} == {"answers_nobody_gave"}


def test_what_a_probe_or_a_person_told_is_compared_by_what_it_means() -> None:
    """They write it in their own way; and what came before is still an answer of the upstream."""
    assert all_wrongs(answered(RETOLD, PRETTY, "")) == []
    assert all_wrongs(answered(RETOLD, answer_to(ACT), "1")) == []


@pytest.mark.parametrize(
    ("death", "troubled"),
    [
        (Death(20.5, 80), []),  # while it was given
        (Death(23.4, 80), []),
        (Death(25.0, 80), [Span(22.0, 24.0, 80)]),  # stopped before it was killed
        (Death(25.0, 80), [Span(22.0, 24.0)]),  # the store was away
    ],
)
def test_a_death_that_took_a_mark_with_it(death: Death, troubled: list[Span]) -> None:
    """Then a later call of the attempt may be held as diverged."""
    told = replace(RIGHT, seen=GIVEN, deaths=[death], troubled=troubled)
    assert all_wrongs(told) == []


BACK = entry(Event.RESEND, State.IN_DOUBT, State.PENDING, 11.2)
AGAIN_LOST = entry(Event.LOST, State.PENDING, State.IN_DOUBT, 11.4)
LEFT = entry(Event.NOT_EXECUTED, State.IN_DOUBT, State.RELEASED, 12.1)
TWICE = DOUBT._replace(history=[*LOST, BACK, AGAIN_LOST])


NEED_NOT_BE_LISTED = {
    "on its way to the record": replace(DOUBTFUL, shown=[LISTS[0]], seen=[]),
    "its writer stood still": replace(DOUBTFUL, shown=LISTS, seen=[], troubled=[Span(11.5, 11.6)]),
    "it left meanwhile": replace(DOUBTFUL, shown=LISTS[1:], rows=[DOUBT._replace(history=[*LOST, LEFT])]),
    "told of the doubt before": replace(DOUBTFUL, shown=LISTS, rows=[TWICE], seen=[HELD._replace(at=11.5)]),
    "told afterwards": replace(DOUBTFUL, shown=LISTS, seen=[HELD._replace(at=12.5)], troubled=ALWAYS),
}


@pytest.mark.parametrize("told", NEED_NOT_BE_LISTED.values(), ids=NEED_NOT_BE_LISTED)
def test_doubt_that_a_list_need_not_have(told: Accounts) -> None:
    """Only what was on record when it was asked for, and still when it came, is missed."""
    assert "hidden_doubts" not in {wrong.check for wrong in all_wrongs(told)}


def test_a_failure_that_was_seen_before_its_answer_may_be_seen_again() -> None:
    """In a run, where a call with effects came after it; but only where the record has it."""
    failed = AGAIN._replace(status=502, problem="upstream-unreachable", semel="refused", digest="", at=20.5)
    released = ROW._replace(id="f" * 32, state=State.RELEASED, answered="", occurrence=1, history=[])
    told = replace(RIGHT, seen=[SEEN, failed, AGAIN])
    assert "answers_lost" in {wrong.check for wrong in all_wrongs(told)}
    both = replace(told, rows=[released, ROW])
    assert "answers_lost" not in {wrong.check for wrong in all_wrongs(both)}


def test_a_safe_call_that_passes_without_a_record_may_fail() -> None:
    """Outside runs, and without an id: one that has an id was asked of the record."""
    row = ROW._replace(rule="a-same")
    outside = [one._replace(where="/") for one in (SEEN, AGAIN)]
    failed = outside[1]._replace(
        status=502, problem="upstream-unreachable", semel="refused", digest="", at=20.5, call=""
    )

    def found(one: Seen, row: Row) -> bool:
        told = replace(RIGHT, rows=[row], seen=[*outside, one])
        return "answers_lost" in {wrong.check for wrong in all_wrongs(told)}

    assert not found(failed, row)
    assert found(failed._replace(call=ID), row)
    assert found(failed._replace(where="/@r+1"), row)
    assert found(failed, ROW)
    assert found(failed._replace(problem="in-doubt"), row)


def test_a_story_has_all_sides_in_the_order_of_time() -> None:
    """What the upstream did, the record says, agents saw; and the harm that fell near it."""
    faults = [Fault(10.5, "semel SIGKILL"), Fault(500.0, "far away")]
    lines = story_of(STEP, RIGHT, [ACT], faults).splitlines()
    sides = [line.split()[1] for line in lines[1:-1]]
    assert sorted(set(sides)) == ["agent", "harm", "record", "upstream"]
    times = [float(line.split()[0]) for line in lines[1:-1]]
    assert times == sorted(times)
    assert "far away" not in "".join(lines)
    assert lines[-1].startswith("  now       done")
