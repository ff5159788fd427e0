"""The picture of a run's timeline in the documents: a real agent behind a real semel, killed while it pays
and started again. What is drawn is the record's own data, as `semel runs show --json` gives them.

python -m tests.runs.pictures docs/pictures
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from docs.drawing import timeline
from tests.composed import PROGRAMS, Place
from tests.dockerfile import ROOT
from tests.docs.pasting import free_ports

RUN = "trip-to-ulm"
START = 'echo "agent $$"; exec "$0" -m tests.runs.traveller'
PATIENCE = 60
LARGEST = 100_000
# Seconds after the agent said that it pays: the call is under way then.
UNTIL_KILLED = 0.2


@contextmanager
def at_work(directory: Path) -> Iterator[Place]:
    known = ("semel:8080", "toy:9000", "toy:9001")
    place = Place(directory, dict(zip(known, map(int, free_ports(len(known))), strict=True)))
    made = place.run("tokens")
    assert made.returncode == 0, made.stderr
    with ExitStack() as stack:
        stack.enter_context(place.running("toy", "the model is ready on"))
        stack.enter_context(place.running("semel", "semel is ready on"))
        yield place


def of_semel(place: Place, role: str) -> list[str]:
    token = (place.directory / "tokens" / role).read_text()
    return ["--proxy", f"http://127.0.0.1:{place.ports['semel:8080']}", "--token", token]


def run_the_agent(place: Place) -> None:
    """Once it is killed, while its payment is under way; semel starts it again."""
    how = [*of_semel(place, "agent"), "--id", RUN, "--retries", "1"]
    command = [*PROGRAMS["semel"], "run", *how, "--", "sh", "-c", START, sys.executable]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    agent: int | None = None
    with subprocess.Popen(
        command, cwd=place.directory, env=environment, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        for line in started.stdout:
            if line.startswith("agent ") and agent is None:
                agent = int(line.split()[1])
            elif line.startswith("step 4") and agent:
                time.sleep(UNTIL_KILLED)
                os.kill(agent, signal.SIGKILL)
                agent = 0
        assert started.wait(PATIENCE) == 0


def record(place: Place) -> dict[str, Any]:
    command = [*PROGRAMS["semel"], "runs", "show", RUN, "--json", *of_semel(place, "operator")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def lived() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory, at_work(Path(directory)) as place:
        run_the_agent(place)
        told = record(place)
    # docs/runs.md tells of these.
    counted = [(one["replayed"], one["executed"]) for one in told["attempts"]]
    assert counted == [(0, 4), (4, 3)], counted
    return told


if __name__ == "__main__":
    content = timeline.draw(lived())
    assert len(content) < LARGEST, f"{len(content)} bytes"
    (Path(sys.argv[1]) / "run-timeline.png").write_bytes(content)
