"""Two requests, the policy they are made under, in what they differ, and the YAML that makes them one call.

match/ has those that a rule can make match (`suggests`, the best first), differ/ those that none can
(`remains`). In a policy PORT stands for the upstream's port.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.inside import Answer, call

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    url: str
    headers: tuple[str, ...] = ()
    body: str = ""

    @property
    def typed(self) -> list[str]:
        """As arguments of `semel explain`."""
        headers = [part for header in self.headers for part in ("-H", header)]
        return [self.method, self.url, *headers, *(["-d", self.body] if self.body else [])]

    async def send(self, port: int) -> Answer:
        """As an agent would; a body has the type that `explain` would take it for."""
        headers = {name: value.strip() for name, _, value in (one.partition(":") for one in self.headers)}
        if self.body and "Content-Type" not in headers:
            is_json = self.body[0] in '{["0123456789'
            headers["Content-Type"] = "application/json" if is_json else "application/x-www-form-urlencoded"
        return await call(port, self.method, self.url, headers, self.body.encode())


@dataclass(frozen=True, slots=True)
class ExplainPair:
    name: str
    policy: str
    first: Request
    second: Request
    differs: list[str]
    suggests: list[str]
    remains: list[str]

    def policy_at(self, port: int) -> str:
        return self.policy.replace("PORT", str(port))


def _request(given: dict[str, Any]) -> Request:
    return Request(given["method"], given["url"], tuple(given.get("headers", ())), given.get("body", ""))


def pairs(kind: str) -> list[ExplainPair]:
    found = []
    for path in sorted((HERE / kind).glob("*.yaml")):
        given = yaml.safe_load(path.read_text())
        found.append(
            ExplainPair(
                name=path.stem,
                policy=given["policy"],
                first=_request(given["first"]),
                second=_request(given["second"]),
                differs=given["differs"],
                suggests=given.get("suggests", []),
                remains=given.get("remains", []),
            )
        )
    return found


def applied(policy: str, suggestion: dict[str, Any]) -> str:
    """The policy after somebody has pasted the suggestion where `at` says."""
    lines = policy.rstrip("\n").split("\n")
    if suggestion["whole_rule"]:
        header = [] if any(line.startswith("rules:") for line in lines) else ["rules:"]
        return "\n".join([*lines, *header, *(f"  {line}" for line in suggestion["yaml"].split("\n")), ""])
    index = int(suggestion["at"].rpartition(":")[2]) - 1
    there = lines[index].strip()
    if there.startswith("key:"):
        lines[index] = "    " + suggestion["yaml"]
    else:
        assert there.startswith("- name:"), there
        lines.insert(index + 1, "    " + suggestion["yaml"])
    return "\n".join([*lines, ""])
