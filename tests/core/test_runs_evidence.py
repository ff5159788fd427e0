"""Which of several records an ask is, where they compete: each mistake here sends twice, or never again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.frontier import Again, ByState, Frontier, is_sealed, is_used_up, recall
from proxy.core.intent import State, evolve
from proxy.core.occurrence import Existing, Join, New, Why, choose_occurrence
from proxy.core.policy import Repeat
from proxy.core.run_record import InRun, Receipt
from proxy.core.runs import (
    End,
    Occurrence,
    Standing,
    after_delivery_ended,
    after_delivery_started,
    step_of,
)
from tests.core.occurrences import NOWHERE, ask, row, x
from tests.stores import calls

BEFORE = Frontier(last_effect=9)  # an effect stands behind all rows here, and the attempt has not asked it
BEYOND = Frontier(last_effect=9, asked=9)
KEY = frozenset({"k"})


def told(*problems: tuple[str, str, int], state: State = State.IN_DOUBT) -> Occurrence:
    receipts = tuple(Receipt(attempt=a, problem=problem, position=at) for a, problem, at in problems)
    return row(1, x(end=End.PROBLEM), state=state, receipts=receipts)


@pytest.mark.parametrize("why", list(Why))
def test_what_counts_as_a_retry(why: Why) -> None:
    """A token, the client's word, a caller that left. To wait, or to ask for the next, is none."""
    assert Existing(1, why).is_retry is (why in {Why.TOKEN, Why.RETRY_COUNT, Why.ABANDONED})


def test_a_token_is_exact_and_goes_before_what_seems_owed() -> None:
    """The client says which call it repeats: an older one whose mark was lost is not it."""
    lost = row(1, x("a0"))
    failed = row(2, x(tokens=KEY, final=False), state=State.RELEASED)
    assert choose_occurrence([lost, failed], ask(tokens=KEY), NOWHERE) == Existing(2, Why.TOKEN)


def test_a_caller_that_left_is_believed_before_what_else_may_be_sent() -> None:
    """Both would be claimed: evidence names the second, nothing names the first."""
    refused = row(1, x(end=End.PROBLEM), state=State.RELEASED)
    left = row(2, x(end=End.ABANDONED), state=State.RELEASED)
    assert choose_occurrence([refused, left], ask(), NOWHERE) == Existing(2, Why.ABANDONED)


@pytest.mark.parametrize("n", [1, 2, 40])
def test_what_is_handed_on_is_joined_whatever_number_a_new_call_would_get(n: int) -> None:
    """Of very many rows only some are looked at, so a new one's number may seem to be lower than theirs."""
    assert choose_occurrence([row(n, x(end=End.UNDER_WAY))], ask(), NOWHERE) == Join(n)


def test_an_answer_to_an_earlier_claim_is_not_what_is_handed_on() -> None:
    """Its mark was lost; the present answer was given whole, so the next identical call is a new one."""
    given = row(1, x(end=End.UNDER_WAY), x(fence=2), fence=2)
    assert choose_occurrence([given], ask(), NOWHERE) == New(2)


def test_who_asked_an_earlier_claim_is_not_in_flight_with_the_present_one() -> None:
    """Only the credentials of those that wait for it now make two calls one."""
    pending = row(
        1,
        x(credentials=b"me", final=False),
        x(credentials=b"you", end=End.UNDER_WAY, fence=2),
        state=State.PENDING,
        fence=2,
    )
    assert choose_occurrence([pending], ask(credentials=b"me"), NOWHERE) == New(2)
    assert choose_occurrence([pending], ask(credentials=b"you"), NOWHERE) == Join(1)


def test_a_retry_count_passes_over_what_may_not_be_claimed_again() -> None:
    """ "its retry is the next occurrence": neither taken as the latest, nor the end of the search."""
    final = row(1, x())
    sealed = row(2, x(final=False), state=State.RELEASED, answered=True)
    assert choose_occurrence([final, sealed], ask(retry_count=1), BEYOND) == New(3)
    later = [
        replace(sealed, safe=True),
        row(3, x(final=False), state=State.RELEASED, answered=True, safe=True, seq=10),
        row(4, x(), safe=True, seq=11),
    ]
    asked = ask(safe=True, retry_count=1)
    assert choose_occurrence(later, asked, BEYOND) == Existing(3, Why.RETRY_COUNT)


# ---- the frontier ----


@pytest.mark.parametrize("frontier", [NOWHERE, BEFORE, BEYOND])
def test_a_doubt_stays_owed_however_far_its_attempt_has_come(frontier: Frontier) -> None:
    """What may have been executed is never made again as a new call because its doubt was told."""
    doubt = told(("a1", "in-doubt", 1))
    assert not is_used_up(doubt, "a1", frontier)
    assert choose_occurrence([doubt], ask(), frontier) == Existing(1, Why.NEXT)
    assert choose_occurrence([doubt], ask(repeat=Repeat.SAME), frontier) == Existing(1, Why.SAME)
    assert choose_occurrence([doubt], ask(retry_count=1), frontier) == Existing(1, Why.RETRY_COUNT)


@pytest.mark.parametrize("released", [{}, {"answered": True, "resolved": True}], ids=["approved", "resolved"])
def test_what_a_person_let_go_is_claimed_however_far_its_attempt_has_come(released: dict[str, bool]) -> None:
    """It is the call that they meant: as a new one it would be asked about again."""
    let_go = replace(row(1, x(end=End.PROBLEM, tokens=KEY), state=State.RELEASED), **released)  # type: ignore[arg-type]
    assert choose_occurrence([let_go], ask(repeat=Repeat.SAME), BEYOND) == Existing(1, Why.SAME)
    assert choose_occurrence([let_go], ask(tokens=KEY), BEYOND) == Existing(1, Why.TOKEN)


def test_a_doubt_is_sealed_by_what_came_after_the_doubt() -> None:
    """Another problem that was told before it says nothing; and while it is sent again, nothing is sealed."""
    doubt = told(("a1", "denied", 1), ("a1", "in-doubt", 7))
    assert not is_sealed(doubt, Frontier(last_effect=5))
    assert is_sealed(doubt, Frontier(last_effect=8))
    assert not is_sealed(replace(doubt, state=State.PENDING), Frontier(last_effect=8))


def test_who_was_told_of_a_doubt_may_have_it_settled() -> None:
    """Also where an earlier attempt was told as well; a third is given what they were."""
    doubt = told(("a1", "in-doubt", 1), ("a2", "in-doubt", 2))
    for attempt in ("a1", "a2"):
        assert recall(doubt, attempt, BEFORE) == ByState(State.IN_DOUBT)
    assert recall(doubt, "a3", BEFORE) == Again("in-doubt")


def test_of_several_problems_the_last_is_given_again() -> None:
    """It is what the attempt knew when it went on."""
    failed = told(("a1", "in-doubt", 1), ("a1", "upstream-unreachable", 2), state=State.RELEASED)
    assert recall(failed, "a2", BEFORE) == Again("upstream-unreachable")


def test_tries_are_owed_to_later_attempts_only() -> None:
    """Who tried twice itself has had both; a failure at the first try is given once."""
    failed = row(1, x(), x("a2"), state=State.RELEASED, answered=True)
    assert is_used_up(failed, "a2", BEFORE)
    twice = replace(failed, tries=2)
    assert is_used_up(twice, "a1", BEFORE)
    assert not is_used_up(twice, "a2", BEFORE)


def test_a_failure_that_is_being_handed_on_counts_once() -> None:
    """Of two that joined, one is served: the other is still owed."""
    joined = row(1, x(end=End.UNDER_WAY), state=State.RELEASED, answered=True, uses=2)
    assert not is_used_up(joined, "a1", BEYOND)
    assert is_used_up(replace(joined, uses=1), "a1", BEYOND)


# ---- rows ----


def test_how_a_row_stands_is_found_anew_when_it_has_changed() -> None:
    """What is remembered is of that row alone, and makes it no other row."""
    fresh = row(1)
    assert fresh.standing("a1") is Standing.FRESH
    assert fresh == row(1)
    served = after_delivery_ended(after_delivery_started(fresh, x()), 1, End.COMPLETE)
    assert served.exchanges[0].final
    assert served.standing("a1") is Standing.SPENT


def test_a_step_tells_when_it_was_sent() -> None:
    """How long a call took is told from it."""
    call, _ = calls.claim("p", bytes(16))
    in_run = evolve(call, run="r", in_run=InRun(family=b"f", group=()), sent_at=12.5)
    assert step_of(in_run).sent_at == 12.5
