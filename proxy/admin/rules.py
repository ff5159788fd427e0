"""What the desk asks of the policies: how long a decision is kept, which segments of a path have names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from proxy.core.matching import DEFAULT_EFFECT
from proxy.core.patterns import split_path
from proxy.core.policy import DEFAULT_NAME, PolicySet

# A call that no rule matched: a decision about it stands as long as its answer would have.
DEFAULT_TTL = DEFAULT_EFFECT.ttl

# The time to live of a rule, by upstream and name. None where there is no such rule (any more): then what is
# decided stands until it is forgotten, since anything shorter could be less than the rule has promised.
Lifetimes: TypeAlias = Callable[[str, str], float | None]


def lifetimes_in(policies: Callable[[], PolicySet]) -> Lifetimes:
    def ttl_of(upstream: str, rule: str) -> float | None:
        if rule == DEFAULT_NAME:
            return DEFAULT_TTL
        known = policies().upstreams.get(upstream)
        return next((one.ttl for one in (known.rules if known else ()) if one.name == rule), None)

    return ttl_of


# What a rule does about doubt: hold, resend, probe. None where there is no such rule (any more).
Ways: TypeAlias = Callable[[str, str], str | None]


def ways_in(policies: Callable[[], PolicySet]) -> Ways:
    def way_of(upstream: str, rule: str) -> str | None:
        if rule == DEFAULT_NAME:
            return DEFAULT_EFFECT.in_doubt.value
        known = policies().upstreams.get(upstream)
        return next((one.in_doubt.value for one in (known.rules if known else ()) if one.name == rule), None)

    return way_of


def no_ways(upstream: str, rule: str) -> str | None:
    """Without policies nobody knows."""
    return None


# The named segments of a path that was sent, by upstream, rule and path, as the policies of today name them.
Segments: TypeAlias = Callable[[str, str, str], Mapping[str, str]]


def segments_in(policies: Callable[[], PolicySet]) -> Segments:
    """By the rule of that name; where there is none (any more), by every rule that fits: they serve to hide
    secrets, and rather too much is hidden than too little."""

    def names_in(upstream: str, rule: str, path: str) -> Mapping[str, str]:
        known = policies().upstreams.get(upstream)
        if known is None:
            return {}
        segments = split_path(path.removeprefix(known.base_path))
        rules = [one for one in known.rules if one.name == rule] or known.rules
        patterns = [one.path for one in rules if one.path is not None]
        return {name: text for one in patterns for name, text in (one.match(segments) or {}).items()}

    return names_in


def no_segments(upstream: str, rule: str, path: str) -> Mapping[str, str]:
    """Without policies only the record's arguments name segments."""
    return {}
