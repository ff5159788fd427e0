"""A real semel process for tests: started, found ready, killed or stopped, always cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import ambient

ROOT = Path(__file__).parent.parent
READY = "semel is ready on http://"


def kill_at(point: str, after: int = 0) -> dict[str, dict[str, object]]:
    return {point: {"action": "kill", "after": after}}


def _without_the_seed() -> dict[str, str]:
    """SEMEL_SEED is the tests' own; semel would refuse a variable that it does not know."""
    return {name: value for name, value in os.environ.items() if name != "SEMEL_SEED"}


@dataclass(slots=True)
class SemelProcess:
    """`async with SemelProcess(state, policies) as semel:`; `semel.port` is where it listens."""

    state: Path
    policies: Path
    faults: Mapping[str, Mapping[str, object]] | None = None
    options: Sequence[str] = ()
    prefix: Sequence[str] = ()  # e.g. strace and its options
    env: Mapping[str, str] | None = None
    entry: str = "tests.serve_armed"  # the module that is run
    port: int = 0
    log: str = ""
    _process: asyncio.subprocess.Process | None = None
    _reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self.prefix,
            sys.executable,
            "-m",
            self.entry,
            json.dumps(self.faults or {}),
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--state-dir",
            str(self.state),
            "--policies",
            str(self.policies),
            *ambient.options(),
            *self.options,
            cwd=ROOT,
            env={**_without_the_seed(), **ambient.environment(), **(self.env or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None
        assert stderr is not None
        self._reading = asyncio.create_task(self._read_log(stderr))
        async with asyncio.timeout(30):
            line = (await stdout.readline()).decode()
        if not line.startswith(READY):
            await self._process.wait()
            await self._reading
            raise RuntimeError(f"semel did not start: {line!r}\n{self.log}")
        self.port = int(line.strip().rsplit(":", 1)[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.log += line.decode()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(self, number: signal.Signals) -> None:
        """Not by the process object's own method: it looks first whether the child has ended, and so takes
        its exit status away from those who wait for it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def died(self, within: float = 30) -> int:
        """Wait for the process to end by itself (an armed kill, a signal sent before)."""
        assert self._process is not None
        assert self._reading is not None
        async with asyncio.timeout(within):
            status = await self._process.wait()
            await self._reading
            assert self._process.stdout is not None
            await self._process.stdout.read()  # to its end: what is left open is noticed by another test
        return status

    async def kill(self) -> None:
        if self.alive:
            self.send(signal.SIGKILL)
        await self.died()

    async def stop(self, number: signal.Signals = signal.SIGTERM, within: float = 45) -> int:
        self.send(number)
        return await self.died(within)
