"""What a run of the proof did, in figures: one line of JSON per part, appended to the file of SEMEL_REPORT.

A line is written in one piece, so several processes may write to one file. Where the variable is not set,
the figures are printed only: pytest shows them when a test fails, `-s` always.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

Figure = int | float | str | list[str] | dict[str, int] | dict[str, float]


def report(part: str, name: str, figures: Mapping[str, Figure]) -> None:
    """`part` is a section of docs/proof.md, `name` what was tried in it. The last line of a name counts."""
    line = json.dumps({"part": part, "name": name, "at": int(time.time()), **figures}, sort_keys=True)
    print(line)
    if path := os.environ.get("SEMEL_REPORT"):
        with Path(path).open("a") as file:
            file.write(line + "\n")
