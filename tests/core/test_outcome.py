"""What every status means, against the table of the design written out again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.clauses import UpstreamKey
from proxy.core.outcome import Verdict, is_mismatch, judge_answer, judge_status
from proxy.core.policy import OutcomeRule
from tests.counts import count

PLAIN = OutcomeRule()


def by_design(status: int, *, safe: bool) -> Verdict:
    """Effects: 2xx, 3xx, 4xx final; 401, 402, 403, 407, 425, 429 released; 408, 5xx in doubt; and doubt is
    the default for what the design does not name. Safe: 2xx final, anything else handed on and released."""
    if safe:
        return Verdict.FINAL if status in range(200, 300) else Verdict.INCONCLUSIVE
    if status in (401, 402, 403, 407, 425, 429):
        return Verdict.NOT_EXECUTED
    if status == 408:
        return Verdict.IN_DOUBT
    return Verdict.FINAL if status in range(200, 500) else Verdict.IN_DOUBT


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])
def test_every_status(safe: bool) -> None:
    """100 to 599, and what is no status at all."""
    for status in (*range(100, 600), 0, 600, 999):
        assert judge_status(status, safe=safe, rule=PLAIN) is by_design(status, safe=safe), status


@pytest.mark.parametrize("status", [200, 301, 404, 408, 409, 429, 500, 503])
def test_the_rules_own_words_come_first(status: int) -> None:
    """final, not_executed and in_doubt, for a call with effects."""
    one = frozenset({status})
    assert judge_status(status, safe=False, rule=OutcomeRule(final=one)) is Verdict.FINAL
    assert judge_status(status, safe=False, rule=OutcomeRule(not_executed=one)) is Verdict.NOT_EXECUTED
    assert judge_status(status, safe=False, rule=OutcomeRule(in_doubt=one)) is Verdict.IN_DOUBT
    assert judge_status(status + 1, safe=False, rule=OutcomeRule(final=one)) is by_design(
        status + 1, safe=False
    )


def test_a_safe_call_is_never_in_doubt() -> None:
    """Whatever the rule names: repeating it does no harm."""
    rule = OutcomeRule(final=frozenset({404}), not_executed=frozenset({200}), in_doubt=frozenset({201}))
    assert judge_status(404, safe=True, rule=rule) is Verdict.FINAL
    for status in (200, 201, 500):
        assert judge_status(status, safe=True, rule=rule) is Verdict.INCONCLUSIVE
    assert judge_status(202, safe=True, rule=rule) is Verdict.FINAL


RULE = OutcomeRule(not_executed_if="error.code == 'declined'")
DECLINED = json.dumps({"error": {"code": "declined"}}).encode()


@pytest.mark.parametrize("status", [200, 400, 404, 500, 408])
def test_a_body_can_say_that_nothing_was_executed(status: int) -> None:
    """Also where the status alone is final, or doubt."""
    assert judge_answer(status, DECLINED, safe=False, rule=RULE) is Verdict.NOT_EXECUTED
    assert judge_answer(status, DECLINED, safe=True, rule=RULE) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"not json",
        b'{"error": {"code": "other"}}',
        b"[]",
        b'{"error": "declined"}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
    ids=["none", "empty", "text", "other", "array", "string", "deep", "bytes"],
)
@pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])
def test_anything_else_leaves_the_verdict_to_the_status(body: bytes | None, safe: bool) -> None:
    """A body that cannot be read proves nothing."""
    for status in (200, 404, 429, 500):
        assert judge_answer(status, body, safe=safe, rule=RULE) is by_design(status, safe=safe)


@pytest.mark.parametrize(
    "expression", ["error.code", "`1`", "'true'", "length(error)", "missing", "abs(error)"]
)
def test_only_an_honest_true_counts(expression: str) -> None:
    """A value that is merely not empty, a failing function, an absent field: no."""
    rule = OutcomeRule(not_executed_if=expression)
    assert judge_answer(200, DECLINED, safe=False, rule=rule) is Verdict.FINAL


@settings(max_examples=count(200, 5_000), deadline=None)
@given(st.binary(max_size=60), st.integers(100, 599), st.booleans())
def test_no_body_makes_judging_fail(body: bytes, status: int, safe: bool) -> None:
    """Arbitrary bytes give the status's verdict."""
    assert judge_answer(status, body, safe=safe, rule=RULE) is by_design(status, safe=safe)


def test_a_key_that_is_known_for_another_request_is_told_by_status_or_body() -> None:
    """Only of a rule that says how its upstream tells."""
    by_status = UpstreamKey(header="k", mismatch=frozenset({422}))
    by_body = UpstreamKey(header="k", mismatch=frozenset({422}), mismatch_if="error == 'reused'")
    assert is_mismatch(422, None, by_status)
    assert not is_mismatch(400, b'{"error": "reused"}', by_status)
    assert is_mismatch(400, b'{"error": "reused"}', by_body)
    assert is_mismatch(422, None, by_body)
    assert not is_mismatch(400, b'{"error": "other"}', by_body)
    assert not is_mismatch(400, None, by_body)
    assert not is_mismatch(422, b"{}", None)


@pytest.mark.parametrize("expression", ["!id", "id == `null`", "@ == `null`", "`true`"])
@pytest.mark.parametrize("body", [None, b"", b"<h1>Bad gateway</h1>", b"[" * 100_000], ids=repr)
def test_what_is_missing_from_a_body_that_cannot_be_read_is_not_missing(
    body: bytes | None, expression: str
) -> None:
    """ "No id: nothing was made" holds of an answer, not of a gateway's page: else the call is sent twice."""
    rule = OutcomeRule(not_executed_if=expression)
    assert judge_answer(200, body, safe=False, rule=rule) is Verdict.FINAL
    assert judge_answer(502, body, safe=False, rule=rule) is Verdict.IN_DOUBT
    assert (
        judge_answer(502, b"{}", safe=False, rule=OutcomeRule(not_executed_if="!id")) is Verdict.NOT_EXECUTED
    )
    by_body = UpstreamKey(header="k", mismatch_if=expression)
    assert not is_mismatch(200, body, by_body)
    assert judge_answer(200, body, safe=False, rule=PLAIN, key=by_body) is Verdict.FINAL


def test_a_conflict_under_a_key_is_doubt() -> None:
    """ "409 only with an upstream key": the same key is being worked on. The rule's own words come first."""
    key = UpstreamKey(header="k")
    for body in (None, b"{}"):
        assert judge_answer(409, body, safe=False, rule=PLAIN, key=key) is Verdict.IN_DOUBT
        assert judge_answer(409, body, safe=False, rule=PLAIN) is Verdict.FINAL
        assert judge_answer(404, body, safe=False, rule=PLAIN, key=key) is Verdict.FINAL
    assert judge_status(409, safe=False, rule=OutcomeRule(final=frozenset({409})), key=key) is Verdict.FINAL


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])
def test_a_key_that_the_body_says_is_known_for_another_request_is_doubt(safe: bool) -> None:
    """ "An answer that the policy declares a key mismatch is doubt, not a result", whatever else it says."""
    key = UpstreamKey(header="k", mismatch_if="error == 'reused'")
    for rule in (PLAIN, OutcomeRule(not_executed_if="error == 'reused'")):
        found = judge_answer(200, b'{"error": "reused"}', safe=safe, rule=rule, key=key)
        assert found is Verdict.IN_DOUBT
    assert judge_answer(200, b'{"error": "other"}', safe=safe, rule=PLAIN, key=key) is Verdict.FINAL
