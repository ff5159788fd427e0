"""Where the scripted traffic takes place: upstreams that do as they are told, policies with every kind of
rule, settings with tokens, and somebody who receives notifications. All presets are loaded too, and idle."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from proxy.tokens import digest
from tests.http.shadowing import Upstream, upstream
from tests.notifying.scene import SECRET, TAKEN
from tests.origin import READ_ALL, Origin, answer
from tests.process import SemelProcess

AGENT, OPERATOR, METRICS = "semel_agent", "semel_operator", "semel_metrics"
ROLES = {AGENT: "agent", OPERATOR: "operator", METRICS: "metrics"}
WORKERS = 2


class Rule(NamedTuple):
    """As its policy has it, and what of that the figures depend on."""

    upstream: str
    name: str
    target: str
    method: str = "POST"
    mode: str = "once"
    usd: float = 0.0
    shadow: bool = False
    more: str = ""  # further keys, in YAML

    @property
    def safe(self) -> bool:
        return self.method == "GET"

    def text(self) -> str:
        said = [f"name: {self.name}", f"match: {{method: {self.method}, path: {self.target}}}"]
        said += [f"mode: {self.mode}"] if self.mode != "once" else []
        said += [f"cost: {{usd: {self.usd}}}"] if self.usd else []
        said += ["shadow: true"] if self.shadow else []
        return "  - {" + ", ".join([*said, *([self.more] if self.more else [])]) + "}\n"


CHARGE = Rule("bank", "charge", "/charge", usd=0.25)
REFUND = Rule("bank", "refund", "/refund", more="repeat: same")
WIRE = Rule("bank", "wire", "/wire", usd=100.0, more='approval: {when: "`true`", wait: 0ms}')
LIMITED = Rule("bank", "limited", "/limited", more="budget: {calls: 1/1h}")
NEVER = Rule("bank", "never", "/never", mode="deny")
ITEMS = Rule("search", "items", "/items/1", method="GET", mode="cache", usd=0.0625)
HEADLINE = Rule("news", "headline", "/headline", "GET", "cache", more="max_age: 1ms, stale: revalidate")
SEND = Rule("mail", "send", "/send", usd=0.5, shadow=True)
KNOCK = Rule("gone", "knock", "/knock")
# What is no rule of a policy has a name all the same.
OTHER = Rule("search", "default", "/other")
READ = Rule("search", "default", "/read/1", method="GET")
NAMED = (CHARGE, REFUND, WIRE, LIMITED, NEVER, ITEMS, HEADLINE, SEND, KNOCK)


@dataclass(frozen=True, slots=True)
class World:
    tmp_path: Path
    upstream: Upstream
    receiver: Origin

    @property
    def state(self) -> Path:
        return self.tmp_path / "state"

    @property
    def policies(self) -> Path:
        return self.tmp_path / "policies"

    def proxy(self, *options: str, faults: dict[str, dict[str, object]] | None = None) -> SemelProcess:
        """One more on the same record."""
        return SemelProcess(
            self.state,
            self.policies,
            faults=faults,
            options=("--policies", "presets", "--config", str(self.tmp_path / "semel.yaml"), *options),
            env={"SEMEL_NOTIFY_SECRET": SECRET},
        )


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """The news differ each time they are read; the receiver is in trouble at the first notification."""
    headlines = [(*READ_ALL, answer(200, b"%d" % number)) for number in range(2)]
    trouble = (*READ_ALL, answer(503))
    async with upstream() as plain, Origin(*headlines) as news, Origin(trouble, TAKEN) as receiver:
        there = World(tmp_path, plain, receiver)
        there.policies.mkdir()
        ports = {"bank": plain.port, "search": plain.port, "mail": plain.port, "news": news.port, "gone": 1}
        for name, port in ports.items():
            rules = "".join(rule.text() for rule in NAMED if rule.upstream == name)
            text = f"upstream: {name}\nbase_url: http://127.0.0.1:{port}\nrules:\n{rules}"
            (there.policies / f"{name}.yaml").write_text(text)
        (tmp_path / "semel.yaml").write_text(json.dumps(_settings(receiver)))
        yield there


def _settings(receiver: Origin) -> dict[str, object]:
    tokens = [{"sha256": digest(token), "tenant": "acme", "role": role} for token, role in ROLES.items()]
    return {
        "auth": {"tokens": tokens},
        "notify": {"url": f"http://127.0.0.1:{receiver.port}/hook"},
        "gc": {"every": "1s"},
        "reload": False,  # when a signal says so, and not some time later
    }
