"""Other projects' durable once-calls: a program of each (peers/rate_*.py), in its own environment, asked for
so many calls with so many at once.

The program has the server's core, as semel has; its store runs wherever there is room, with durable commits.
An environment that is missing is made, except in a small run.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import SMALL, much
from benchmarks.peers import installing
from benchmarks.running import ROOT, SERVER_CORE, end, say
from tests.servers.postgres import postgres
from tests.servers.valkey import valkey

WITHIN = 120.0  # for one order
WARM_UP = 256  # calls: every connection has been made


class CannotMeasure(Exception):
    """Why there is no figure. `installed`: it is there, and did not do its work."""

    def __init__(self, why: str, *, installed: bool) -> None:
        super().__init__(why)
        self.installed = installed


@contextmanager
def _valkey(work: Path) -> Iterator[str]:
    with valkey(work / "peers-valkey") as running:
        yield running.url


@contextmanager
def _postgres(_: Path) -> Iterator[str]:
    with postgres() as running:
        yield running.url(running.new_database())


class Peer(NamedTuple):
    name: str  # of its environment
    package: str
    label: str
    program: str
    store: Callable[[Path], AbstractContextManager[str]]
    calls: int  # in one round


RATED = (
    Peer("powertools", "aws-lambda-powertools", "AWS Powertools on Valkey (AOF always)",
         "benchmarks.peers.rate_powertools", _valkey, much(1000)),
    Peer("agent-ledger", "agent-ledger", "agent-ledger on PostgreSQL",
         "benchmarks.peers.rate_agent_ledger", _postgres, much(1000)),
)  # fmt: skip


class Rated:
    """One that runs and takes orders, a line of JSON each, and answers with a line."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, version: str) -> None:
        self._process, self._log, self.version = process, log, version
        self._read = b""

    def rate(self, seed: str, calls: int) -> float:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"seed": seed, "calls": calls}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._did_not_work() from None
        return calls / float(self.line()["seconds"])

    def line(self) -> dict[str, Any]:
        """Other lines are a library's talk."""
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while True:
                line, whole, rest = self._read.partition(b"\n")
                if whole:
                    self._read = rest
                    if line.startswith(b"{"):
                        said: dict[str, Any] = json.loads(line)
                        return said
                elif not selector.select(WITHIN) or not (data := os.read(out, 65536)):
                    raise self._did_not_work()
                else:
                    self._read += data

    def _did_not_work(self) -> CannotMeasure:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        words = lines[-1].strip()[:200] if lines else "without a word"
        return CannotMeasure(f"it did not work: {words}", installed=True)


def environment(peer: Peer) -> str:
    """Its interpreter."""
    if SMALL and not installing.installed(peer.name):
        raise CannotMeasure("it is not installed, and a small run installs nothing", installed=False)
    try:
        if not installing.installed(peer.name):
            say(f"installing {peer.package}")
        return str(asyncio.run(installing.python(peer.name)))
    except installing.NotInstalled as error:
        raise CannotMeasure(f"it could not be installed: {error}", installed=False) from None


@contextmanager
def serving(peer: Peer, origin: int, callers: int, work: Path) -> Iterator[Rated]:
    """Ready and warm."""
    python, log = environment(peer), work / f"{peer.name}.log"
    version = f"{peer.package} {asyncio.run(installing.version(peer.name, peer.package))}"
    with peer.store(work) as store, log.open("wb") as errors:
        order = {"store": store, "port": origin, "callers": callers}
        process = subprocess.Popen(
            [python, "-m", peer.program, json.dumps(order)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=lambda: os.sched_setaffinity(0, {SERVER_CORE}),
        )
        try:
            rated = Rated(process, log, version)
            rated.line()
            rated.rate("warm", WARM_UP)
            yield rated
        finally:
            end(process)
