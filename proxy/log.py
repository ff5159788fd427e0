"""Structured logs: one JSON line per call and per event worth reading. Never a secret, a body, a query."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TextIO

import orjson

from proxy.observe import Sent, Served


class LogObserver:
    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def served(self, told: Served) -> None:
        line: dict[str, object] = {"event": "call", "status": told.status, "code": told.code}
        if told.method:
            line["method"] = told.method
        for name in ("upstream", "rule", "tool", "call", "problem"):
            if value := getattr(told, name):
                line[name] = value
        line["ms"] = round(told.seconds * 1000, 3)
        line["bytes"] = told.size
        if not told.delivered:
            line["delivered"] = False
        self._write(line)

    def sent(self, told: Sent) -> None:
        """The call's own line says enough."""

    def store_took(self, operation: str, seconds: float) -> None:
        """For metrics only."""

    def reloaded(self, *, good: bool, detail: str) -> None:
        self._write({"event": "policies-reloaded" if good else "policies-kept", "detail": detail})

    def noted(self, event: str, **fields: object) -> None:
        self._write({"event": event, **fields})

    def _write(self, line: dict[str, object]) -> None:
        stamped = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **line}
        try:
            self._stream.write(orjson.dumps(stamped, default=str).decode() + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # A closed or full log must not cost a call.
            return
