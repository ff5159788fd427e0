"""A Dockerfile read, and its steps carried out in a scratch directory: no engine, no root file system.

Every stage gets a directory that stands for its root and a virtual environment that stands for the Python of
its base image. Paths are mapped into it; what would change this machine (users, owners) is left out and
noted.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Step:
    word: str  # RUN, COPY, …
    options: dict[str, str]  # --from=build
    text: str  # the rest

    @property
    def words(self) -> list[str]:
        """The exec form as its list; anything else split at blanks."""
        if self.text.startswith("["):
            words: list[str] = json.loads(self.text)
            return words
        return shlex.split(self.text)


def read(path: Path) -> list[list[Step]]:
    """The steps of each stage; FROM opens one."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    stages: list[list[Step]] = []
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if not line.strip():
            continue
        word, _, rest = line.strip().partition(" ")
        options: dict[str, str] = {}
        while match := re.match(r"--([a-z-]+)=(\S+)\s+", rest):
            options[match[1]] = match[2]
            rest = rest[match.end() :]
        if word == "FROM":
            stages.append([])
        stages[-1].append(Step(word, options, rest.strip()))
    return stages


@dataclass(slots=True)
class Stage:
    """What a stage has become: where its root is, and what was not done."""

    root: Path
    env: dict[str, str]
    cwd: Path
    mounts: dict[str, Path] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def mapped(self, text: str) -> str:
        """Absolute paths that stand alone or after a `=`, below this stage's root or a mount."""

        def place(match: re.Match[str]) -> str:
            path = match[0]
            for target, source in self.mounts.items():
                if path == target or path.startswith(target + "/"):
                    return f"{source}{path.removeprefix(target)}"
            return f"{self.root}{path}"

        return re.sub(r"(?:(?<=[\s=])|^)/[\w./*-]+", place, text)


class Scratch:
    """Carries out stages: every step as it is written, with `Stage.mapped` paths."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.stages: dict[str, Stage] = {}

    def build(self, steps: list[Step]) -> Stage:
        base, *rest = steps
        name = base.words[2] if len(base.words) > 2 else "last"
        root = self._directory / name
        venv.create(root / "venv", with_pip=True)
        env = {**os.environ, "PATH": f"{root / 'venv' / 'bin'}:/usr/bin:/bin", "HOME": str(root)}
        stage = self.stages[name] = Stage(root, env, root)
        for step in rest:
            carry_out = getattr(self, f"_{step.word.lower()}", None)
            if carry_out is not None:  # the others say how the image is run, and do nothing now
                carry_out(stage, step)
        return stage

    def _workdir(self, stage: Stage, step: Step) -> None:
        stage.cwd = Path(stage.mapped(step.text))
        stage.cwd.mkdir(parents=True)

    def _copy(self, stage: Stage, step: Step) -> None:
        *sources, target = step.words
        for source in sources:
            if (ROOT / source).is_dir():
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / source, stage.cwd / target, ignore=ignore)
            else:
                shutil.copy(ROOT / source, stage.cwd / target)

    def _env(self, stage: Stage, step: Step) -> None:
        for word in step.words:
            name, _, value = word.partition("=")
            stage.env[name] = stage.mapped(value)

    def _run(self, stage: Stage, step: Step) -> None:
        if "mount" in step.options:
            mount = dict(part.split("=") for part in step.options["mount"].split(","))
            assert mount["type"] == "bind"
            stage.mounts[mount["target"]] = Path(self.stages[mount["from"]].mapped(mount["source"]))
        for command in step.text.split(" && "):
            if command.startswith("useradd "):  # it would make a user on this machine
                stage.left_out.append(command)
                continue
            owned = re.sub(r" --(?:owner|group)=\S+", "", command)  # by that user, who is not there
            if owned != command:
                stage.left_out.append(command)
            done = subprocess.run(
                ["/bin/sh", "-c", stage.mapped(owned)],
                cwd=stage.cwd,
                env=stage.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=200,
                check=False,
            )
            if done.returncode != 0:
                raise AssertionError(f"{command}\n{done.stdout[-4000:]}")


def package_index_is_there(directory: Path) -> bool:
    """Whether pip can get what builds a wheel; without it nothing can be said about the steps."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(directory)]
    return (
        subprocess.run([*command, "hatchling"], capture_output=True, timeout=60, check=False).returncode == 0
    )
