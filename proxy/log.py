"""Structured logs: one JSON line per call and per event worth reading. Never a secret, a body, a query.

Lines are gathered for one turn of the event loop and written together: under load that is one system call
for many lines, and nothing waits longer than the turn takes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime
from typing import TextIO

import orjson

from proxy.observe import Sent, Served


class LogObserver:
    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lines: list[bytes] = []
        self._second, self._stamp = 0, ""

    def served(self, told: Served) -> None:
        line: dict[str, object] = {
            "at": self._now(),
            "event": "call",
            "status": told.status,
            "code": told.code,
            "method": told.method,
            "upstream": told.upstream,
            "rule": told.rule,
            "tool": told.tool,
            "call": told.call,
            "ms": round(told.seconds * 1000, 3),
            "bytes": told.size,
        }
        if told.problem:
            line["problem"] = told.problem
        if not told.delivered:
            line["delivered"] = False
        self._write(line)

    def sent(self, told: Sent) -> None:
        """The call's own line says enough."""

    def store_took(self, operation: str, seconds: float) -> None:
        """For metrics only."""

    def reloaded(self, *, good: bool, detail: str) -> None:
        self.noted("policies-reloaded" if good else "policies-kept", detail=detail)

    def noted(self, event: str, **fields: object) -> None:
        self._write({"at": self._now(), "event": event, **fields})

    def _now(self) -> str:
        """ISO 8601 with milliseconds; formatting once a second is enough for the rest."""
        now = time.time()
        if int(now) != self._second:
            self._second = int(now)
            self._stamp = datetime.fromtimestamp(self._second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._stamp}.{int(now * 1000) % 1000:03d}Z"

    def _write(self, line: dict[str, object]) -> None:
        self._lines.append(orjson.dumps(line, default=str))
        if len(self._lines) > 1:
            return  # whoever wrote the first has arranged for the rest
        try:
            asyncio.get_running_loop().call_soon(self.flush)
        except RuntimeError:
            self.flush()

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            self._stream.write((b"\n".join(lines) + b"\n").decode())
            self._stream.flush()
        except (OSError, ValueError):
            # A closed or full log must not cost a call.
            return
