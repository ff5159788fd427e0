"""MCP servers as real processes on loopback, for as long as a session of tests lasts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mcp.client.stdio import StdioServerParameters

from tests.mcp.ledger import Ledger
from tests.process import ROOT

ENDS_WITHIN = 10.0


@dataclass(frozen=True, slots=True)
class Shop:
    """The ports by door, and what its tools did."""

    ports: Mapping[str, int]
    ledger: Ledger

    def url(self, door: str) -> str:
        return f"http://127.0.0.1:{self.ports[door]}/mcp"


@contextmanager
def running(command: list[str], at: Path, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """The first line that it says."""
    complaints = at / "stderr"
    with complaints.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            if not line:
                raise RuntimeError(f"{command} did not start: {complaints.read_text()}")
            yield line
        finally:
            process.kill()
            process.communicate(timeout=ENDS_WITHIN)


@contextmanager
def running_shop(at: Path) -> Iterator[Shop]:
    ledger = Ledger(at / "ledger")
    with running([sys.executable, "-m", "tests.mcp.shop", str(ledger.path), "http"], at) as line:
        yield Shop(json.loads(line), ledger)


def stdio_shop(ledger: Ledger) -> StdioServerParameters:
    words = ["-m", "tests.mcp.shop", str(ledger.path), "stdio"]
    return StdioServerParameters(command=sys.executable, args=words, cwd=str(ROOT))
