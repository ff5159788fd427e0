"""Agents with tools of their own as real processes, that can be killed anywhere; what they did is counted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tests.cli.test_run_process import clean_environment
from tests.process import ROOT

PATIENCE = 60.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`calls` one after another, or one of them many times `at_once`. Points are "inside pay", "after pay"
    and so on: at some it `stands` until it may go on, at one it `exits` without a word. `raises`: what every
    function does in the end (Declined), or instead (NotExecuted)."""

    effects: Path
    calls: Sequence[str] = ("pay",)
    style: str = "sync"
    stands: Sequence[str] = ()
    exits: str = ""
    raises: str = ""
    at_once: int = 0

    @property
    def command(self) -> list[str]:
        plan = json.dumps(asdict(self) | {"effects": str(self.effects)})
        return [sys.executable, "-m", "tests.tools.paying_agent", plan]

    @property
    def done(self) -> list[str]:
        """What the functions of all agents did, in this order."""
        return self.effects.read_text().splitlines() if self.effects.exists() else []


class Planned(Protocol):
    @property
    def command(self) -> list[str]: ...


@dataclass
class Agent:
    """`async with Agent(plan, url) as agent:`. With a run: one attempt of it."""

    plan: Planned
    url: str
    run: str = ""
    attempt: str = "a1"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def environment(self) -> Mapping[str, str]:
        in_run = {"SEMEL_RUN": self.run, "SEMEL_ATTEMPT": self.attempt} if self.run else {}
        return clean_environment(SEMEL_URL=self.url, **in_run)

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self.plan.command,
            cwd=ROOT,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        self._stderr = asyncio.create_task(self._process.stderr.read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    async def stands(self, point: str) -> None:
        """Come back when it stands there."""
        assert await self._hears() == {"at": point}

    def go_on(self) -> None:
        """From where it stands, and from wherever else it would stand."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def told(self) -> dict[str, Any]:
        """What its next call came to."""
        return await self._hears()

    async def results(self) -> list[Any]:
        """Of all calls that it made at once."""
        while "at" in (heard := await self._hears()):
            pass
        results: list[Any] = heard["results"]
        return results

    async def kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            await self._process.stdout.read()
            await self._stderr
            await self._process.wait()
        self.go_on()

    async def _hears(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await self._process.stdout.readline()
            if not line:
                raise AssertionError(f"the agent ended: {(await self._stderr).decode()}")
        heard: dict[str, Any] = json.loads(line)
        return heard


async def one_attempt(plan: Planned, url: str, run: str = "", attempt: str = "a1") -> dict[str, Any]:
    """What the only call of an agent comes to that nobody kills."""
    async with Agent(plan, url, run, attempt) as agent:
        return await agent.told()
