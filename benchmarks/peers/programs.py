"""Processes that are started, say in a line of JSON that they are ready, and are always ended, by id."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parent.parent.parent
READY_WITHIN = 90.0


class DidNotWork(Exception):
    """A project's program did not start or did not do what it is for: its row says so, the others go on."""


class Program:
    """`async with Program(words, log)`; what it says on standard error goes to the log."""

    def __init__(self, words: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self._words, self._log, self._env = words, log, dict(env or {})
        self._process: asyncio.subprocess.Process | None = None
        self.said: dict[str, Any] = {}

    async def start(self, *, says: bool = True) -> Self:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._words,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **self._env},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE if says else log,
                stderr=log,
            )
        if says:
            self.said = await self.line(READY_WITHIN)
        return self

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.kill()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    async def line(self, within: float) -> dict[str, Any]:
        """The next line of JSON; other lines are a library's talk. Empty when there is none any more."""
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(within):
            while line := await self._process.stdout.readline():
                if line.startswith(b"{"):
                    said: dict[str, Any] = json.loads(line)
                    return said
        if self.said:
            return {}
        raise DidNotWork(f"it ended while it started: {self._last_words()}")

    def go(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.stdout is not None:
            with contextlib.suppress(RuntimeError):  # somebody else reads it, and finds the end
                await self._process.stdout.read()

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:200] if lines else "without a word"
