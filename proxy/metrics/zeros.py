"""Which counters are shown before anything has happened: those whose labels the policies name.

To Prometheus a series that first appears as 1 has not grown: the first duplicate of a rule, the first 503 of
a process would be missing from every sum and every alert. What semel is for happens seldom, so that first one
is often the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proxy.core.clauses import OnStale
from proxy.core.matching import DEFAULT_EFFECT, DEFAULT_PASS, DEFAULT_READ
from proxy.core.policy import SAFE_METHODS, Mode, PolicySet, Rule
from proxy.metrics.counting import Labels
from proxy.problem import PROBLEMS

# What may become of a call, by its rule's mode. That a safe call passes because the store is away is seen by
# what else fails then.
MAY_BECOME = {
    Mode.ONCE: ("executed", "replayed", "joined", "refused"),
    Mode.CACHE: ("executed", "replayed", "joined", "refused"),
    Mode.PASS: ("passed", "refused"),
    Mode.DENY: ("refused",),
}
PROBLEM_TYPES: list[Labels] = sorted({(problem.name,) for problem in PROBLEMS.values()})
_WITHOUT_A_RULE = (DEFAULT_EFFECT, DEFAULT_PASS, DEFAULT_READ)


def statuses(policies: PolicySet) -> Iterator[Labels]:
    for upstream, rule in _rules(policies):
        for status in MAY_BECOME[rule.mode]:
            yield upstream, rule.name, rule.mode.value, status


def with_effects(policies: PolicySet) -> Iterator[Labels]:
    return _where(policies, lambda rule: _is_recorded(rule) and not _is_safe(rule))


def that_may_be_lost(policies: PolicySet) -> Iterator[Labels]:
    """What upstreams answer cannot be known in advance, but that they may not."""
    for upstream, rule in with_effects(policies):
        yield upstream, rule, "lost"
        yield upstream, rule, "not_sent"


def that_cost(policies: PolicySet) -> Iterator[Labels]:
    return _where(policies, lambda rule: rule.cost is not None)


def that_may_be_polled(policies: PolicySet) -> Iterator[Labels]:
    return _where(policies, _is_recorded)


def that_may_drift(policies: PolicySet) -> Iterator[Labels]:
    return _where(policies, lambda rule: rule.stale is OnStale.REVALIDATE)


def _where(policies: PolicySet, fits: Callable[[Rule], bool]) -> Iterator[Labels]:
    return ((upstream, rule.name) for upstream, rule in _rules(policies) if fits(rule))


def _rules(policies: PolicySet) -> Iterator[tuple[str, Rule]]:
    """Those that are only looked on at are counted apart, and rarely: they appear when they do."""
    for upstream in policies.upstreams.values():
        for rule in (*upstream.rules, *_WITHOUT_A_RULE):
            if not rule.shadow:
                yield upstream.name, rule


def _is_recorded(rule: Rule) -> bool:
    return rule.mode in (Mode.ONCE, Mode.CACHE)


def _is_safe(rule: Rule) -> bool:
    """Whatever the method; a rule for several may be for both."""
    return all(map(rule.is_safe, rule.methods or {"POST"} - SAFE_METHODS))
