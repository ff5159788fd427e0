"""A run's rows, one rule at a time: what a claim resets, what a retry adds, how a row stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.core.frontier import Frontier
from proxy.core.intent import Answer, Call, Doubt, Place, State
from proxy.core.occurrence import (
    FEW,
    MARK_LAG,
    Ask,
    AwaitMark,
    Existing,
    New,
    Why,
    choose_occurrence,
    worth_choosing_from,
)
from proxy.core.policy import Repeat
from proxy.core.run_record import Receipt
from proxy.core.runs import (
    End,
    Exchange,
    Occurrence,
    Standing,
    after_claim,
    after_delivery_started,
    after_retry,
    with_dead_owners,
)
from tests.stores import calls

NOWHERE = Frontier()
RECEIPT = Receipt(attempt="a1", problem="in-doubt", position=1)


def ask(attempt: str = "a1", **more: Any) -> Ask:
    return replace(Ask(attempt=attempt, safe=False, proxy="p1"), **more)


def x(end: End = End.COMPLETE, *, attempt: str = "a1", **more: Any) -> Exchange:
    return Exchange(number=1, attempt=attempt, fence=1, owner="p1", end=end)._replace(**more)


def row(n: int, *exchanges: Exchange, **more: Any) -> Occurrence:
    numbered = tuple(each._replace(number=i) for i, each in enumerate(exchanges, 1))
    made = Occurrence(n=n, seq=n, safe=False, state=State.DONE, fence=1, claimed_by="a1", exchanges=numbered)
    return replace(made, **more)


def test_a_claim_begins_anew() -> None:
    """Nothing of the answer before is left but the exchanges."""
    was = row(
        1, x(), state=State.RELEASED, uses=3, answered=True, receipts=(RECEIPT,), resolved=True, tries=2
    )
    now = after_claim(was, x(attempt="a2"))
    assert (now.state, now.fence, now.claimed_by, now.uses, now.tries) == (State.PENDING, 2, "a2", 1, 1)
    assert (now.answered, now.receipts, now.resolved) == (False, (), False)
    assert [(each.number, each.fence) for each in now.exchanges] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("was", "tries"),
    [
        ({}, 3),
        ({"claimed_by": "a2"}, 1),
        ({"state": None}, 1),
        ({"fence": 0}, 1),
    ],
)
def test_tries_are_claims_in_a_row_by_one_attempt(was: dict[str, Any], tries: int) -> None:
    """Of a row that stands, and was claimed before."""
    assert after_claim(row(1, **({"state": State.RELEASED, "tries": 2} | was)), x()).tries == tries


def test_exchanges_are_numbered_from_one() -> None:
    """By the highest there is, not by how many."""
    started = after_delivery_started(row(1), x(number=9))
    assert [each.number for each in started.exchanges] == [1]
    gap = replace(row(1), exchanges=(x(number=4), x(number=2)))
    assert after_delivery_started(gap, x()).exchanges[-1].number == 5


@pytest.mark.parametrize(
    ("last", "was", "more"),
    [
        (x(End.COMPLETE), {}, 1),
        (x(End.COMPLETE, final=False), {}, 0),
        (x(End.COMPLETE), {"state": State.RELEASED}, 0),
        (x(End.COMPLETE, fence=0), {}, 0),
        (x(End.UNDER_WAY), {}, 1),
        (x(End.UNDER_WAY), {"state": State.PENDING}, 1),
        (x(End.UNDER_WAY), {"state": State.IN_DOUBT}, 0),
        (x(End.UNDER_WAY, fence=0), {}, 0),
        (x(End.ABANDONED), {}, 0),
        (x(End.PROBLEM), {}, 0),
        (x(End.COMPLETE, attempt="a2"), {}, 0),
    ],
)
def test_a_retry_is_one_more_use_of_what_was_delivered(
    last: Exchange, was: dict[str, Any], more: int
) -> None:
    """Of the present answer, to this attempt, or perhaps; anything else is still owed."""
    assert after_retry(row(1, last, uses=2, **was), x()).uses == 2 + more
    assert after_retry(row(1, uses=2, **was), x()).uses == 2


def test_only_what_was_under_way_is_abandoned_by_a_death() -> None:
    """And only what the dead one served."""
    was = row(1, x(End.UNDER_WAY), x(End.COMPLETE), x(End.UNDER_WAY, owner="p2"))
    (now,) = with_dead_owners([was], frozenset({"p1"}))
    assert [each.end for each in now.exchanges] == [End.ABANDONED, End.COMPLETE, End.UNDER_WAY]


@pytest.mark.parametrize(
    ("exchanges", "was", "standing"),
    [
        ((), {}, Standing.FRESH),
        ((x(attempt="a2"),), {}, Standing.FRESH),
        ((x(),), {}, Standing.SPENT),
        ((x(), x()), {"uses": 2}, Standing.SPENT),
        ((x(),), {"uses": 2}, Standing.OTHER),
        ((x(final=False),), {}, Standing.OTHER),
        ((x(fence=0),), {}, Standing.OTHER),
        ((x(End.ABANDONED),), {}, Standing.OTHER),
        ((x(), x(End.ABANDONED)), {}, Standing.OTHER),
        ((x(End.UNDER_WAY), x()), {}, Standing.OTHER),
        ((), {"state": State.PENDING}, Standing.OTHER),
        ((), {"numbered": True}, Standing.OTHER),
    ],
)
def test_how_a_row_stands_to_an_attempt(
    exchanges: tuple[Exchange, ...], was: dict[str, Any], standing: Standing
) -> None:
    """Fresh, spent, or to be looked at."""
    assert row(1, *exchanges, **was).standing("a1") is standing


def many(*odd: Occurrence) -> list[Occurrence]:
    spent = [row(n, x()) for n in range(1, FEW + 1)]
    return [*spent, *odd]


def test_of_very_many_rows_only_those_that_can_matter_are_looked_at() -> None:
    """The last that is spent, the first that is fresh, and whatever is neither."""
    fresh = [row(n) for n in range(FEW + 1, FEW + 4)]
    odd = row(FEW + 9, x(End.ABANDONED))
    rows = many(*fresh, odd)
    kept = worth_choosing_from(rows, ask())
    assert {each.n for each in kept} == {FEW, FEW + 1, FEW + 9}
    assert worth_choosing_from(rows[:FEW], ask()) == rows[:FEW]
    assert len(worth_choosing_from(rows[: FEW + 1], ask())) == 2
    for all_of_them in ({"occurrence": 3}, {"repeat": Repeat.SAME}, {"attempt": ""}):
        assert worth_choosing_from(rows, ask(**all_of_them)) == rows
    assert worth_choosing_from(rows, ask("", safe=True)) == ()


def test_a_row_that_shares_a_token_is_always_looked_at() -> None:
    """Though it is spent; one of another token, or another attempt, is not."""
    marked = [row(n, x(tokens=frozenset({f"t{n}"}))) for n in range(1, FEW + 3)]
    kept = worth_choosing_from(marked, ask(tokens=frozenset({"t2"})))
    assert {each.n for each in kept} == {2, FEW + 2}
    theirs = [row(n, x(), x(tokens=frozenset({"t2"}), attempt="a2")) for n in range(1, FEW + 3)]
    kept = worth_choosing_from(theirs, ask(tokens=frozenset({"t2"})))
    assert {each.n for each in kept} == {FEW + 2}


def test_other_words_within_one_attempt_are_another_question() -> None:
    """Only of a safe call, only if all of its asks were in other words, and only if words are kept."""
    both = row(1, x(wording="mon"), x(wording="tue"), safe=True, uses=3)
    assert choose_occurrence([both], ask(safe=True, wording="tue"), NOWHERE) == Existing(1, Why.NEXT)
    assert choose_occurrence([both], ask(safe=True, wording="wed"), NOWHERE) == New(2)
    assert choose_occurrence([both], ask(safe=True), NOWHERE) == Existing(1, Why.NEXT)
    effect = row(1, x(wording="mon"), uses=3)
    assert choose_occurrence([effect], ask(wording="wed"), NOWHERE) == Existing(1, Why.NEXT)


def test_a_client_that_retries_means_the_oldest_that_it_did_not_get() -> None:
    """A problem, an answer that is not final, one that its client has given up."""
    retrying = ask(retry_count=1, safe=True)
    got = row(1, x())
    for missed in (x(End.PROBLEM), x(final=False), x(End.ABANDONED), x(End.UNDER_WAY)):
        rows = [got, row(2, missed), row(3, x())]
        assert choose_occurrence(rows, retrying, NOWHERE) == Existing(2, Why.RETRY_COUNT)
    assert choose_occurrence([got, row(2, x())], retrying, NOWHERE) == Existing(2, Why.RETRY_COUNT)
    assert choose_occurrence([got], ask("a2", retry_count=1, safe=True), NOWHERE) == Existing(1, Why.NEXT)


def test_what_another_process_hands_on_may_still_be_marked() -> None:
    """For as long as a mark takes; what this one hands on it knows."""
    theirs = row(1, x(End.UNDER_WAY, owner="p2"))
    retrying = ask(retry_count=1, safe=True)
    assert choose_occurrence([theirs], retrying, NOWHERE, waited=0.5) == AwaitMark(1, MARK_LAG - 0.5)
    assert choose_occurrence([theirs], retrying, NOWHERE, waited=MARK_LAG) == Existing(1, Why.RETRY_COUNT)
    ours = row(1, x(End.UNDER_WAY))
    assert choose_occurrence([ours], retrying, NOWHERE) == Existing(1, Why.RETRY_COUNT)


def test_what_is_superseded_is_not_what_a_retry_means() -> None:
    """The one after it is, if it was missed too."""
    gone = row(1, x(final=False), state=State.RELEASED, answered=True)
    missed = row(5, x(End.PROBLEM))
    beyond = Frontier(last_effect=3, asked=3)
    found = choose_occurrence([gone, missed], ask(retry_count=1, safe=True), beyond)
    assert found == Existing(5, Why.RETRY_COUNT)


def test_no_tokens_are_no_evidence() -> None:
    """Two calls without any share none."""
    rows = [row(1, x(tokens=frozenset({"t"})))]
    assert choose_occurrence(rows, ask(), NOWHERE) == New(2)
    assert choose_occurrence(rows, ask(tokens=frozenset({"u"})), NOWHERE) == New(2)
    assert choose_occurrence(rows, ask(tokens=frozenset({"t", "u"})), NOWHERE) == Existing(1, Why.TOKEN)


def test_what_a_call_means_where_it_says_nothing() -> None:
    """Fields that older versions did not write are read as these."""
    call = Call(
        key=bytes(16), fingerprint=b"f", tenant="t", upstream="u", rule="r", tool="x", safe=True,
        state=State.RELEASED, version=1, fence=1, owner="p", created_at=calls.NOW,
    )  # fmt: skip
    assert (call.named_by, call.run, call.attempt, call.seq, call.occurrence) == (b"", "", "", 0, 1)
    assert (call.born, call.sends, call.unresolved, call.request, call.request_blob) == (
        0.0,
        0,
        False,
        b"",
        "",
    )
    answer = Answer(status=200, size=0, recorded_at=1.0, place=Place.INLINE)
    assert (answer.head, answer.body, answer.blob, answer.why_nowhere) == (b"", b"", "", "")
    assert Doubt(since=1.0, reason="r").excerpt == ""
