"""Programs that are started on a core of their own, asked, and always ended.

The server under test has one core for itself, load and upstream share the other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = CORES[0], CORES[-1]
ENDS_WITHIN = 60.0
LOAD_WITHIN = 400.0
RULES = "  - {name: pay, match: {method: POST, path: /pay}}\n"


class Plan(NamedTuple):
    """How much of everything."""

    rounds: int
    rows: int
    work: Path


class Running(NamedTuple):
    port: int
    pid: int


class Stopping:
    """A run that is told to end does so before its next step, and not in the middle of starting something
    that nobody would then end."""

    def __init__(self) -> None:
        self._told = False

    def listen(self) -> None:
        signal.signal(signal.SIGTERM, self.tell)

    def tell(self, *_: object) -> None:
        self._told = True

    def check(self) -> None:
        if self._told:
            sys.exit("told to stop")


STOPPING = Stopping()


def say(line: str) -> None:
    """What is done next."""
    STOPPING.check()
    print(line, file=sys.stderr, flush=True)


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """This thread, and what it starts without saying where."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def urgent() -> Iterator[None]:
    """This process is woken as soon as something comes for it, whatever else its core has to do: that is the
    upstream's work, and no part of what is measured. Where it is not permitted, it waits for its turn."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        say("no higher priority is permitted: what the upstream does meanwhile is measured along")
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def end(process: subprocess.Popen[bytes]) -> None:
    """Asked to, and made to if it does not."""
    process.terminate()
    try:
        process.wait(ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


@contextmanager
def server(
    command: Sequence[str], core: int | None, log: Path, env: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """On one core, or wherever there is room (None)."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=lambda: os.sched_setaffinity(0, CORES if core is None else {core}),
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            if "http://" not in line:
                raise RuntimeError(f"{command} did not start: {log.read_text()}")
            yield Running(int(line.rsplit(":", 1)[1]), process.pid)
        finally:
            end(process)


def load(port: int, path: str, kind: str, total: int, connections: int, seed: str) -> float:
    """Requests per second; benchmarks/load.py says what a kind is."""
    words = [str(port), path, kind, str(total), str(connections), seed]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load", *words],
        cwd=ROOT,
        capture_output=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {LOAD_CORE}),
        timeout=LOAD_WITHIN,
    )
    if done.returncode:
        raise RuntimeError(f"the load on port {port} failed: {done.stderr.decode()[-2000:]}")
    return float(done.stdout)


class Stage:
    """What one part of the run needs: an upstream, and servers before it. All end with the stack."""

    def __init__(
        self,
        stack: ExitStack,
        work: Path,
        *,
        upstream: str = "origin",
        rules: str = RULES,
        free: bool = False,
    ) -> None:
        """`free`: everything runs wherever there is room."""
        self._stack, self._work = stack, work
        work.mkdir(exist_ok=True)
        self._server_core = None if free else SERVER_CORE
        self._load_core = None if free else LOAD_CORE
        self.origin = self._start(["-m", "benchmarks.servers", upstream], self._load_core, upstream).port
        self._policy = work / "bench.yaml"
        self._policy.write_text(f"upstream: bench\nbase_url: http://127.0.0.1:{self.origin}\nrules:\n{rules}")

    def _start(
        self, words: Sequence[str], core: int | None, name: str, env: Mapping[str, str] | None = None
    ) -> Running:
        return self._stack.enter_context(server(words, core, self._work / f"{name}.log", env))

    def bare(self, name: str) -> int:
        target = f"http://127.0.0.1:{self.origin}"
        return self._start(["-m", "benchmarks.servers", name, target], self._server_core, name).port

    def semel(
        self, name: str, *options: str, module: str = "proxy.cli", env: Mapping[str, str] | None = None
    ) -> Running:
        """With a state directory of its own."""
        words = ["-m", module, "serve", "--listen", "127.0.0.1:0", "--policies", str(self._policy)]
        state = ["--state-dir", str(self._work / name)]
        return self._start([*words, *state, *options], self._server_core, name, env)
