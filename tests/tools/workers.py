"""Somebody who does what semel hands out, over the wire."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.inside import Answer, raw_call, request_bytes

# Whoever has a call in hand is taken for dead after so long; a busy machine makes nobody dead.
PATIENT = {"owners.heartbeat": "20s", "owners.dead_after": "60s"}
HASTY = {"owners.heartbeat": "100ms", "owners.dead_after": "500ms"}
JSON = {"Content-Type": "application/json"}


class Said(NamedTuple):
    status: int
    document: dict[str, Any]
    semel: str | None

    @property
    def problem(self) -> str:
        return str(self.document.get("type", "")).removeprefix("urn:semel:")

    @property
    def execute(self) -> dict[str, Any]:
        said: dict[str, Any] = self.document["execute"]
        return said


def said(answer: Answer) -> Said:
    return Said(answer.status, json.loads(answer.body), answer.semel)


@dataclass(frozen=True)
class Worker:
    """One process of one attempt. Without a run: calls of the tenant."""

    port: int
    run: str = ""
    attempt: str = "a1"
    token: str = ""

    def at(self, port: int) -> Worker:
        return replace(self, port=port)

    def next(self, attempt: str) -> Worker:
        return replace(self, attempt=attempt)

    @property
    def headers(self) -> dict[str, str]:
        run = {"Semel-Run": self.run, "Semel-Attempt": self.attempt} if self.run else {}
        return {**JSON, **run, **({"Semel-Token": self.token} if self.token else {})}

    async def post(self, path: str, body: bytes = b"", **headers: str) -> Said:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = request_bytes(
            "POST", f"/_semel/tools/{path}", {**self.headers, **named}, body, host="127.0.0.1"
        )
        return said(await raw_call(self.port, request))

    async def begin(self, tool: str = "pay", arguments: object = None, **headers: str) -> Said:
        return await self.post(tool, json.dumps(arguments or {"usd": 5}).encode(), **headers)

    async def complete(self, handed: Said, result: object = "done", tool: str = "pay") -> Said:
        return await self.report("complete", handed, {"result": result}, tool)

    async def fail(self, handed: Said, reason: str = "no connection", tool: str = "pay") -> Said:
        return await self.report("fail", handed, {"reason": reason}, tool)

    async def beat(self, handed: Said, tool: str = "pay") -> Said:
        return await self.report("heartbeat", handed, None, tool)

    async def report(self, what: str, handed: Said, body: object, tool: str = "pay") -> Said:
        at = f"{tool}/{handed.execute['call']}/{what}?fence={handed.execute['fence']}"
        return await self.post(at, b"" if body is None else json.dumps(body).encode())
