"""The agents of a round: each seat has one at work, started again under a new attempt name when it ended.

A seat does one piece of work after the other. Seats of runs have their own; the seats outside runs do the
same work at the same time, so that identical calls meet. Work that is held again and again is left as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.process import ROOT
from tests.proof.kills.agent import ASTRAY, BROKEN, DIVERGED, HELD
from tests.proof.kills.draw import STOP, TERM, Harm

STEPS = 24
THINK = 0.04
LAST = "last"  # start of a work
LEFT_AFTER = 3  # held so often


class Kind(NamedTuple):
    in_run: bool
    keyed: bool


SEATS = (
    Kind(True, True),
    Kind(True, True),
    Kind(True, False),
    Kind(True, True),
    Kind(False, False),
    Kind(False, False),
)


class Astray(Exception):
    """An agent was told what no agent should be told."""


@dataclass
class Seat:
    number: int
    seed: int
    ports: list[int]
    logs: Path
    started: int = 0
    finished: int = 0
    over: bool = False
    process: asyncio.subprocess.Process | None = None
    still: asyncio.Task[None] | None = None
    works: list[str] = field(default_factory=list)

    @property
    def kind(self) -> Kind:
        return SEATS[self.number]

    async def work(self) -> None:
        for n in itertools.count():
            name = f"r{self.number}-{n}" if self.kind.in_run else f"outside-{n}"
            self.works.append(name)
            held = 0
            while not self.over and held < LEFT_AFTER:
                status = await self._start(name)
                if status == 0:
                    self.finished += 1
                    break
                held += status == HELD
                if status in (HELD, BROKEN, DIVERGED):
                    await asyncio.sleep(0.1)
                elif status not in (-signal.SIGKILL, -signal.SIGTERM):
                    raise Astray(self._last_words(name, status))
            if self.over:
                return

    async def finish(self, work: str) -> None:
        """A last start, while nobody is harmed: it gets through, but for what is in doubt."""
        status = await self._start(work, last=True)
        if status != 0:
            raise Astray(self._last_words(work, status))

    async def _start(self, work: str, *, last: bool = False) -> int:
        self.started += 1
        log = self.logs / f"{work}+{self.number}-{LAST if last else self.started}.log"
        spec: dict[str, Any] = {
            "ports": self.ports, "work": work, "seed": self.seed, "steps": STEPS, "log": str(log),
            "prefix": f"/@{work}+{self.started}" if self.kind.in_run else "", "keyed": self.kind.keyed,
            "think": 0 if last else THINK, "skips": last,
        }  # fmt: skip
        command = (sys.executable, "-S", "-m", "tests.proof.kills.agent", json.dumps(spec))
        self.process = process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        status = await process.wait()
        self.process = None
        return status

    def _last_words(self, work: str, status: int) -> str:
        last = [seen for seen in seen_in(self.logs) if seen.log.startswith(f"{work}+{self.number}-")]
        told = "\n".join(map(str, last[-5:]))
        return (
            f"seed {self.seed}: {work} ended with {status}{' (astray)' if status == ASTRAY else ''}\n{told}"
        )

    def harm(self, harm: Harm) -> None:
        """It may have ended just now: then the harm comes to the next one, before its first step."""
        if self.process is None:
            return
        pid = self.process.pid
        if harm.what == STOP:
            _tell(pid, signal.SIGSTOP)
            self.still = asyncio.create_task(_wake(pid, harm.seconds))
        else:
            _tell(pid, signal.SIGTERM if harm.what == TERM else signal.SIGKILL)
            _tell(pid, signal.SIGCONT)

    def end(self) -> None:
        self.over = True
        if self.still is not None:
            self.still.cancel()
        if self.process is not None:
            _tell(self.process.pid, signal.SIGKILL)


async def _wake(pid: int, seconds: float) -> None:
    await asyncio.sleep(seconds)
    _tell(pid, signal.SIGCONT)


def _tell(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Seen(NamedTuple):
    """A line of an agent's log."""

    step: str
    asked_at: float
    at: float
    status: int
    problem: str
    where: str
    semel: str = ""
    call: str = ""
    digest: str = ""  # of all that was said
    meaning: str = ""  # of its body, as JSON
    log: str = ""
    port: int = 0  # of the semel that it asked

    @property
    def is_answer(self) -> bool:
        """An answer to keep: what passed without a record is nobody's promise."""
        return self.has_body and self.semel != "passed"

    @property
    def has_body(self) -> bool:
        return self.status == 200 and self.semel in ("executed", "replayed", "joined", "passed")


def seen_in(logs: Path) -> list[Seen]:
    """By time. A last line without its end was being written when its agent was killed."""
    lines = [
        Seen(**json.loads(line), log=path.stem)
        for path in logs.glob("*.log")
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]
    return sorted(lines, key=lambda seen: seen.at)
