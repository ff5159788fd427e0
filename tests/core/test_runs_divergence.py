"""Leaving the record, forks and the end of a run: the rest of semantics.md section 2."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.divergence import (
    GRACE,
    MATTERS,
    Hold,
    OnDivergence,
    Proceed,
    Row,
    Verdict,
    WaitUntil,
    allow,
    fork,
    group_of,
    is_expired,
    judge,
    may_delete,
)
from proxy.core.intent import State

SEND = ("rule", "mail", "send")
ATTEMPTS = ("a1", "a2")


def row(seq: int, state: State | None = State.DONE, **more: object) -> Row:
    made = Row(
        id=f"r{seq}", seq=seq, safe=False, state=state, group=SEND, attempt="a1", asked_by=frozenset({"a1"})
    )
    return replace(made, **more)  # type: ignore[arg-type]


def verdict(*rows: Row, attempt: str = "a2", waited: float = GRACE, **more: object) -> Verdict:
    return judge(
        group=SEND,
        attempt=attempt,
        attempts=ATTEMPTS,
        rows=rows,
        waited=waited,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("state", list(State))
def test_an_unasked_call_of_the_same_rule_holds_a_new_one(state: State) -> None:
    """ "that was or may have been executed (`done`, `pending`, `in_doubt`), or awaits approval" """
    assert {State.DONE, State.PENDING, State.IN_DOUBT, State.AWAITING_APPROVAL} == MATTERS
    unasked = row(1, state)
    assert verdict(unasked) == (Hold((unasked,)) if state in MATTERS else Proceed())


def test_the_record_has_two_seconds_to_be_asked() -> None:
    """ "semel waits up to 2 s for the record to be asked; then it holds the call" """
    assert verdict(row(1), waited=0.5) == WaitUntil(1.5)
    assert verdict(row(1, asked_by=frozenset({"a1", "a2"})), waited=0.5) == Proceed()
    assert isinstance(verdict(row(1), waited=2.0), Hold)


def test_sets_are_compared_never_order() -> None:
    """A later row asked before an earlier one is no divergence; the one still missing is."""
    asked = frozenset({"a1", "a2"})
    assert verdict(row(1), row(2, asked_by=asked)) == Hold((row(1),))
    assert verdict(row(1, asked_by=asked), row(2, asked_by=asked)) == Proceed()


def test_allow_lets_it_pass_and_notes_it() -> None:
    """ "`allow` lets it pass and notes it", after the same grace: a late ask is no divergence"""
    assert verdict(row(1), on_divergence=OnDivergence.ALLOW) == Proceed((row(1),))
    assert verdict(row(1), on_divergence=OnDivergence.ALLOW, waited=0.0) == WaitUntil(GRACE)


def test_other_rules_safe_calls_and_the_first_attempt_never_diverge() -> None:
    """ "When a later attempt makes a call with effects … one of the same rule" """
    assert verdict(row(1, group=("rule", "mail", "other"))) == Proceed()
    assert verdict(row(1, safe=True)) == Proceed()
    assert verdict(row(1, attempt="a2", asked_by=frozenset({"a2"})), attempt="a1") == Proceed()
    assert isinstance(verdict(row(1), attempt="unlisted"), Hold)


def test_without_an_attempt_divergence_is_not_seen() -> None:
    assert verdict(row(1), attempt="") == Proceed()


def test_same_rule_means_without_a_rule_same_method_host_and_path() -> None:
    post = {"upstream": "u", "method": "POST", "host": "h", "path": "/p"}
    assert group_of(rule=None, **post) == group_of(rule=None, **{**post, "upstream": "v"})
    assert group_of(rule=None, **post) != group_of(rule=None, **{**post, "path": "/q"})
    assert group_of(rule="r", **post) == group_of(rule="r", **{**post, "path": "/q"})
    assert group_of(rule="r", **post) != group_of(rule="r", **{**post, "upstream": "v"})


def test_runs_allow_retires_what_is_now_unasked_and_opens_nothing_else() -> None:
    """A row that a third attempt then leaves unasked holds again."""
    asked = row(2, asked_by=frozenset({"a1", "a2"}))
    rows = allow((row(1), asked), ATTEMPTS)
    assert [r.retired for r in rows] == [True, False]
    assert verdict(*rows) == Proceed()
    third = judge(group=SEND, attempt="a3", attempts=(*ATTEMPTS, "a3"), rows=rows, waited=GRACE)
    assert third == Hold((asked,))
    assert allow((), ()) == ()


def test_a_fork_sees_answers_up_to_n_and_effects_always() -> None:
    """ "all answers up to N, and the parent's calls with effects always" """
    parent = (
        row(1, safe=True, answered=True),
        row(2, State.RELEASED, safe=True, answered=True),
        row(3, State.PENDING, safe=True),
        row(4, State.IN_DOUBT),
        row(5, safe=True, answered=True),
        row(6, answered=True),
        row(7, None),
    )
    assert [(r.seq, r.inherited, r.beyond) for r in fork(parent, at=4)] == [
        (1, True, False),
        (2, True, False),
        (4, True, False),
        (6, False, True),
    ]
    assert [r.seq for r in fork(parent, at=4, resend=True)] == [1, 2, 4]
    assert not any(r.asked_by for r in fork(parent, at=4))


def test_parent_rows_after_n_never_cause_divergence() -> None:
    """Those before N do, whatever the attempts of parent and fork are called."""
    rows = fork((row(1, answered=True), row(2, answered=True)), at=1)
    for attempts in (("a1",), ("a1", "a2")):
        held = judge(group=SEND, attempt=attempts[-1], attempts=attempts, rows=rows, waited=GRACE)
        assert isinstance(held, Hold)
        assert [r.seq for r in held.unasked] == [1]


def test_runs_expire_whole_after_their_last_activity() -> None:
    """ "Runs expire whole, `runs.retention` after their last activity" """
    assert not is_expired(last_activity=100, retention=30, now=129.9)
    assert is_expired(last_activity=100, retention=30, now=130)


@pytest.mark.parametrize("state", list(State))
def test_what_is_open_or_referred_to_is_never_deleted(state: State) -> None:
    """ "Rows that a fork refers to are kept"; "`pending` and `in_doubt` never expire" """
    held = row(1, state)
    nobody: frozenset[str] = frozenset()
    deletable = state not in (State.PENDING, State.IN_DOUBT)
    assert may_delete(held, run_expired=True, referred_to=nobody) is deletable
    assert not may_delete(held, run_expired=False, referred_to=nobody)
    assert not may_delete(held, run_expired=True, referred_to=frozenset({"r1"}))
