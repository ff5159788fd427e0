"""A policy as values: what is meant where nothing is said, whose host it is, which rules only look on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.core.canonical import Body
from proxy.core.clauses import Approval, Budget, Inject, OnDoubt, OnStale, Rate, Redact, Wire
from proxy.core.matching import Seen, default_rule, find_shadow, names_in
from proxy.core.patterns import PathPattern
from proxy.core.policy import (
    ClientKey,
    Credential,
    Implied,
    KeyRecipe,
    Looks,
    Mode,
    OnDisconnect,
    OutcomeRule,
    PolicySet,
    Repeat,
    Rule,
    Scope,
    Timeouts,
    Upstream,
    local_tools,
)
from proxy.core.reachable import Said

NOTHING = Seen((), b"", Body)


def upstream(name: str = "u", host: str = "api.example", **more: Any) -> Upstream:
    return Upstream(name=name, scheme="https", host=host, port=443, **more)


def test_what_a_rule_means_where_it_says_nothing() -> None:
    """As docs/policies.md has it."""
    rule = Rule(name="r")
    assert (rule.methods, rule.path, rule.looks, rule.tool, rule.safe) == (frozenset(), None, None, "", None)
    assert (rule.mode, rule.scope, rule.repeat, rule.ttl, rule.wait) == (
        Mode.ONCE, Scope.RUN, Repeat.ORDINAL, 86400.0, 60.0,
    )  # fmt: skip
    assert (rule.on_disconnect, rule.in_doubt, rule.stale) == (
        OnDisconnect.FINISH,
        OnDoubt.HOLD,
        OnStale.SERVE,
    )
    assert (rule.charged_to, rule.shadow, rule.max_age) == ("", False, None)
    key = KeyRecipe()
    assert (key.credential, key.client_key, key.counted) == (Credential.AUTO, ClientKey.AUTO, ())
    assert Implied() == Implied(headers=(), client_header="", client_field="", client_beside=())
    assert Timeouts() == Timeouts(connect=5.0, idle=120.0, total=600.0)


def test_what_an_upstream_means_where_it_says_nothing() -> None:
    """HTTP, public, no rule of any kind, trusting nobody."""
    plain = upstream()
    assert (plain.base_path, plain.replaced, plain.about, plain.verified) == ("", "", "", "")
    assert plain.protocol is Wire.HTTP
    flags = (plain.private, plain.stateful, plain.trust_annotations, plain.guards, plain.shadows, plain.looks,
             plain.hides_by_looks)  # fmt: skip
    assert not any(flags)
    assert (plain.credentials, plain.accounts, plain.hosts, plain.secrets) == ((), (), (), ())


@pytest.mark.parametrize(
    "more",
    [
        {"approval": Approval()},
        {"budget": Budget(calls=Rate(1, 60.0))},
        {"mode": Mode.DENY},
        {"redact": Redact(args=("pin",))},
    ],
    ids=lambda more: next(iter(more)),
)
def test_an_upstream_guards_if_any_of_its_rules_does(more: dict[str, Any]) -> None:
    """One of many is enough; with headers or arguments to look at, what it hides depends on those."""
    plain, guard = Rule(name="p"), Rule(name="g", **more)
    assert upstream(rules=(plain, guard, plain)).guards
    assert not upstream(rules=(plain,)).guards
    looking = replace(guard, looks=Looks(when="x"))
    assert upstream(rules=(plain, looking)).looks
    assert upstream(rules=(plain, looking)).hides_by_looks is ("redact" in more)
    assert not upstream(rules=(plain, guard)).hides_by_looks


def test_headers_that_are_secret_are_listed_once() -> None:
    """The policy's, the injected one, the one that is replaced, and those that are secret by now."""
    injected = Inject(header="X-Key", value_env="K")
    assert upstream(inject=injected).secrets == ("x-key",)
    assert upstream(inject=injected).replaced == "x-key"
    both = upstream(credentials=("x-a",), inject=injected, replaced="x-old", secret_too=("x-a", "x-b"))
    assert both.secrets == ("x-a", "x-key", "x-old", "x-b")
    assert both.replaced == "x-old"


def test_headers_that_count_are_the_rules_and_the_implied_but_never_a_clients_key() -> None:
    """A key that is minted anew must not name the call."""
    implied = Implied(headers=("x-account", "x-key"), client_header="x-key")
    assert KeyRecipe(headers=("x-a", "x-account"), implied=implied).counted == ("x-a", "x-account")


def at(policies: PolicySet, host: str, port: int = 443) -> list[str]:
    return [each.name for each in policies.at(host, port)]


def policies(*upstreams: Upstream) -> PolicySet:
    return PolicySet({each.name: each for each in upstreams})


def test_without_policies_no_host_is_anybodys() -> None:
    """And the agent's own functions go by the table."""
    none = PolicySet()
    assert (at(none, "a.example"), none.upstreams, none.tools.rules) == ([], {}, ())


def test_the_nearest_entry_has_the_host() -> None:
    """Itself, one with a star inside, then stars from the left; ports are told apart."""
    known = policies(
        upstream("exact", hosts=("a.b.example",)),
        upstream("inside", hosts=("a.*.example",)),
        upstream("near", hosts=("*.b.example",)),
        upstream("far", hosts=("*.example",)),
        upstream("other", hosts=("a.b.example:8443",)),
        upstream("six", hosts=("[::1]", "[::2]:9")),
    )
    assert at(known, "a.b.example") == ["exact"]
    assert at(known, "a.b.example", 8443) == ["other"]
    assert at(known, "a.c.example") == ["inside"]
    assert at(policies(*list(known.upstreams.values())[1:]), "a.b.example") == ["inside"]
    assert at(known, "x.b.example") == ["near"]
    assert at(known, "x.y.b.example") == ["near"]
    assert at(known, "x.c.example") == ["far"]
    assert at(known, "x.y.z.example") == ["far"]
    assert at(known, "x.c.example", 80) == []
    assert at(known, "example") == []
    assert (at(known, "::1"), at(known, "::2", 9), at(known, "::2")) == (["six"], ["six"], [])


def test_a_base_url_is_a_host_of_all_that_have_it_unless_somebody_names_it() -> None:
    """Tools have no address."""
    one, two = upstream("one"), upstream("two", base_path="/v2")
    assert at(policies(one, two), "api.example") == ["one", "two"]
    assert at(policies(one, two, upstream("three", "x.example", hosts=("api.example",))), "api.example") == [
        "three"
    ]
    tools = local_tools()
    assert at(policies(one, tools), tools.host, tools.port) == []
    assert policies(one, tools).tools is tools
    assert policies(one).tools == tools
    assert policies(one, tools).reached == [one]


def test_only_whole_names_are_named() -> None:
    """Whoever has a name below a wildcard decides where it leads."""
    known = upstream(hosts=("b.example", "*.c.example"))
    assert known.said_of("b.example", 443) is Said.NAMED
    assert known.said_of("api.example", 443) is Said.NAMED
    assert known.said_of("x.c.example", 443) is Said.NOTHING
    assert known.said_of("b.example", 80) is Said.NOTHING
    assert replace(known, private=True).said_of("b.example", 443) is Said.PRIVATE


def test_a_rule_that_only_looks_on_is_found_as_one() -> None:
    """The first that matches; where that is another, or there is none, nobody looks on."""
    shadow, plain = Rule(name="s", shadow=True, methods=frozenset({"POST"})), Rule(name="p")
    found = find_shadow(upstream(rules=(shadow, plain)), "POST", "/a", NOTHING)
    assert found is not None
    assert found.rule is shadow
    assert find_shadow(upstream(rules=(shadow, plain)), "GET", "/a", NOTHING) is None
    assert find_shadow(upstream(rules=(plain, shadow)), "POST", "/a", NOTHING) is None
    assert find_shadow(upstream(rules=(shadow,)), "GET", "/a", NOTHING) is None
    assert find_shadow(upstream(), "POST", "/a", NOTHING) is None


def test_names_of_a_path_are_told_where_the_rule_is_surely_meant() -> None:
    """By method, path, and what else it looks at."""
    rule = Rule(name="r", methods=frozenset({"POST"}), path=PathPattern.parse("/a/{id}"))
    assert names_in(rule, "POST", ("a", "7"), NOTHING) == {"id": "7"}
    assert names_in(rule, "GET", ("a", "7"), NOTHING) is None
    assert names_in(rule, "POST", ("b", "7"), NOTHING) is None
    looking = replace(rule, looks=Looks(headers=(("x-kind", ("big",)),)))
    for value, names in ((b"big", {"id": "7"}), (b"small", None), (b"big, small", None)):
        seen = Seen(((b"X-Kind", value),), b"", Body)
        assert names_in(looking, "POST", ("a", "7"), seen) == names


def test_a_pattern_is_read_as_it_was_made() -> None:
    """A path begins with a slash, which no tool's name does."""
    assert PathPattern.read("/a/{id}").match(("a", "7")) == {"id": "7"}
    assert PathPattern.read("pay_*").match(("pay_now",)) == {}
    assert PathPattern.of_tools("pay_*").match(("refund",)) is None
    assert PathPattern.of_tools("*").match(("a", "b")) is None


def test_without_a_rule_an_effect_is_kept_a_read_is_safe_and_a_token_request_passes() -> None:
    """Under one name, which no policy may have."""
    reading = default_rule("GET", has_grant_type=True)
    effect, token = (default_rule("POST", has_grant_type=each).rule for each in (False, True))
    assert (reading.rule.mode, reading.rule.safe, reading.names) == (Mode.ONCE, True, {})
    assert (effect.mode, effect.safe, token.mode) == (Mode.ONCE, False, Mode.PASS)
    assert {reading.rule.name, effect.name, token.name} == {"default"}
    assert effect.outcome == OutcomeRule()
