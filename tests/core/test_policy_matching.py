"""Which rule a request meets: literal slashes split, segments compare decoded, the first match wins."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.matching import default_rule, find_rule
from proxy.core.patterns import PathPattern, split_path
from proxy.core.policy import Mode, OnDisconnect, Rule, Upstream
from tests.counts import count


def match(pattern: str, path: str) -> dict[str, str] | None:
    return PathPattern.parse(pattern).match(split_path(path))


@pytest.mark.parametrize(
    ("pattern", "path", "names"),
    [
        ("/v1/messages", "/v1/messages", {}),
        ("/v1/messages", "/v1/%6Dessages", {}),
        ("/v1/%6dessages", "/v1/messages", {}),
        ("/caf%C3%A9", "/caf%c3%a9", {}),
        ("/a b", "/a%20b", {}),
        ("/users/{id}", "/users/7", {"id": "7"}),
        ("/users/{id}", "/users/a%2Fb", {"id": "a/b"}),
        ("/users/{id}", "/users/", {"id": ""}),
        ("/{a}/x/{b}", "/1/x/2", {"a": "1", "b": "2"}),
        ("/users/*", "/users/7", {}),
        ("/files/**", "/files/a", {}),
        ("/files/**", "/files/a/b/c/", {}),
        ("/files/**", "/files/", {}),
        ("/**", "/", {}),
        ("/**", "/a/b", {}),
        ("/", "/", {}),
        ("/a%2Fb", "/a%2fb", {}),
        ("/a/", "/a/", {}),
        ("/a//b", "/a//b", {}),
        ("/{id}/**", "/7/x/y", {"id": "7"}),
        ("/a+b", "/a+b", {}),
        ("/X/{id}", "/X/7", {"id": "7"}),
    ],
)
def test_what_matches(pattern: str, path: str, names: dict[str, str]) -> None:
    """And what the named segments are, decoded."""
    assert match(pattern, path) == names


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/v1/messages", "/v1/messages/"),
        ("/v1/messages/", "/v1/messages"),
        ("/v1/messages", "/V1/messages"),
        ("/v1/messages", "/v1"),
        ("/a/b", "/a%2Fb"),
        ("/a%2Fb", "/a/b"),
        ("/users/{id}", "/users/a/b"),
        ("/users/{id}", "/users"),
        ("/users/*", "/users/a/b"),
        ("/files/**", "/files"),
        ("/files/**", "/file/a"),
        ("/", "/a"),
        ("/a//b", "/a/b"),
        ("/a+b", "/a b"),
        ("/%252F", "/%2F"),
    ],
)
def test_what_does_not(pattern: str, path: str) -> None:
    """%2F never splits, a trailing slash matters, ** is at least one segment, + is a plus."""
    assert match(pattern, path) is None


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("v1", "starts with /"),
        ("", "starts with /"),
        ("/**/a", "must come last"),
        ("/{}", "not a name"),
        ("/{a-b}", "not a name"),
        ("/{1}", "not a name"),
        ("/{a}/{a}", "twice"),
        ("/a*", "whole segment"),
        ("/a{b}", "whole segment"),
        ("/{ab", "whole segment"),
        ("/ab}", "whole segment"),
        ("/***", "whole segment"),
    ],
)
def test_a_pattern_that_cannot_be_says_why(pattern: str, complaint: str) -> None:
    """In a sentence for people."""
    with pytest.raises(ValueError, match=complaint):
        PathPattern.parse(pattern)


SEGMENT = st.text("ab/%*{} é", max_size=4)


@settings(max_examples=count(300, 10_000), deadline=None)
@given(st.lists(SEGMENT, min_size=1, max_size=4), st.lists(SEGMENT, min_size=1, max_size=4))
def test_a_literal_pattern_matches_exactly_its_own_segments(one: list[str], other: list[str]) -> None:
    """Whatever characters they hold, once escaped; and nothing else."""

    def escaped(segments: list[str]) -> str:
        return "".join("/" + "".join(f"%{byte:02X}" for byte in text.encode()) for text in segments)

    assert match(escaped(one), escaped(one)) == {}
    assert (match(escaped(one), escaped(other)) == {}) is (one == other)


@settings(max_examples=count(200, 5_000), deadline=None)
@given(st.text(max_size=20).map(lambda text: "/" + text))
def test_any_path_can_be_split(path: str) -> None:
    """As many segments as slashes, broken escapes included."""
    assert len(split_path(path)) == path.count("/")


# ---- rules ----


def rule(name: str, path: str | None = None, *methods: str) -> Rule:
    return Rule(name=name, methods=frozenset(methods), path=PathPattern.parse(path) if path else None)


def upstream(*rules: Rule) -> Upstream:
    return Upstream(name="mail", scheme="https", host="mail.example", port=443, rules=rules)


def test_the_first_rule_that_matches_wins() -> None:
    """Order is meaning."""
    mail = upstream(rule("one", "/a/{x}", "POST"), rule("two", "/a/b"), rule("rest"))
    found = find_rule(mail, "POST", "/a/b")
    assert found is not None
    assert (found.rule.name, found.names) == ("one", {"x": "b"})
    for method, path, name in (("GET", "/a/b", "two"), ("GET", "/c", "rest"), ("POST", "/a/b/", "rest")):
        found = find_rule(mail, method, path)
        assert found is not None
        assert (found.rule.name, found.names) == (name, {})
    assert find_rule(upstream(), "GET", "/") is None


def test_what_happens_without_a_rule() -> None:
    """Reads are safe, token requests pass, everything else is done once."""
    for method in ("GET", "HEAD", "OPTIONS"):
        assert default_rule(method, has_grant_type=False).rule.is_safe(method)
    assert default_rule("POST", has_grant_type=True).rule.mode is Mode.PASS
    for method in ("POST", "PUT", "PATCH", "DELETE", "FROBNICATE"):
        found = default_rule(method, has_grant_type=False).rule
        assert (found.mode, found.is_safe(method)) == (Mode.ONCE, False)


def test_safe_by_method_unless_the_rule_says_otherwise() -> None:
    """And a cache rule always is."""
    assert Rule(name="r").is_safe("GET")
    assert not Rule(name="r").is_safe("POST")
    assert not Rule(name="r").is_safe("get")  # methods are case-sensitive: this is not GET
    assert not Rule(name="r", safe=False).is_safe("GET")
    assert Rule(name="r", safe=True).is_safe("POST")
    assert Rule(name="r", mode=Mode.CACHE).is_safe("POST")


def test_impossible_rules_are_refused() -> None:
    """A cache rule with effects, a call with effects that is cancelled."""
    with pytest.raises(ValueError):
        Rule(name="r", mode=Mode.CACHE, safe=False)
    with pytest.raises(ValueError):
        Rule(name="r", safe=False, on_disconnect=OnDisconnect.CANCEL)


def test_the_authority_has_a_port_only_where_it_must() -> None:
    """And an IPv6 address its brackets."""
    for scheme, host, port, authority in (
        ("https", "a.example", 443, "a.example"),
        ("http", "a.example", 80, "a.example"),
        ("http", "a.example", 443, "a.example:443"),
        ("https", "::1", 443, "[::1]"),
        ("https", "::1", 8443, "[::1]:8443"),
    ):
        assert Upstream(name="u", scheme=scheme, host=host, port=port).authority == authority.encode()
