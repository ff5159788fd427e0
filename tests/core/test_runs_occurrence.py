"""Which recorded call an ask is: one test per sentence of semantics.md section 2, "Repeats"."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.frontier import Frontier, is_used_up
from proxy.core.intent import State
from proxy.core.occurrence import (
    MARK_LAG,
    AwaitMark,
    Existing,
    Join,
    New,
    Why,
    after_replay,
    choose_occurrence,
    repeat_in_run,
)
from proxy.core.policy import Mode, Repeat, Scope
from proxy.core.run_record import Receipt
from proxy.core.runs import (
    End,
    after_claim,
    after_delivery_ended,
    after_delivery_started,
    after_join,
    after_resend,
    after_retry,
    retry_is_durable,
    with_dead_owners,
)
from tests.core.occurrences import NOWHERE, ask, row, x


def test_the_nth_identical_call_of_an_attempt_is_the_nth_recorded_one() -> None:
    """ "…a new attempt counts from one." """
    record = [row(1, x()), row(2, x())]
    assert choose_occurrence(record, ask("a1"), NOWHERE) == New(3)
    assert choose_occurrence(record, ask("a2"), NOWHERE) == Existing(1, Why.NEXT)
    record = [row(1, x(), x("a2")), row(2, x())]
    assert choose_occurrence(record, ask("a2"), NOWHERE) == Existing(2, Why.NEXT)


@pytest.mark.parametrize("token", ["idempotency-key:k", "invocation:i"])
def test_the_same_token_within_the_attempt_is_a_retry(token: str) -> None:
    """ "same Idempotency-Key or `amz-sdk-invocation-id` within the attempt" """
    record = [row(1, x(tokens=frozenset({token}))), row(2, x())]
    asked = ask(tokens=frozenset({token}))
    assert choose_occurrence(record, asked, NOWHERE) == Existing(1, Why.TOKEN)
    assert choose_occurrence(record, ask(tokens=frozenset({"other"})), NOWHERE) == New(3)
    elsewhere = replace(asked, attempt="a2")
    assert choose_occurrence([row(1, x("a2")), record[0]], elsewhere, NOWHERE) != Existing(1, Why.TOKEN)


def test_a_token_comes_before_the_retry_count_and_that_before_an_abandoned_exchange() -> None:
    """ "Which one a request is, in this order" """
    record = [
        row(1, x(end=End.ABANDONED)),
        row(2, x(final=False), state=State.RELEASED),
        row(3, x(tokens=frozenset({"k"}))),
    ]
    both = ask(tokens=frozenset({"k"}), retry_count=1)
    assert choose_occurrence(record, both, NOWHERE) == Existing(3, Why.TOKEN)
    assert choose_occurrence(record[1:], ask(retry_count=1), NOWHERE) == Existing(2, Why.RETRY_COUNT)
    assert choose_occurrence(record, ask(), NOWHERE) == Existing(1, Why.ABANDONED)


def test_a_retry_count_means_the_oldest_not_final_else_the_latest_else_goes_on() -> None:
    """ "`x-stainless-retry-count` over 0 → the oldest … abandoned or not final, else the latest, if there is
    none go on" """
    final, not_final = x(), x(final=False)
    asked = ask(retry_count=2)
    oldest = [row(1, final), row(2, not_final, state=State.RELEASED), row(3, x(end=End.ABANDONED))]
    assert choose_occurrence(oldest, asked, NOWHERE) == Existing(2, Why.RETRY_COUNT)
    assert choose_occurrence([row(1, final), row(2, final)], asked, NOWHERE) == Existing(2, Why.RETRY_COUNT)
    assert choose_occurrence([], asked, NOWHERE) == New(1)
    other_attempt = [row(1, x("a0"))]
    assert choose_occurrence(other_attempt, asked, NOWHERE) == Existing(1, Why.NEXT)


def test_a_parallel_sample_in_flight_is_not_what_a_retry_means() -> None:
    """A retry after a 503 belongs to the call that failed, not to its older neighbour still streaming."""
    streaming = row(1, x(end=End.UNDER_WAY), state=State.PENDING, safe=True)
    failed = row(2, x(final=False), state=State.RELEASED, safe=True)
    asked = ask(safe=True, retry_count=1)
    assert choose_occurrence([streaming, failed], asked, NOWHERE) == Existing(2, Why.RETRY_COUNT)


def test_only_the_latest_exchange_being_abandoned_is_evidence() -> None:
    """ "an occurrence whose *latest* exchange was *abandoned*" """
    assert choose_occurrence([row(1, x(end=End.ABANDONED))], ask(), NOWHERE) == Existing(1, Why.ABANDONED)
    assert choose_occurrence([row(1, x(end=End.ABANDONED), x())], ask(), NOWHERE) == New(2)
    of_another = [row(1, x()), row(2, x("a0", End.ABANDONED))]
    assert choose_occurrence(of_another, ask(), NOWHERE) == Existing(2, Why.NEXT)


def test_the_death_of_the_serving_proxy_abandons() -> None:
    """ "or the proxy that served it died while handing on" """
    record = [row(1, x(end=End.UNDER_WAY, owner="p0"))]
    dead = with_dead_owners(record, frozenset({"p0"}))
    assert choose_occurrence(dead, ask(), NOWHERE) == Existing(1, Why.ABANDONED)
    assert with_dead_owners(record, frozenset({"p1"})) == tuple(record)


def test_an_overlapping_call_with_effects_and_the_same_credentials_joins() -> None:
    """ "still *pending* → with effects and the same credentials: joins it; safe: as 3" """
    pending = row(1, x(end=End.UNDER_WAY, credentials=b"me"), state=State.PENDING)
    assert choose_occurrence([pending], ask(credentials=b"me"), NOWHERE) == Join(1)
    assert choose_occurrence([pending], ask(credentials=b"you"), NOWHERE) == New(2)
    safe = replace(pending, safe=True)
    assert choose_occurrence([safe], ask(safe=True, credentials=b"me"), NOWHERE) == New(2)


def test_what_an_earlier_attempt_left_pending_is_this_attempts_first_use_not_a_join() -> None:
    """Attempt two waits for it without adding a use; its second overlapping ask joins."""
    pending = row(1, x("a0", End.ABANDONED), state=State.PENDING)
    assert choose_occurrence([pending], ask(), NOWHERE) == Existing(1, Why.NEXT)
    waiting = after_delivery_started(pending, x(end=End.UNDER_WAY))
    assert choose_occurrence([waiting], ask(), NOWHERE) == Join(1)


def test_after_in_progress_the_next_ask_is_owed_and_adds_no_use() -> None:
    """ "an exchange … ended by a problem of semel, is still owed" """
    pending = row(1, x(end=End.PROBLEM), state=State.PENDING)
    assert choose_occurrence([pending], ask(), NOWHERE) == Existing(1, Why.IN_FLIGHT)


@pytest.mark.parametrize("state", [State.AWAITING_APPROVAL, State.DENIED, State.IN_DOUBT, State.DONE])
def test_a_problem_leaves_the_answer_owed(state: State) -> None:
    """ "The repeat after `awaiting-approval` is the same occurrence"; a doubt never becomes a second call."""
    assert choose_occurrence([row(1, x(end=End.PROBLEM), state=state)], ask(), NOWHERE) == Existing(
        1, Why.NEXT
    )


def test_a_doubt_stays_the_same_occurrence_even_with_effects_after_it() -> None:
    """Otherwise the next ask would send what may have been executed."""
    doubt = row(1, x(end=End.PROBLEM), state=State.IN_DOUBT)
    assert choose_occurrence([doubt], ask(), Frontier(last_effect=9, asked=9)) == Existing(1, Why.NEXT)


def test_uses_grow_with_joins_and_with_retries_after_full_delivery() -> None:
    """ "one use, plus one per join and per retry on evidence after its final answer was fully delivered" """
    delivered = row(1, x())
    assert after_join(delivered, x()).uses == 2
    assert after_retry(delivered, x()).uses == 2
    assert retry_is_durable(delivered, x())
    assert after_retry(row(1, x(end=End.UNDER_WAY)), x()).uses == 2  # it may yet be delivered
    for owed in (End.ABANDONED, End.PROBLEM):
        assert after_retry(row(1, x(end=owed)), x()).uses == 1
    assert after_retry(row(1, x(final=False), state=State.RELEASED), x()).uses == 1


def test_a_rerun_that_asks_one_after_the_other_gets_what_overlapped() -> None:
    """Two overlapping calls were one; in the second attempt they come in turn and are still one."""
    record = after_join(row(1, x()), x())
    for count in range(2):
        assert choose_occurrence([record], ask("a2"), NOWHERE) == Existing(1, Why.NEXT), count
        record = after_delivery_started(record, x("a2"))
        record = after_delivery_ended(record, len(record.exchanges), End.COMPLETE)
    assert choose_occurrence([record], ask("a2"), NOWHERE) == New(2)


def test_a_claim_resets_the_uses_to_one_and_old_deliveries_do_not_count() -> None:
    """ "a claim resets them to one"; "deliveries of the *present* answer" """
    released = after_join(row(1, x(final=False), state=State.RELEASED), x(final=False))
    claimed = after_claim(released, x("a1", End.UNDER_WAY))
    assert (claimed.uses, claimed.fence, claimed.state) == (1, 2, State.PENDING)
    assert claimed.deliveries("a1") == 1
    gone = after_delivery_ended(claimed, 3, End.ABANDONED)
    assert not is_used_up(gone, "a1", NOWHERE)


def test_a_resend_is_the_same_call_and_keeps_its_uses() -> None:
    """Two joined callers that both got `in-doubt` are both answered by the one resend."""
    doubt = row(1, x(end=End.PROBLEM), x(end=End.PROBLEM), state=State.IN_DOUBT, uses=2)
    again = after_resend(doubt)
    assert (again.uses, again.fence, again.state) == (2, 2, State.PENDING)


@pytest.mark.parametrize(
    ("end", "used"),
    [(End.COMPLETE, True), (End.UNDER_WAY, True), (End.ABANDONED, False), (End.PROBLEM, False)],
)
def test_used_up_counts_what_is_complete_or_under_way(end: End, used: bool) -> None:
    """ "that many deliveries of the present answer are complete or under way" """
    assert is_used_up(row(1, x(end=end)), "a1", NOWHERE) is used


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("state", [State.RELEASED, State.IN_DOUBT, State.DENIED])
def test_what_settled_without_an_answer_hands_nothing_on(state: State, safe: bool) -> None:
    """Served by another process, it has ended in a problem whose mark is not here yet: "an exchange … ended
    by a problem of semel, is still owed". Found by the simulation (seed 116), and by the kill soak."""
    failed = row(1, x(end=End.UNDER_WAY, owner="p2"), state=state, safe=safe)
    assert not is_used_up(failed, "a1", NOWHERE)
    assert choose_occurrence([failed], ask(safe=safe), NOWHERE) == Existing(1, Why.NEXT)
    handed_on = replace(failed, answered=True)
    assert is_used_up(handed_on, "a1", NOWHERE)


@pytest.mark.parametrize("end", [End.PROBLEM, End.UNDER_WAY])
def test_a_failure_that_was_gone_past_is_not_given_twice(end: End) -> None:
    """Marked or not yet: beyond the effect that came after it, its retry is the next occurrence."""
    failed = row(1, x(end=end, owner="p2"), state=State.RELEASED)
    failed = replace(failed, receipts=(Receipt(attempt="a1", problem="upstream-timeout", position=1),))
    assert is_used_up(failed, "a1", Frontier(last_effect=2, asked=2))
    assert not is_used_up(failed, "a1", Frontier(last_effect=2, asked=0))


def test_an_answer_still_being_handed_on_is_joined_rather_than_sent_again() -> None:
    """A caller may have left unnoticed; "overlapping identical calls with effects are taken for one"."""
    here = row(1, x(end=End.UNDER_WAY))
    assert choose_occurrence([here], ask(), NOWHERE) == Join(1)
    assert choose_occurrence([here, row(2)], ask(), NOWHERE) == Existing(2, Why.NEXT)
    assert choose_occurrence([replace(here, safe=True)], ask(safe=True), NOWHERE) == New(2)


@pytest.mark.parametrize("retry_count", [0, 1])
def test_what_seems_unasked_below_a_call_that_would_be_sent_has_lost_its_mark(retry_count: int) -> None:
    """An attempt that has reached the second one had the first: replay it rather than send the second."""
    lost = row(1, x("a0"))
    open_one = row(2, x(end=End.ABANDONED), state=State.RELEASED)
    asked = ask(retry_count=retry_count)
    assert choose_occurrence([lost, open_one], asked, Frontier(last_effect=2)) == Existing(1, Why.NEXT)


def test_another_process_gets_the_time_of_a_lazy_mark_before_a_send_is_decided() -> None:
    """Its mark, complete or abandoned, is at most a second away; without it the answer is replayed."""
    there = [row(1, x(end=End.UNDER_WAY, owner="p2"))]
    assert choose_occurrence(there, ask(), NOWHERE, waited=0.5) == AwaitMark(1, MARK_LAG - 0.5)
    assert choose_occurrence(there, ask(), NOWHERE, waited=MARK_LAG) == Join(1)
    retried = ask(retry_count=1)
    assert choose_occurrence(there, retried, NOWHERE) == AwaitMark(1, MARK_LAG)
    assert choose_occurrence(there, retried, NOWHERE, waited=MARK_LAG) == Existing(1, Why.RETRY_COUNT)


def test_a_client_that_numbers_its_calls_is_believed() -> None:
    """ "`Semel-Occurrence` tells them apart" """
    pending = row(2, x(end=End.UNDER_WAY), state=State.PENDING, numbered=True)
    assert choose_occurrence([pending], ask(), NOWHERE) == New(1)
    assert choose_occurrence([pending], ask(occurrence=3), NOWHERE) == New(3)
    assert choose_occurrence([pending], ask(occurrence=2), NOWHERE) == Join(2)
    done = replace(pending, state=State.DONE)
    assert choose_occurrence([done], ask(occurrence=2), NOWHERE) == Existing(2, Why.NUMBERED)


def test_without_an_attempt_safe_calls_go_live_and_effects_are_the_same_call() -> None:
    """ "without one, safe calls go live, calls with effects behave as `same`" """
    record = [row(1, x("")), row(2, x("a0"))]
    assert choose_occurrence(record, ask("", safe=True), NOWHERE) == New(3)
    assert choose_occurrence(record, ask(""), NOWHERE) == Existing(1, Why.SAME)
    assert choose_occurrence([], ask(""), NOWHERE) == New(1)


def test_repeat_same_in_a_run_takes_every_identical_call_for_one() -> None:
    """ "`repeat: same` in a run is a guard for tools where an identical second call is never meant" """
    same = ask(repeat=Repeat.SAME)
    assert choose_occurrence([row(1, x(), x(), x())], same, NOWHERE) == Existing(1, Why.SAME)
    pending = row(1, x(end=End.UNDER_WAY), state=State.PENDING)
    assert choose_occurrence([pending], same, NOWHERE) == Join(1)


def test_scope_tenant_implies_same_for_once_but_not_for_cache() -> None:
    """ "For `once`, scope tenant implies `same`"; "for `cache`, each ask in a run is an occurrence" """
    assert repeat_in_run(Mode.ONCE, Scope.TENANT, Repeat.ORDINAL) is Repeat.SAME
    assert repeat_in_run(Mode.ONCE, Scope.RUN, Repeat.ORDINAL) is Repeat.ORDINAL
    assert repeat_in_run(Mode.CACHE, Scope.TENANT, Repeat.ORDINAL) is Repeat.ORDINAL
    assert repeat_in_run(Mode.ONCE, Scope.RUN, Repeat.SAME) is Repeat.SAME


def test_a_forgotten_occurrence_keeps_its_number() -> None:
    """ "the occurrence number stays" """
    forgotten = row(1, x("a0"), state=None)
    assert choose_occurrence([forgotten], ask(), NOWHERE) == Existing(1, Why.NEXT)


def replays(*times: float) -> list[bool]:
    kept: tuple[float, ...] = ()
    said = []
    for at in times:
        kept, polling = after_replay(kept, at)
        said.append(polling)
    return said


def test_the_fifth_replay_within_a_minute_looks_like_polling() -> None:
    """ "The fifth replay of one call to one attempt within a minute is logged and counted" """
    assert replays(0, 1, 2, 3, 59.9) == [False] * 4 + [True]
    assert replays(0, 20, 40, 55, 60) == [False] * 5
    assert replays(*range(10)) == ([False] * 4 + [True]) * 2


def test_what_cannot_be_is_refused() -> None:
    """Counting begins with one, and an end is an end."""
    for nonsense in ({"n": 0}, {"uses": 0}, {"tries": 0}):
        with pytest.raises(ValueError):
            replace(row(1), **nonsense)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        after_delivery_ended(row(1, x(end=End.UNDER_WAY)), 1, End.UNDER_WAY)


def test_an_end_without_its_start_ends_nothing() -> None:
    """It was lost with another process; only the one that is meant is ended, and under its fence."""
    was = row(1, x(end=End.UNDER_WAY), x(end=End.UNDER_WAY))
    assert after_delivery_ended(was, 7, End.COMPLETE) == was
    now = after_delivery_ended(was, 2, End.PROBLEM, fence=5, final=False)
    assert now.exchanges[0] == was.exchanges[0]
    assert now.exchanges[1] == was.exchanges[1]._replace(end=End.PROBLEM, fence=5, final=False)
    assert after_delivery_ended(was, 1, End.COMPLETE).exchanges[0].fence == 1
