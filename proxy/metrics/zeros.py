"""Which counters are shown before anything has happened: those whose labels the policies name.

To Prometheus a series that first appears as 1 has not grown: the first duplicate of a rule, the first 503 of
a process would be missing from every sum and every alert. What semel is for happens seldom, so that first one
is often the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from proxy.core.clauses import OnStale
from proxy.core.matching import DEFAULT_EFFECT, DEFAULT_PASS, DEFAULT_READ
from proxy.core.policy import SAFE_METHODS, TOOLS_NAME, Mode, PolicySet, Rule, Upstream
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


# Refused before it is known what for.
AT_THE_DOOR: Labels = ("", "", "", "refused")
# What would have become of a call that is only looked on at.
WOULD_BECOME = ("executed", "replayed", "joined", "held", "refused", "unjudged")
# What becomes of a notification.
RESULTS = ("delivered", "failed", "overtaken", "given_up", "dropped")


def statuses(policies: PolicySet) -> Iterator[Labels]:
    yield AT_THE_DOOR
    for name in _upstreams(policies):
        yield name, *AT_THE_DOOR[1:]  # or before the rule is
    for upstream, rule in _rules(policies):
        reads = ("passed",) if rule.mode is Mode.ONCE and _may_be_safe(rule) else ()
        for status in (*MAY_BECOME[rule.mode], *reads):
            yield upstream, rule.name, rule.mode.value, status
    for upstream, rule in _shadowed(policies):
        yield upstream, rule.name, rule.mode.value, "passed"


def would_become(policies: PolicySet) -> Iterator[Labels]:
    for upstream, rule in _shadowed(policies):
        for would in WOULD_BECOME:
            yield upstream, rule.name, would


def would_be_problems(policies: PolicySet) -> Iterator[Labels]:
    return iter(PROBLEM_TYPES if any(True for _ in _shadowed(policies)) else ())


def would_prevent(policies: PolicySet) -> Iterator[Labels]:
    return ((upstream, rule.name) for upstream, rule in _shadowed(policies) if not _is_safe(rule))


def would_save(policies: PolicySet) -> Iterator[Labels]:
    return ((upstream, rule.name) for upstream, rule in _shadowed(policies) if rule.cost is not None)


def notifications(kinds: Iterable[str]) -> Iterator[Labels]:
    return ((str(kind), result) for kind in kinds for result in RESULTS)


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
    """In a run what is too old is fetched anew, also where it would be refused outside."""
    return _where(policies, lambda rule: rule.max_age is not None and rule.stale is not OnStale.SERVE)


def _where(policies: PolicySet, fits: Callable[[Rule], bool]) -> Iterator[Labels]:
    return ((upstream, rule.name) for upstream, rule in _rules(policies) if fits(rule))


def _upstreams(policies: PolicySet) -> dict[str, Upstream]:
    """Tools of the agent's own need no file."""
    return {**policies.upstreams, TOOLS_NAME: policies.tools}


def _rules(policies: PolicySet) -> Iterator[tuple[str, Rule]]:
    """Those that are only looked on at are counted apart."""
    for upstream in _upstreams(policies).values():
        for rule in (*upstream.rules, *_WITHOUT_A_RULE):
            if not rule.shadow:
                yield upstream.name, rule


def _shadowed(policies: PolicySet) -> Iterator[tuple[str, Rule]]:
    for upstream in policies.upstreams.values():
        for rule in upstream.rules:
            if rule.shadow:
                yield upstream.name, rule


def _is_recorded(rule: Rule) -> bool:
    return rule.mode in (Mode.ONCE, Mode.CACHE)


def _may_be_safe(rule: Rule) -> bool:
    """Outside a run a call that is safe is passed on."""
    return any(map(rule.is_safe, rule.methods or SAFE_METHODS))


def _is_safe(rule: Rule) -> bool:
    """Whatever the method; a rule for several may be for both."""
    return all(map(rule.is_safe, rule.methods or {"POST"} - SAFE_METHODS))
