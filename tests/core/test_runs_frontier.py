"""What a later attempt is given again and where it goes live: semantics.md section 2, "The frontier"."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.divergence import Row
from proxy.core.frontier import ANSWER, Again, ByState, Frontier, GoLive, frontier_of, recall
from proxy.core.intent import State
from proxy.core.occurrence import Ask, Existing, New, Why, choose_occurrence
from proxy.core.policy import Repeat
from proxy.core.runs import (
    End,
    Exchange,
    Occurrence,
    Receipt,
    after_claim,
    after_delivery_ended,
    after_problem_given,
)

BEFORE_EFFECT = Frontier(last_effect=5)  # a call with effects stands at seq 5, this attempt has not asked it
BEYOND = Frontier(last_effect=5, asked=5)
LAST = Frontier(last_effect=1)  # nothing with effects after seq 1


def row(state: State | None = State.RELEASED, **more: object) -> Occurrence:
    made = Occurrence(n=1, seq=1, safe=False, state=state, fence=1, claimed_by="a1", answered=True)
    return replace(made, **more)  # type: ignore[arg-type]


def exchange(attempt: str, end: End = End.COMPLETE, *, final: bool = False) -> Exchange:
    return Exchange(number=1, attempt=attempt, fence=1, owner="p", end=end, final=final)


def given(problem: str, state: State, position: int = 1) -> Occurrence:
    return row(state, answered=False, receipts=(Receipt(attempt="a1", problem=problem, position=position),))


def choose(rows: list[Occurrence], attempt: str, frontier: Frontier, **more: object) -> object:
    asked = replace(Ask(attempt=attempt, safe=False, proxy="p"), **more)  # type: ignore[arg-type]
    return choose_occurrence(rows, asked, frontier)


@pytest.mark.parametrize("safe", [True, False])
def test_an_answer_that_is_not_final_is_given_again_while_an_effect_stands_after_it(safe: bool) -> None:
    """ "A later attempt gets it again … as long as the record holds a call with effects made after it" """
    assert recall(row(safe=safe), "a2", BEFORE_EFFECT) == Again(ANSWER)


@pytest.mark.parametrize("safe", [True, False])
def test_beyond_the_last_effect_what_is_not_final_goes_live(safe: bool) -> None:
    """ "only beyond the last such call do non-final answers go live" """
    assert recall(row(safe=safe), "a2", LAST) == GoLive()
    assert recall(row(State.DONE, safe=safe), "a2", LAST) == Again(ANSWER)


def test_the_frontier_is_the_last_standing_call_with_effects() -> None:
    """Safe calls do not count, a forgotten one no longer stands, a released or held one does."""

    def made(seq: int, state: State | None, *, safe: bool = False, asked: str = "a1") -> Row:
        by = frozenset({asked})
        return Row(id=str(seq), seq=seq, safe=safe, state=state, group=(), attempt="a1", asked_by=by)

    rows = [made(1, State.DONE, asked="a2"), made(2, State.RELEASED), made(3, State.DONE, safe=True)]
    assert frontier_of(rows, "a2") == Frontier(last_effect=2, asked=1)
    assert frontier_of([*rows, made(4, State.AWAITING_APPROVAL)], "a2").last_effect == 4
    assert frontier_of([*rows, made(4, None)], "a2").last_effect == 2
    assert frontier_of([], "a2") == Frontier()


@pytest.mark.parametrize("problem", ["upstream-unreachable", "upstream-timeout"])
def test_a_received_problem_is_given_again_and_nothing_is_sent(problem: str) -> None:
    """ "a later attempt gets the same problem and nothing is sent" """
    failed = given(problem, State.RELEASED)
    assert recall(failed, "a2", BEFORE_EFFECT) == Again(problem)
    assert recall(failed, "a2", LAST) == GoLive()


def test_a_doubt_that_was_given_is_given_again_to_later_attempts() -> None:
    """The attempt that got it may ask again and have it resent or probed: it knows what it does."""
    doubt = given("in-doubt", State.IN_DOUBT)
    assert recall(doubt, "a2", BEFORE_EFFECT) == Again("in-doubt")
    assert recall(doubt, "a1", BEFORE_EFFECT) == ByState(State.IN_DOUBT)
    assert recall(doubt, "a2", LAST) == ByState(State.IN_DOUBT)


def test_only_effects_made_after_a_doubt_was_given_count() -> None:
    """A parallel call claimed before the doubt was told cannot depend on it: it must not bar the resend."""
    doubt = given("in-doubt", State.IN_DOUBT, position=5)
    assert recall(doubt, "a2", BEFORE_EFFECT) == ByState(State.IN_DOUBT)
    assert recall(replace(doubt, receipts=()), "a2", BEFORE_EFFECT) == ByState(State.IN_DOUBT)


def test_a_problem_no_longer_holds_once_done_resolved_or_forgotten() -> None:
    """ "unless the call is `done` by now or a person resolved or forgot it" """
    doubt = given("in-doubt", State.IN_DOUBT)
    assert recall(replace(doubt, state=State.DONE, answered=True), "a2", BEFORE_EFFECT) == Again(ANSWER)
    assert recall(replace(doubt, state=State.RELEASED, resolved=True), "a2", BEFORE_EFFECT) == GoLive()
    assert recall(replace(doubt, state=State.RELEASED), "a2", BEFORE_EFFECT) == Again(
        "in-doubt"
    )  # by a probe
    assert recall(replace(doubt, state=None), "a2", BEFORE_EFFECT) == GoLive()


@pytest.mark.parametrize("state", [State.PENDING, State.AWAITING_APPROVAL, State.DENIED])
def test_other_states_decide_for_themselves(state: State) -> None:
    assert recall(row(state, answered=False), "a2", BEFORE_EFFECT) == ByState(state)


def test_a_call_released_by_an_approval_goes_through_although_effects_followed() -> None:
    """No answer was received: "the identical call made later goes through once"."""
    approved = row(answered=False, exchanges=(exchange("a1", End.PROBLEM),))
    assert recall(approved, "a2", BEFORE_EFFECT) == GoLive()
    assert choose([approved], "a1", BEYOND) == Existing(1, Why.NEXT)


@pytest.mark.parametrize("end", [End.COMPLETE, End.PROBLEM])
@pytest.mark.parametrize("repeat", list(Repeat))
def test_the_retry_of_a_released_answer_with_an_effect_after_it_is_the_next_occurrence(
    end: End, repeat: Repeat
) -> None:
    """ "never claimed again: its retry is the next occurrence", whatever the evidence"""
    sealed = row(exchanges=(exchange("a1", end)._replace(tokens=frozenset({"k"})),))
    assert choose([sealed], "a1", BEYOND, repeat=repeat) == New(2)
    assert choose([sealed], "a1", BEYOND, repeat=repeat, retry_count=1) == New(2)
    assert choose([sealed], "a1", BEYOND, repeat=repeat, tokens=frozenset({"k"})) == New(2)
    unsealed = choose([sealed], "a1", LAST, tokens=frozenset({"k"}))
    assert unsealed == Existing(1, Why.TOKEN)


def test_forget_lets_it_go_live() -> None:
    """ "`calls forget` on it lets it go live" """
    forgotten = row(None, exchanges=(exchange("a1"),))
    assert choose([forgotten], "a2", BEFORE_EFFECT) == Existing(1, Why.NEXT)
    assert recall(forgotten, "a2", BEFORE_EFFECT) == GoLive()


def test_the_retries_of_a_later_attempt_fail_until_it_comes_to_the_effect() -> None:
    """ "the second attempt must see A fail again, or both are used": also when its client retries."""
    sealed = row(exchanges=(exchange("a1"), exchange("a2")))
    assert choose([sealed], "a2", BEFORE_EFFECT, retry_count=1) == Existing(1, Why.RETRY_COUNT)
    assert recall(sealed, "a2", BEFORE_EFFECT) == Again(ANSWER)
    assert choose([sealed], "a2", BEYOND, retry_count=1) == New(2)


def test_a_loop_of_tries_ends_in_the_rerun_as_it_did() -> None:
    """Unreachable, then 429 under the same number: two tries, so a later attempt fails twice as well."""
    start = Occurrence(n=1, seq=1, safe=False, state=None, fence=0)
    tried = after_claim(start, exchange("a1", End.UNDER_WAY))
    tried = after_delivery_ended(tried, 1, End.PROBLEM)
    tried = after_claim(replace(tried, state=State.RELEASED), exchange("a1", End.UNDER_WAY))
    tried = replace(
        after_delivery_ended(tried, 2, End.COMPLETE, final=False), state=State.RELEASED, answered=True
    )
    assert tried.tries == 2
    once = replace(tried, exchanges=(*tried.exchanges, exchange("a2")._replace(number=3, fence=2)))
    assert choose([once], "a2", BEFORE_EFFECT) == Existing(1, Why.NEXT)
    twice = replace(once, exchanges=(*once.exchanges, exchange("a2")._replace(number=4, fence=2)))
    assert choose([twice], "a2", BEFORE_EFFECT) == New(2)
    assert choose([once], "a2", BEYOND) == New(2)


def test_an_abandoned_failure_is_still_owed_beyond_the_frontier() -> None:
    """Nothing is sent for it: the caller gets what it missed, and only its next ask is a new call."""
    sealed = row(exchanges=(exchange("a1", End.ABANDONED),))
    assert choose([sealed], "a1", BEYOND) == Existing(1, Why.ABANDONED)
    assert recall(sealed, "a1", BEYOND) == Again(ANSWER)


def test_what_a_fork_inherits_from_before_its_start_is_the_past() -> None:
    """ "all answers up to N", the ones that are not final too"""
    assert recall(row(pinned=True), "a1", LAST) == Again(ANSWER)


def test_only_what_counts_as_received_can_be_a_receipt() -> None:
    """A receipt is noted once, and cleared by a claim: it told of an answer that is no longer present."""
    with pytest.raises(ValueError, match="does not count"):
        Receipt(attempt="a1", problem="in-progress", position=1)
    receipt = Receipt(attempt="a1", problem="upstream-timeout", position=1)
    noted = after_problem_given(after_problem_given(row(), receipt), receipt)
    assert noted.receipts == (receipt,)
    assert after_claim(noted, exchange("a2")).receipts == ()
