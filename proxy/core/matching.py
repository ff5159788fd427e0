"""Which rule a request meets: the first whose method, path, headers and arguments fit, else the table.

A rule that looks at headers or arguments may find what it cannot read: a body with two meanings, a header
twice. Then it cannot be said whether it fits. Such a rule is passed over, since it may say that repeating
does no harm; unless it denies, or asks a person: what cannot be read is no way around those. What such a rule
would have kept out of the record is kept out all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from proxy.core.canonical import Body
from proxy.core.clauses import OnDoubt, Redact
from proxy.core.document import Document, document_of, verdict_on
from proxy.core.headers import Headers
from proxy.core.patterns import is_like, split_path
from proxy.core.policy import (
    DEFAULT_NAME,
    SAFE_METHODS,
    Implied,
    KeyRecipe,
    Looks,
    Mode,
    OutcomeRule,
    Repeat,
    Rule,
    Upstream,
)


class Match(NamedTuple):
    rule: Rule
    names: dict[str, str]


class Seen:
    """What of a request a rule may look at beyond method and path. The body is read when it is first asked
    for: mostly nobody does."""

    def __init__(self, headers: Headers, query: bytes, read: Callable[[], Body]) -> None:
        self.headers = headers
        self.query = query
        self._read = read
        self._body: Body | None = None

    @property
    def body(self) -> Body:
        if self._body is None:  # by hand: every call with a body comes by
            self._body = self._read()
        return self._body

    @cached_property
    def fields(self) -> Document:
        """The arguments but for the path, read once, for however many rules. Of JSON that is no object no
        name says what is meant."""
        document = document_of(path={}, query=self.query, body=self.body)
        return document._replace(whole=document.whole and isinstance(document.value["body"], dict | None))

    def values(self, name: str) -> list[str]:
        wanted = name.encode()
        return [value.decode("latin-1") for key, value in self.headers if key.lower() == wanted]


NOTHING_SEEN = Seen((), b"", Body)


def names_in(rule: Rule, method: str, segments: tuple[str, ...], seen: Seen) -> dict[str, str] | None:
    """The named segments of the path, or None where the rule is not surely for the request."""
    names = names_at(rule, method, segments)
    if names is None or rule.looks is None:
        return names
    return names if _fits(rule.looks, names, seen) else None


def names_at(rule: Rule, method: str, segments: tuple[str, ...]) -> dict[str, str] | None:
    """By method and path alone."""
    if rule.methods and method not in rule.methods:
        return None
    return {} if rule.path is None else rule.path.match(segments)


@lru_cache(maxsize=256)
def _as_guard(rule: Rule) -> Rule | None:
    """What counts of a rule of which it cannot be said whether it is for the request: that it denies, or that
    a person is asked, whatever it would have them asked by. Nothing of it that loosens."""
    if rule.shadow:
        return None
    if rule.mode is Mode.DENY:
        return rule
    if rule.approval is None:
        return None
    counted = KeyRecipe(headers=rule.key.headers, implied=Implied(headers=rule.key.implied.headers))
    return replace(
        rule,
        safe=False,
        repeat=Repeat.ORDINAL,
        key=counted,
        in_doubt=OnDoubt.HOLD,
        upstream_key=None,
        probe=None,
        outcome=OutcomeRule(),
        approval=replace(rule.approval, when=None),
    )


def hidden_in_case(upstream: Upstream, method: str, raw_path: str, seen: Seen) -> Redact:
    """What rules redact of which it cannot be said whether they are for the request."""
    args: list[str] = []
    headers: list[str] = []
    segments = split_path(raw_path)
    for rule in upstream.rules:
        if rule.looks is None or rule.redact == Redact():
            continue
        names = names_at(rule, method, segments)
        if names is not None and _fits(rule.looks, names, seen) is None:
            args += rule.redact.args
            headers += rule.redact.headers
    return Redact(args=tuple(dict.fromkeys(args)), headers=tuple(dict.fromkeys(headers)))


def _fits(looks: Looks, names: dict[str, str], seen: Seen) -> bool | None:
    """None: that cannot be said."""
    told = [_has_header(seen.values(name), patterns) for name, patterns in looks.headers]
    if looks.when is not None and False not in told:
        told.append(_holds(looks.when, names, seen))
    if False in told:
        return False
    return None if None in told else True


def _has_header(values: list[str], patterns: tuple[str, ...]) -> bool | None:
    fitting = [any(is_like(value, pattern) for pattern in patterns) for value in values]
    if fitting and all(fitting):
        return True
    # Several lines of one header, and one line with commas, are the same to many readers.
    pieces = [piece.strip(" \t") for value in values for piece in value.split(",")]
    return None if any(is_like(piece, pattern) for piece in pieces for pattern in patterns) else False


def _holds(when: str, names: dict[str, str], seen: Seen) -> bool | None:
    fields = seen.fields
    return verdict_on(when, fields._replace(value={**fields.value, "path": names}))


def find_rule(upstream: Upstream, method: str, raw_path: str, seen: Seen = NOTHING_SEEN) -> Match | None:
    """The first rule that matches."""
    segments = split_path(raw_path)
    for rule in upstream.rules:
        names = names_at(rule, method, segments)
        if names is None:
            continue
        fits = True if rule.looks is None else _fits(rule.looks, names, seen)
        chosen = rule if fits else _as_guard(rule) if fits is None else None
        if chosen is not None:
            return Match(chosen, names)
    return None


def find_shadow(upstream: Upstream, method: str, raw_path: str, seen: Seen) -> Match | None:
    """The rule of a call that is only looked on at. As the policies are now, in a run too: what a run keeps
    is how its calls are named."""
    match = find_rule(upstream, method, raw_path, seen) if upstream.shadows else None
    return match if match is not None and match.rule.shadow else None


# What happens without a matching rule. "default" is their metrics label; a policy may not use that name.
DEFAULT_PASS = Rule(name=DEFAULT_NAME, mode=Mode.PASS)
DEFAULT_READ = Rule(name=DEFAULT_NAME, mode=Mode.ONCE, safe=True)
DEFAULT_EFFECT = Rule(name=DEFAULT_NAME, mode=Mode.ONCE, safe=False)


def default_rule(method: str, *, has_grant_type: bool, accounts: tuple[str, ...] = ()) -> Match:
    """What happens without a matching rule. An OAuth token request is never recorded. `accounts`: the headers
    that choose whose call it is."""
    if method in SAFE_METHODS:
        return Match(_of(DEFAULT_READ, accounts), {})
    return Match(DEFAULT_PASS if has_grant_type else _of(DEFAULT_EFFECT, accounts), {})


@lru_cache(maxsize=256)
def _of(rule: Rule, accounts: tuple[str, ...]) -> Rule:
    return replace(rule, key=KeyRecipe(implied=Implied(headers=accounts))) if accounts else rule
