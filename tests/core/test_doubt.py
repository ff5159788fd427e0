"""The ways out of doubt, pure: when a key still counts, and what a probe's answer says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.core import doubt as core
from proxy.core.clauses import OnDoubt, Probe, UpstreamKey
from proxy.core.intent import Call, evolve
from proxy.core.policy import Rule
from proxy.core.terms import Terms
from tests.stores import calls

NOW = calls.NOW
KEY = UpstreamKey(header="idempotency-key", retention=3600.0)
KEPT = Terms(key="k", place="header idempotency-key", keyed_at=NOW)
RESENDS = Rule(name="r", in_doubt=OnDoubt.RESEND, upstream_key=KEY)
PROBE = Probe(method="GET", target="/x/{id}", found="found", result="thing")


def doubted(**terms: Any) -> Call:
    call, _ = calls.claim("p1", bytes(16))
    return evolve(call, terms=replace(KEPT, **terms))


def out(call: Call, rule: Rule = RESENDS, *, after: float = 0.0, mark: float = 0.0) -> core.WayOut:
    return core.way_out(call, rule, now=NOW + after, mark=NOW + mark)


def test_the_rule_says_which_way() -> None:
    """Held without a word where it says to hold; asked, where there is something to ask."""
    assert out(doubted(), Rule(name="r")) == core.Held("")
    assert out(doubted()) == core.Resend()
    asking = Rule(name="r", in_doubt=OnDoubt.PROBE, probe=PROBE)
    assert out(doubted(), asking) == core.Ask(PROBE)
    held = out(doubted(), replace(asking, probe=None))
    assert isinstance(held, core.Held)
    assert held.why


@pytest.mark.parametrize(
    ("terms", "key"),
    [
        ({"key": ""}, KEY),
        ({"place": "header x-other"}, KEY),
        ({"place": "body key"}, KEY),
        ({}, None),
        ({}, UpstreamKey(body="idempotency-key")),
    ],
    ids=str,
)
def test_a_key_that_was_sent_elsewhere_or_not_at_all_is_not_known_there(
    terms: dict[str, Any], key: UpstreamKey | None
) -> None:
    """Each has its reason."""
    held = out(doubted(**terms), replace(RESENDS, upstream_key=key))
    assert isinstance(held, core.Held)
    assert held.why
    call, _ = calls.claim("p1", bytes(16))
    assert isinstance(out(call), core.Held)


def test_where_a_key_goes_is_told_with_what_makes_it_count() -> None:
    """It is in the record: told the same way by every version."""
    assert core.place_of(KEY) == "header idempotency-key"
    beside = UpstreamKey(body="meta.key", beside=(("mode", "once"), ("n", 2)))
    assert core.place_of(beside) == 'body meta.key with mode="once" with n=2'
    assert core.place_of(UpstreamKey(body="key")) == "body key"


@pytest.mark.parametrize(("retention", "usable"), [(86400.0, 82080.0), (3600.0, 3420.0), (1800.0, 1710.0),
                                                  (600.0, 510.0), (180.0, 90.0), (100.0, 50.0)])  # fmt: skip
def test_a_key_counts_for_a_twentieth_less_than_the_upstream_says(retention: float, usable: float) -> None:
    """At least ninety seconds less, and never less than half of it."""
    assert core.usable_for(retention) == usable


def test_a_key_past_its_time_is_not_sent_again() -> None:
    """By this clock, or by the latest that any process has had."""
    assert out(doubted(), after=3420) == core.Resend()
    assert isinstance(out(doubted(), after=3421), core.Held)
    assert out(doubted(), after=3420, mark=3420) == core.Resend()
    assert isinstance(out(doubted(), after=3420, mark=3421), core.Held)


def test_a_clock_that_was_set_back_says_nothing_about_age() -> None:
    """A little apart is no matter."""
    assert out(doubted(), mark=core.SKEW) == core.Resend()
    assert isinstance(out(doubted(), mark=core.SKEW + 1), core.Held)
    assert out(doubted(keyed_at=NOW + core.SKEW)) == core.Resend()
    assert isinstance(out(doubted(keyed_at=NOW + core.SKEW + 1)), core.Held)


def found(status: int = 200, answer: Any = None, **more: Any) -> core.Finding:
    given: dict[str, Any] = {"is_repeat": False, "counts_from": NOW, "now": NOW} | more
    probe = given.pop("probe", PROBE)
    return core.finding(probe, status, {"found": True, "thing": 7} if answer is None else answer, **given)


def test_a_true_is_a_finding() -> None:
    """With what the rule takes from it, or the whole."""
    assert found() == found(299) == core.Found(7)
    assert found(probe=replace(PROBE, result=None)) == core.Found(None)


@pytest.mark.parametrize("status", [199, 300, 403, 405, 500])
def test_another_status_says_nothing(status: int) -> None:
    """Nor does a true about what is not there, or what is no JSON, or neither true nor false."""
    assert isinstance(found(status), core.Unclear)
    assert isinstance(found(404), core.Unclear)
    assert isinstance(found(answer=core.Unread()), core.Unclear)
    for said in ({"found": None}, {"found": 0}, {"found": "false"}, {"found": 1}):
        assert isinstance(found(answer=said), core.Unclear)


def test_a_false_counts_when_what_was_on_its_way_has_had_its_time() -> None:
    """Also about a 404."""
    for status in (200, 404):
        assert found(status, {"found": False}) == core.Absent()
        assert isinstance(found(status, {"found": False}, counts_from=NOW + 1), core.Unclear)
    assert core.absence_counts_from(NOW, 600.0, PROBE) == NOW + 605
    early = found(answer={"found": False}, counts_from=NOW + 42)
    assert isinstance(early, core.Unclear)
    assert " in 42 s" in early.why  # when to call again


def test_of_several_identical_calls_a_probe_must_tell_which() -> None:
    """By the key, or by the time."""
    assert isinstance(found(is_repeat=True), core.Unclear)
    for target in ("/x?key={upstream_key}", "/x?since={sent_at}"):
        assert found(is_repeat=True, probe=replace(PROBE, target=target)) == core.Found(7)
