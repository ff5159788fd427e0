"""Somebody who asks a proxy, and counts what must have come of it: by the script and by the answers' own
headers, never by /metrics, which is what the figures are compared with."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.dashboards.world import AGENT, HEADLINE, OPERATOR, Rule
from tests.inside import Answer, call, raw_call, request_bytes

LOST = 0  # the upstream breaks off
Labels: TypeAlias = frozenset[tuple[str, str]]
Values: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """What must be told, by metric and labels."""

    figures: defaultdict[str, Counter[Labels]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, metric: str, amount: float = 1, /, **labels: str) -> None:
        self.figures[metric][frozenset(labels.items())] += amount  # type: ignore[assignment]

    def by(self, metric: str, *labels: str, **only: str | Collection[str]) -> dict[Values, float]:
        """Sums by the values of these labels, of the series whose others are as said."""
        sums: Counter[Values] = Counter()
        for series, amount in self.figures[metric].items():
            has = dict(series)
            if all(has[name] in ((one,) if isinstance(one, str) else one) for name, one in only.items()):
                sums[tuple(has[name] for name in labels)] += amount
        return dict(sums)

    def total(self, metric: str, **only: str | Collection[str]) -> float:
        return self.by(metric, **only).get((), 0.0)

    def with_more(self, other: Done, times: float = 1) -> Done:
        """Together with what another proxy tells, so many times over."""
        both = Done()
        for one, factor in ((self, 1.0), (other, times)):
            for metric, series in one.figures.items():
                for labels, amount in series.items():
                    both.add(metric, amount * factor, **dict(labels))
        return both


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
        key: str = "",
    ) -> Answer:
        """`n` tells one request from another; `upstream_says` 0: it breaks off."""
        request = self.request(rule, n, upstream_says=upstream_says, run=run, key=key)
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
        key: str = "",
    ) -> bytes:
        given = {"Semel-Token": AGENT} | ({"Idempotency-Key": key} if key else {})
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
        place = {"upstream": rule.upstream, "rule": rule.name}
        add = self.done.add
        add("semel_calls_total", **place, mode=rule.mode, status=status)
        if problem:
            add("semel_problems_total", type=problem)
        if status in ("executed", "passed") or problem in ("in-doubt", "upstream-unreachable"):
            add("semel_upstream_responses_total", **place, code=_code(upstream_says, problem))
        if status in ("replayed", "joined") and not rule.safe:
            add("semel_duplicates_prevented_total", **place)
        if status in ("replayed", "joined") and rule.usd:
            add("semel_saved_usd_total", rule.usd, **place)
        if status == "executed" and upstream_says == 200 and rule.usd:
            add("semel_spent_usd_total", rule.usd, **place)

    async def refused_at_the_door(self, problem: str, target: str, token: str = AGENT) -> None:
        """Before it is known for which upstream: without labels."""
        got = await call(self.port, "GET", target, {"Semel-Token": token})
        assert (got.semel, json.loads(got.body)["type"]) == ("refused", f"urn:semel:{problem}")
        self.done.add("semel_calls_total", upstream="", rule="", mode="", status="refused")
        self.done.add("semel_problems_total", type=problem)

    def stand(self, **states: int) -> None:
        """So many more calls in these states."""
        for state, number in states.items():
            self.done.add("semel_calls_in_state", number, state=state)

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
