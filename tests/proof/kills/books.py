"""The upstream's books: a file to which it appends one line, in one write, before it does anything.

A line that is written is a thing that happened: SIGKILL cannot take it back. The answer to a thing follows
from its line, so that whoever reads the books knows what was answered, or would have been.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    serial: int
    at: float  # time.time()
    what: str  # "act", "visit" of a safe call, "again" under a key it knows, "probe"
    kind: str
    step: str
    size: int
    key: str = ""


def answer_to(line: Line) -> bytes:
    """No two acts have the same: a call that was made twice would be seen by its answer, too."""
    return json.dumps({"serial": line.serial, "step": line.step, "pad": "." * line.size}).encode()


def said_to(line: Line) -> tuple[int, tuple[str, str], bytes]:
    """The whole answer: status, type and serial, body."""
    return 200, ("application/json", str(line.serial)), answer_to(line)


class Books:
    """Reads on from where it stopped. A writer uses `append`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.lines: list[Line] = []
        self.acts: dict[str, list[Line]] = defaultdict(list)  # by step: what happened, visits too
        self.by_key: dict[str, Line] = {}

    def look(self) -> Books:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        break  # being written just now
                    self._read += len(raw)
                    self._note(Line(*json.loads(raw)))
        return self

    def append(self, descriptor: int, line: Line) -> None:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
        self._note(line)

    def _note(self, line: Line) -> None:
        self.lines.append(line)
        if line.what in ("act", "visit"):
            self.acts[line.step].append(line)
        if line.what == "act" and line.key:
            self.by_key[line.key] = line
