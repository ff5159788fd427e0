"""A call of a run under the policies of now: the run keeps how its calls are named, and nothing that guards.

What is denied, whom a call must be permitted by, what it may use up and what is hidden of it is as the
policies are now, whatever the rules were called when the run began.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.core.clauses import Redact
from proxy.core.matching import Match, Seen, find_rule, hidden_in_case
from proxy.core.policy import Mode, Upstream
from proxy.errors import Denied


def as_asked_now(
    match: Match, present: Upstream, method: str, raw_path: str, seen: Seen
) -> tuple[Match, Match]:
    """As it is named, and as people are asked."""
    now = find_rule(present, method, raw_path, seen)
    if present.hides_by_looks:
        match = also_hiding(match, hidden_in_case(present, method, raw_path, seen))
    if now is not None and now.rule.mode is Mode.DENY:
        return now, now
    match = _with_redaction_of(_with_budget_of(match, now), now)
    asks = now if now is not None and now.rule.approval is not None else match
    if asks.rule.approval is None or match.rule.mode is Mode.DENY:
        return match, match
    if match.rule.mode is not Mode.ONCE:
        raise Denied(
            "A person has to permit this call by now, and this run was begun when such calls were not "
            "recorded, or were shared: make it in a new run."
        )
    return match._replace(rule=replace(match.rule, approval=asks.rule.approval)), asks


def _with_redaction_of(match: Match, now: Match | None) -> Match:
    """The record does not keep what the rule of now hides, also where that has another name, or is new."""
    return match if now is None else also_hiding(match, now.rule.redact)


def also_hiding(match: Match, new: Redact) -> Match:
    rule = match.rule
    if new in (Redact(), rule.redacts_now):
        return match
    known = rule.redacts_now
    args, headers = dict.fromkeys((*known.args, *new.args)), dict.fromkeys((*known.headers, *new.headers))
    return match._replace(rule=replace(rule, redacts_now=Redact(args=tuple(args), headers=tuple(headers))))


def _with_budget_of(match: Match, now: Match | None) -> Match:
    """What may be used up is as the policies are now, too."""
    rule = match.rule
    if now is None or now.rule.budget is None or rule.mode is Mode.DENY:
        return match if rule.budget is None else match._replace(rule=replace(rule, budget=None))
    if rule.mode is Mode.PASS:
        raise Denied(
            "A budget limits this call by now, and this run was begun when such calls were not recorded: "
            "make it in a new run."
        )
    return match._replace(
        rule=replace(rule, budget=now.rule.budget, cost=now.rule.cost, charged_to=now.rule.name)
    )
