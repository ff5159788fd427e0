"""What an upstream's answer means for the call: final, released, or in doubt.

The rule's own words come first, then the table. What a rule's expressions find in the body counts before the
status, and doubt before everything.
"""

from __future__ import annotations

import json
from enum import StrEnum
from functools import lru_cache
from typing import Any

import jmespath

from proxy.core.clauses import UpstreamKey
from proxy.core.policy import OutcomeRule


class Verdict(StrEnum):
    FINAL = "final"
    NOT_EXECUTED = "not_executed"  # released, the answer handed on
    INCONCLUSIVE = "inconclusive"  # a safe call: released, the answer handed on
    IN_DOUBT = "in_doubt"  # held; the caller gets semel's own word


# Refusals by which an upstream says that it did not begin.
NOT_BEGUN = frozenset({401, 402, 403, 407, 425, 429})
REQUEST_TIMEOUT = 408


# "The same key is being worked on": said by upstreams that know keys.
CONFLICT = 409


def judge_status(status: int, *, safe: bool, rule: OutcomeRule, key: UpstreamKey | None = None) -> Verdict:
    """`key`: the rule's, if the call was sent under one."""
    if key is not None and status in key.mismatch:
        return Verdict.IN_DOUBT
    if status in rule.final:
        return Verdict.FINAL
    if safe:
        complete = 200 <= status < 300 and status not in rule.not_executed and status not in rule.in_doubt
        return Verdict.FINAL if complete else Verdict.INCONCLUSIVE
    if status in rule.not_executed:
        return Verdict.NOT_EXECUTED
    # Doubt is the default: what is no 2xx, 3xx or 4xx says nothing about the call.
    if status in rule.in_doubt or status == REQUEST_TIMEOUT or not 200 <= status < 500:
        return Verdict.IN_DOUBT
    if status == CONFLICT and key is not None:
        return Verdict.IN_DOUBT
    return Verdict.NOT_EXECUTED if status in NOT_BEGUN else Verdict.FINAL


def judge_answer(
    status: int, body: bytes | None, *, safe: bool, rule: OutcomeRule, key: UpstreamKey | None = None
) -> Verdict:
    """The verdict on a complete answer. `body` is decoded, None where it could not be."""
    by_status = judge_status(status, safe=safe, rule=rule, key=key)
    answer = _read(body)
    if _is_mismatch(status, answer, key):
        return Verdict.IN_DOUBT
    told = by_expression(answer, rule)
    if told is None:
        return by_status
    return Verdict.INCONCLUSIVE if safe else told


def by_expression(answer: Any, rule: OutcomeRule) -> Verdict | None:  # noqa: ANN401 (JSON)
    """What the rule's own expressions say of an answer; None: nothing."""
    if _holds(rule.in_doubt_if, answer):
        return Verdict.IN_DOUBT
    return Verdict.NOT_EXECUTED if _holds(rule.not_executed_if, answer) else None


def is_mismatch(status: int, body: bytes | None, key: UpstreamKey | None) -> bool:
    """Whether the upstream says that it knows the call's key for another request."""
    if key is None or key.mismatch_if is None:
        return key is not None and status in key.mismatch
    return _is_mismatch(status, _read(body), key)


def _is_mismatch(status: int, answer: Any, key: UpstreamKey | None) -> bool:  # noqa: ANN401 (JSON)
    return key is not None and (status in key.mismatch or _holds(key.mismatch_if, answer))


def reads_answers(rule: OutcomeRule, key: UpstreamKey | None = None) -> bool:
    """Whether what an answer means may stand in its body."""
    by_key = key is not None and key.mismatch_if is not None
    return by_key or rule.in_doubt_if is not None or rule.not_executed_if is not None


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Any:  # noqa: ANN401 (jmespath has no types)
    return jmespath.compile(expression)


class _Unread:
    """No answer, or none that is JSON."""


def _read(body: bytes | None) -> Any:  # noqa: ANN401 (JSON)
    """Once, for however many expressions."""
    try:
        return _Unread() if body is None else json.loads(body)
    except (ValueError, RecursionError):
        return _Unread()


def _holds(expression: str | None, answer: Any) -> bool:  # noqa: ANN401 (JSON)
    """Only an honest `true` counts: an expression that fails, or yields something else, proves nothing."""
    if expression is None or isinstance(answer, _Unread):
        return False
    try:
        return compiled(expression).search(answer) is True
    except (ValueError, TypeError, ArithmeticError, RecursionError, jmespath.exceptions.JMESPathError):
        return False
