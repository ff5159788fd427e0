"""compose.yaml read, and its services started without a container engine: as processes, on free ports.

Entry point, command, environment and health check are those of the file, or of the Dockerfile where the file
leaves them to the image. What differs: the paths of volumes, the ports, and the names of services, which are
addresses here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests import dockerfile
from tests.dockerfile import ROOT

FILE = ROOT / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
IMAGE = dockerfile.read(ROOT / "Dockerfile")[-1]
# What the image starts, by the words of its entry points.
PROGRAMS = {"python": [sys.executable], "semel": [sys.executable, "-m", "proxy.cli"]}
PATIENCE = 60


class Mount(NamedTuple):
    source: str
    target: str
    mode: str

    @property
    def is_of_the_repository(self) -> bool:
        return self.source.startswith("./")


def mounts(service: str) -> list[Mount]:
    said = (text.split(":") for text in SERVICES[service].get("volumes", ()))
    return [Mount(words[0], words[1], words[2] if len(words) > 2 else "rw") for words in said]


def of_image(word: str) -> list[str]:
    """ENTRYPOINT and CMD."""
    return next(step.words for step in IMAGE if step.word == word)


class Place:
    """Where the services are on this machine: a directory for the volumes, `ports` for theirs."""

    def __init__(self, directory: Path, ports: Mapping[str, int]) -> None:
        self.directory = directory
        self.ports = ports  # by `service:port`
        for name in COMPOSE["volumes"]:
            (directory / name).mkdir(mode=0o700)

    def source(self, mount: Mount) -> Path:
        """What is mounted; of the repository a copy that speaks of this place."""
        here, there = self.directory / mount.source.removeprefix("./"), ROOT / mount.source
        if mount.is_of_the_repository and not here.exists():
            for file in [there] if there.is_file() else sorted(there.iterdir()):
                copy = here / file.relative_to(there)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(self.addressed(file.read_text()))
        return here

    def addressed(self, text: str) -> str:
        """`toy:9000` is 127.0.0.1 with that service's port here."""
        for known, port in self.ports.items():
            text = re.sub(rf"\b{known}\b", f"127.0.0.1:{port}", text)
        return text

    def word(self, service: str, word: str) -> str:
        for mount in mounts(service):
            if word == mount.target or word.startswith(f"{mount.target}/"):
                return f"{self.source(mount)}{word.removeprefix(mount.target)}"
        for known, port in self.ports.items():
            name, _, number = known.partition(":")
            if name == service:  # it speaks of its own port
                word = re.sub(rf"\b(0\.0\.0\.0|127\.0\.0\.1):{number}\b", f"127.0.0.1:{port}", word)
                word = str(port) if word == number else word
        return self.addressed("127.0.0.1" if word == "0.0.0.0" else word)

    def command(self, service: str, *more: str) -> list[str]:
        said = SERVICES[service]
        entry: list[str] = said.get("entrypoint", of_image("ENTRYPOINT"))
        words: list[str] = said.get("command", of_image("CMD"))
        first, *rest = [*entry, *words, *more]
        return [*PROGRAMS[first], *(self.word(service, word) for word in rest)]

    def health(self, service: str) -> list[str]:
        kind, first, *rest = SERVICES[service]["healthcheck"]["test"]
        assert kind == "CMD"
        return [*PROGRAMS[first], *(self.word(service, word) for word in rest)]

    def environment(self, service: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
        said = SERVICES[service].get("environment", {})
        return {**kept, **{name: self.word(service, value) for name, value in said.items()}}

    def run(self, service: str, *more: str) -> subprocess.CompletedProcess[str]:
        """What ends by itself."""
        return subprocess.run(
            self.command(service, *more),
            env=self.environment(service),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    @contextmanager
    def running(self, service: str, ready: str) -> Iterator[subprocess.Popen[str]]:
        """What goes on, until the block ends; `ready` is in the line that it prints when it is."""
        with (self.directory / f"{service}.log").open("w") as log:
            process = subprocess.Popen(
                self.command(service),
                env=self.environment(service),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            while ready not in line:
                assert line, f"{service} ended: {(self.directory / f'{service}.log').read_text()}"
                line = process.stdout.readline()
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE)
