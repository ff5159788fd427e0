"""The demo's processes and its directory: whatever happens, nothing is left of them.

Processes are ended by their pid with SIGKILL and waited for; `semel run` is asked first, since it has a proxy
and an agent to end. Ctrl-C, SIGTERM and SIGHUP end the demo at its
next await, never between starting a process and knowing its pid.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

# Seconds. Starts and runs take a fraction of a second; a machine under load may take its time.
PATIENCE = 30.0
# For what has children of its own and ends them when it is asked to.
GENTLE_PATIENCE = 10.0
READY = " is ready on "
# A server that does not start says why at the end of its log.
LOG_TOLD = 2000

Tell: TypeAlias = Callable[[str], None]
Played = TypeVar("Played")


class Mishap(Exception):
    """Something that the demo needs did not work. The message says what, and what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    process: Process


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and all that it said. `status` is negative for a signal."""

    status: int
    lines: tuple[str, ...]


class Stage:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: list[Process] = []
        self._gentle: set[int] = set()  # pids

    async def start(self, name: str, command: Sequence[str], directory: Path) -> Server:
        """A server, found ready by the line that it prints. The rest it says is in `name`.log."""
        log = directory / f"{name}.log"
        with log.open("ab") as errors:
            process = await self._spawn(name, command, directory, {}, errors.fileno())
        assert process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE):
                while line := (await process.stdout.readline()).decode(errors="replace"):
                    if READY in line:
                        return Server(line.rsplit(READY, 1)[1].strip(), process)
                status = await process.wait()
        except TimeoutError:
            raise Mishap(f"{name} did not start within {PATIENCE:.0f} s.{_said(log)}") from None
        raise Mishap(f"{name} did not start: it ended with status {status}.{_said(log)}")

    async def run(
        self, name: str, command: Sequence[str], directory: Path, env: Mapping[str, str], tell: Tell,
        *, gently: bool = False,
    ) -> Ended:  # fmt: skip
        """A program, from start to end. `tell` gets each line as it comes. `gently`: if it must be ended, it
        is asked to end."""
        process = await self._spawn(name, command, directory, env, STDOUT, gently=gently)
        assert process.stdout is not None
        lines: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE):
                async for line in process.stdout:
                    lines.append(line.decode(errors="replace").rstrip())
                    tell(lines[-1])
                status = await process.wait()
        except TimeoutError:
            raise Mishap(f"{name} has not ended after {PATIENCE:.0f} s; it was stopped.") from None
        self._running.remove(process)
        return Ended(status, tuple(lines))

    async def _spawn(
        self, name: str, command: Sequence[str], directory: Path, env: Mapping[str, str], errors: int,
        *, gently: bool = False,
    ) -> Process:  # fmt: skip
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *command,
                cwd=directory,
                env={**_environment(), **env},
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=errors,
            )
        )
        try:
            await asyncio.wait({starting})
        finally:  # a signal that comes meanwhile waits until there is a process that can be ended
            try:
                process = await starting
            except OSError as error:
                raise Mishap(f"{name} cannot be started ({' '.join(command)}): {error}") from None
            self._running.append(process)
            if gently:
                self._gentle.add(process.pid)
        return process

    async def kill(self, *processes: Process) -> None:
        """All are killed before the first is waited for: a signal that comes meanwhile changes nothing."""
        for process in processes:
            if process.returncode is None:
                # Not process.kill(): that looks whether it has ended, and then asyncio waits for it in vain.
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            await process.wait()
            self._running.remove(process)

    async def clear(self) -> None:
        """What is asked to end may still need its servers for a moment: it goes first."""
        gentle = [one for one in self._running if one.pid in self._gentle and one.returncode is None]
        for process in gentle:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(GENTLE_PATIENCE):
                for process in gentle:
                    await process.wait()
        await self.kill(*self._running)


@asynccontextmanager
async def new_stage(*, keep: bool) -> AsyncIterator[Stage]:
    try:
        directory = Path(tempfile.mkdtemp(prefix="semel-demo-"))
    except OSError as error:
        raise Mishap(f"No directory for the demo: {error}. TMPDIR can name one that is writable.") from None
    stage = Stage(directory)
    try:
        yield stage
    finally:
        try:
            await stage.clear()
        finally:
            if not keep:
                shutil.rmtree(directory, ignore_errors=True)


def play(work: Coroutine[Any, Any, Played]) -> Played:
    """asyncio.run, and KeyboardInterrupt when a signal came, after everything was cleared away."""
    try:
        return asyncio.run(_interruptible(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _interruptible(work: Coroutine[Any, Any, Played]) -> Played:
    task = asyncio.current_task()
    assert task is not None
    signalled = False

    def stop() -> None:
        """The first one only: clearing away takes milliseconds, and must not be interrupted."""
        nonlocal signalled
        if not signalled:
            signalled = True
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, a shell's background job
            asyncio.get_running_loop().add_signal_handler(number, stop)
    return await work


def _environment() -> dict[str, str]:
    """Children import what we import, wherever they run; no settings of this user and no proxy of this
    network play a part."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
    return {**kept, "PYTHONPATH": path, "NO_PROXY": "*", "no_proxy": "*"}


def _said(log: Path) -> str:
    text = log.read_text(errors="replace").strip()[-LOG_TOLD:]
    return f" It said:\n{text}" if text else " It said nothing."
