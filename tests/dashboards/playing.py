"""Somebody who asks a proxy, and counts what must have come of it: by the script and by the answers' own headers,
never by /metrics, which is what the figures are compared with."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.dashboards.world import AGENT, HEADLINE, OPERATOR, Rule
from tests.inside import Answer, call, raw_call, request_bytes

LOST = 0  # the upstream breaks off
Labels: TypeAlias = tuple[str, ...]


def counted() -> Any:
    return field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Done:
    """What one proxy must tell, by the values of the labels in the order of the contract."""

    calls: Counter[Labels] = counted()  # upstream, rule, mode, status
    prevented: Counter[Labels] = counted()  # upstream, rule
    responses: Counter[Labels] = counted()  # upstream, rule, code
    problems: Counter[Labels] = counted()  # type
    saved: Counter[Labels] = counted()  # upstream, rule; dollars
    spent: Counter[Labels] = counted()
    divergences: Counter[Labels] = counted()
    polls: Counter[Labels] = counted()  # upstream, rule
    drifts: Counter[Labels] = counted()
    collected: Counter[Labels] = counted()  # what
    collected_bytes: Counter[Labels] = counted()
    notifications: Counter[Labels] = counted()  # type, result
    reloads: Counter[Labels] = counted()  # result
    recovered: Counter[Labels] = counted()  # state
    shadow_calls: Counter[Labels] = counted()  # upstream, rule, would
    shadow_prevented: Counter[Labels] = counted()
    shadow_saved: Counter[Labels] = counted()
    # Of the store, and so the same from every proxy on it.
    states: Counter[str] = counted()


class Player:
    """Asks one proxy, and counts. Each answer must be of the kind that the script says."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.done = Done()

    async def ask(
        self,
        rule: Rule,
        n: int = 0,
        *,
        status: str = "executed",
        upstream_says: int = 200,
        problem: str = "",
        run: str = "",
        **headers: str,
    ) -> Answer:
        """`n` tells one request from another; `upstream_says` 0: it breaks off."""
        request = self.request(rule, n, upstream_says=upstream_says, run=run, **headers)
        got = await raw_call(self.port, request)
        self.count(rule, got, status=status, upstream_says=upstream_says, problem=problem)
        return got

    def request(
        self,
        rule: Rule,
        n: int,
        *,
        upstream_says: int = 200,
        run: str = "",
        slow: bool = False,
        **headers: str,
    ) -> bytes:
        given = {"Semel-Token": AGENT, **{name.replace("_", "-"): value for name, value in headers.items()}}
        target = f"{f'/@{run}' if run else ''}/{rule.upstream}{rule.target}"
        if rule.safe:
            said = f"?status={upstream_says}&n={n}&slow={int(slow)}"
            return request_bytes(rule.method, target + (said if rule is not HEADLINE else ""), given)
        body = json.dumps({"status": upstream_says, "n": n, "slow": slow}).encode()
        return request_bytes(rule.method, target, {**given, "Content-Type": "application/json"}, body)

    def count(
        self, rule: Rule, got: Answer, *, status: str, upstream_says: int = 200, problem: str = ""
    ) -> None:
        told = json.loads(got.body)["type"].removeprefix("urn:semel:") if got.semel == "refused" else ""
        assert (got.semel, told) == (status, problem), (rule.name, got)
        place = (rule.upstream, rule.name)
        done = self.done
        done.calls[*place, rule.mode, status] += 1
        if problem:
            done.problems[problem,] += 1
        if status in ("executed", "passed") or problem in ("in-doubt", "upstream-unreachable"):
            done.responses[*place, _code(upstream_says, problem)] += 1
        if status in ("replayed", "joined") and not rule.safe:
            done.prevented[place] += 1
        if status in ("replayed", "joined") and rule.usd:
            done.saved[place] += rule.usd  # type: ignore[assignment]
        if status == "executed" and upstream_says == 200 and rule.usd:
            done.spent[place] += rule.usd  # type: ignore[assignment]

    async def refused_at_the_door(self, problem: str, target: str, **headers: str) -> None:
        """Before it is known for which upstream: without labels."""
        got = await call(self.port, "GET", target, {n.replace("_", "-"): v for n, v in headers.items()})
        assert (got.semel, json.loads(got.body)["type"]) == ("refused", f"urn:semel:{problem}")
        self.done.calls["", "", "", "refused"] += 1
        self.done.problems[problem,] += 1

    async def decide(self, call_id: str, how: str) -> None:
        host = f"127.0.0.1:{self.port}"
        headers = {"Semel-Token": OPERATOR, "Content-Type": "application/json"}
        request = request_bytes(
            "POST", f"/_semel/calls/{call_id}/{how}", headers, b'{"reason": "seen"}', host=host
        )
        assert (await raw_call(self.port, request)).status == 200


def _code(upstream_says: int, problem: str) -> str:
    if problem == "upstream-unreachable":
        return "not_sent"
    return str(upstream_says) if upstream_says != LOST else "lost"
