"""A stranger's word may make a rule stricter; looser only where the policy trusts the stranger."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.clauses import Approval
from proxy.core.hints import MOST_TOOLS, Hints, as_hinted, hints_in
from proxy.core.matching import default_rule
from proxy.core.policy import TOOL_METHOD, Mode, OnDisconnect, Rule
from tests.counts import count

SAID = (None, True, False)
ALL = [Hints(*said) for said in product(SAID, repeat=3)]
RULES = [
    Rule(name="r", mode=mode, safe=safe, on_disconnect=leaves)
    for mode, safe, leaves in product(Mode, SAID, OnDisconnect)
    if not (safe is False and (mode is Mode.CACHE or leaves is OnDisconnect.CANCEL))
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.mode}-{rule.safe}-{rule.on_disconnect}")
def test_without_trust_no_hint_makes_a_rule_looser(rule: Rule) -> None:
    """Whatever the server says."""
    for hints in ALL:
        now = as_hinted(rule, hints, trusted=False)
        assert now.is_safe(TOOL_METHOD) <= rule.is_safe(TOOL_METHOD)
        assert now == rule or hints.harmful


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.mode}-{rule.safe}-{rule.on_disconnect}")
def test_with_trust_only_what_the_rule_leaves_open_is_looser(rule: Rule) -> None:
    """And only by a word that repeating does no harm; `safe: false` stands."""
    for hints in ALL:
        now = as_hinted(rule, hints, trusted=True)
        if now.is_safe(TOOL_METHOD) > rule.is_safe(TOOL_METHOD):
            assert rule.safe is None
            assert rule.mode is Mode.ONCE
            assert hints.read_only or hints.idempotent
        if rule.safe is None and rule.mode is Mode.ONCE:
            assert now.is_safe(TOOL_METHOD) == (hints.read_only is True or hints.idempotent is True)


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.is_safe(TOOL_METHOD)], ids=str)
def test_what_a_server_calls_harmful_is_not_safe(rule: Rule, trusted: bool) -> None:
    """Neither cached, nor cancelled, nor sent again; it is recorded as a call with effects."""
    for hints in (Hints(destructive=True), Hints(read_only=False), Hints(False, True, False)):
        now = as_hinted(rule, hints, trusted=trusted)
        assert not now.is_safe(TOOL_METHOD)
        assert now.on_disconnect is OnDisconnect.FINISH
        assert now.mode is (Mode.ONCE if rule.mode is Mode.CACHE else rule.mode)


def test_silence_changes_nothing() -> None:
    """Most servers say nothing."""
    for rule, trusted in product(RULES, (True, False)):
        assert as_hinted(rule, Hints(), trusted=trusted) is rule


@pytest.mark.parametrize("trusted", [True, False])
def test_what_is_not_safe_cannot_become_less_so(trusted: bool) -> None:
    """A word of harm leaves such a rule as it is."""
    for rule in RULES:
        if not rule.is_safe(TOOL_METHOD):
            assert as_hinted(rule, Hints(destructive=True), trusted=trusted) is rule


def test_without_a_rule_a_trusted_server_says_what_is_safe() -> None:
    """The table's word is nobody's own: it says "with effects" because nothing is known."""
    effect = default_rule(TOOL_METHOD, has_grant_type=False).rule
    assert as_hinted(effect, Hints(read_only=True), trusted=True).is_safe(TOOL_METHOD)
    assert not as_hinted(effect, Hints(read_only=True), trusted=False).is_safe(TOOL_METHOD)
    assert not as_hinted(effect, Hints(), trusted=True).is_safe(TOOL_METHOD)


def test_the_rest_of_the_rule_stays() -> None:
    """What a person must permit, they must permit still."""
    rule = Rule(name="r", safe=True, approval=Approval(), ttl=5.0)
    now = as_hinted(rule, Hints(destructive=True), trusted=False)
    assert (now.name, now.approval, now.ttl) == ("r", rule.approval, 5.0)


def test_hints_are_read_from_a_list_of_tools() -> None:
    """By name; the last of two counts for whoever remembers them."""
    tools = [
        {"name": "a", "annotations": {"readOnlyHint": True, "title": "A"}},
        {"name": "b", "annotations": {"destructiveHint": False, "idempotentHint": True}},
        {"name": "c"},
        {"name": "d", "annotations": {"readOnlyHint": "true", "destructiveHint": 1, "idempotentHint": None}},
    ]
    assert list(hints_in({"tools": tools})) == [
        ("a", Hints(read_only=True)),
        ("b", Hints(destructive=False, idempotent=True)),
        ("c", Hints()),
        ("d", Hints()),
    ]


@pytest.mark.parametrize(
    "result",
    [
        None,
        1,
        "x",
        [],
        {},
        {"tools": None},
        {"tools": {}},
        {"tools": [1, None, [], {}, {"name": 1}, {"name": []}]},
    ],
    ids=str,
)
def test_what_is_no_list_of_tools_says_nothing(result: Any) -> None:
    """And nothing about it raises."""
    assert list(hints_in(result)) == []
    assert list(hints_in({"tools": [{"name": "a", "annotations": result}]})) == [("a", Hints())]


def test_of_an_endless_list_so_much_is_read() -> None:
    """What is not known has effects."""
    assert len(list(hints_in({"tools": [{"name": str(n)} for n in range(MOST_TOOLS + 9)]}))) == MOST_TOOLS


def _named(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(["name", "annotations", "readOnlyHint", "tools"]), inner)


@settings(max_examples=count(200, 5_000), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=3), lambda inner: st.lists(inner) | _named(inner)
    )
)
def test_any_shape_is_read(value: Any) -> None:
    """Without a stumble."""
    for _, hints in hints_in({"tools": [value, {"name": "a", "annotations": value}]}):
        assert all(said in SAID for said in hints)
