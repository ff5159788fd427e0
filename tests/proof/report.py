"""What a run of the proof did, in figures: one line of JSON per part, appended to the file of SEMEL_REPORT.

A line says of which commit it tells: the one that was there when the run began, with a plus behind it where
files were changed. It is written in one piece, so several processes may write to one file. Where the variable
is not set, the figures are printed only: pytest shows them when a test fails, `-s` always.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

Figure = int | float | str | list[str] | dict[str, int] | dict[str, float]

ROOT = Path(__file__).parents[2]


def commit_of(root: Path) -> str:
    """Its short name; "unknown" where git is not there, or `root` is not a repository of its own."""

    def git(*words: str) -> list[str]:
        command = ("git", "--no-optional-locks", "-C", str(root), *words)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    try:
        top, commit = git("rev-parse", "--show-toplevel", "--short", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}{'+' if changed else ''}" if Path(top).samefile(root) else "unknown"


# Before anything runs: after hours the files may be others.
COMMIT = commit_of(ROOT)


def report(part: str, name: str, figures: Mapping[str, Figure]) -> None:
    """`part` is a section of docs/proof.md, `name` what was tried in it. The last line of a name counts."""
    told = {"part": part, "name": name, "at": int(time.time()), "commit": COMMIT, **figures}
    line = json.dumps(told, sort_keys=True)
    print(line)
    if path := os.environ.get("SEMEL_REPORT"):
        with Path(path).open("a") as file:
            file.write(line + "\n")
