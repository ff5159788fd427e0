"""The pictures of the dashboards in the documents: the services of compose.yaml on loopback, a few minutes of
their traffic, and a real Prometheus whose data are drawn.

python -m tests.dashboards.pictures docs/pictures
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from dashboards.drawing import answers, page, reading
from tests.composed import PROGRAMS, Place
from tests.dashboards import queries
from tests.dashboards.queries import FOLDER
from tests.dockerfile import ROOT
from tests.docs.pasting import free_ports
from tests.notifying.scene import SECRET
from tests.servers.prometheus import PROGRAM, Prometheus, prometheus

SEED = 7
SIGNED_WITH = "BELL_SECRET"
SCRAPED_EVERY = 1.0
LARGEST = 400_000
# Seconds that are drawn before the first agents come.
QUIET = 6.0


class Phase(NamedTuple):
    rate: int
    seconds: int
    killed: bool = False  # semel, in the middle of it
    decided: bool = False  # a person comes by in the middle of it


DAY = (
    Phase(6, 40),
    Phase(18, 45, killed=True),
    Phase(9, 35),
    Phase(22, 50, decided=True),
    Phase(7, 40),
)


class Stage:
    def __init__(self, place: Place) -> None:
        self.place = place
        self._semel = ExitStack()

    def start(self) -> None:
        self._semel.enter_context(self.place.running("semel", "semel is ready on"))

    def kill(self) -> None:
        """No signal that could be heard: what is under way stays as it is."""
        self._semel.close()

    def play(self, number: int, phase: Phase) -> None:
        how = ("--rate", str(phase.rate), "--for", f"{phase.seconds}s", "--seed", str(SEED + number))
        agents = subprocess.Popen(
            self.place.command("traffic", *how), env=self.place.environment("traffic"), cwd=ROOT
        )
        try:
            time.sleep(phase.seconds / 2)
            if phase.killed:
                self.kill()
                self.start()
            if phase.decided:
                self.decide()
            agents.wait(phase.seconds + 60)
        finally:
            if agents.poll() is None:
                agents.kill()
                agents.wait()

    def decide(self) -> None:
        """One call in doubt was found to have happened; the refund is right."""
        doubt, *_ = self._calls("list", "--in", "in_doubt")["calls"]
        waiting, *_ = self._calls("list", "--in", "awaiting_approval")["calls"]
        self._calls("resolve", doubt["id"], "--as", "executed", "--reason", "it is on the statement")
        self._calls("approve", waiting["id"], "--reason", "the customer is right")

    def _calls(self, *words: str) -> dict[str, list[dict[str, str]]]:
        token = (self.place.directory / "tokens" / "operator").read_text()
        where = ("--proxy", f"http://127.0.0.1:{self.place.ports['semel:8080']}", "--token", token)
        command = [*PROGRAMS["semel"], "calls", *words, *where, "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        told: dict[str, list[dict[str, str]]] = json.loads(done.stdout)
        return told


class Bell(BaseHTTPRequestHandler):
    """Somebody who is told when a call needs a person."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - by its base's name
        """Nobody reads it."""


@contextmanager
def rung_at(settings: Path) -> Iterator[None]:
    """These settings name one who is told, and who is there."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Bell) as bell:
        told = json.loads(settings.read_text())
        # Services do not inherit what is called SEMEL_ something.
        told["notify"] = {"url": f"http://127.0.0.1:{bell.server_address[1]}/", "secret_env": SIGNED_WITH}
        os.environ[SIGNED_WITH] = SECRET
        settings.unlink()  # nobody may write into it
        settings.write_text(json.dumps(told))
        threading.Thread(target=bell.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            bell.shutdown()


@contextmanager
def at_work() -> Iterator[tuple[Stage, Prometheus]]:
    """The toy, semel and Prometheus; all of them are gone afterwards."""
    known = ("semel:8080", "toy:9000", "toy:9001")
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        ports = dict(zip(known, map(int, free_ports(len(known))), strict=True))
        stage = Stage(Place(Path(directory), ports))
        made = stage.place.run("tokens")
        assert made.returncode == 0, made.stderr
        stack.enter_context(rung_at(Path(directory) / "tokens" / "semel.yaml"))
        stack.enter_context(stage.place.running("toy", "the model is ready on"))
        stack.callback(stage.kill)
        stage.start()
        token = (Path(directory) / "tokens" / "metrics").read_text()
        target = f"127.0.0.1:{ports['semel:8080']}"
        yield stage, stack.enter_context(prometheus([target], token=token, interval=SCRAPED_EVERY))


@contextmanager
def a_day() -> Iterator[answers.FromPrometheus]:
    """Its data, as long as the block lasts."""
    with at_work() as (stage, server):
        asyncio.run(server.wait_for("semel_build_info", bool))
        begun = time.time()
        time.sleep(QUIET)
        for number, phase in enumerate(DAY):
            stage.play(number, phase)
        window = answers.Window(begun, time.time(), step=SCRAPED_EVERY, rate=10)
        yield answers.FromPrometheus(f"http://127.0.0.1:{server.port}", window)


def take(directory: Path) -> None:
    with a_day() as source:
        for name in queries.NAMES:
            content = page.draw(reading.read(FOLDER / f"{name}.json"), source).png()
            assert len(content) < LARGEST, f"{name} has {len(content)} bytes"
            (directory / f"dashboard-{name}.png").write_bytes(content)


if __name__ == "__main__":
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM} is not installed")
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    take(Path(sys.argv[1]))
