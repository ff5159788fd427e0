"""What commands print: tables for people, JSON for programs; and how they fail.

Every command that reports something takes `--json` and then prints one JSON document that fits the `SCHEMA`
of its module. Errors go to stderr, with what to do about them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

DONE, REFUSED, USAGE = 0, 1, 2


class Refused(Exception):
    """Refused or not found: the message says what to do, the exit status is 1."""


def add_json(command: argparse._ActionsContainer) -> None:
    command.add_argument("--json", action="store_true", help="print JSON for programs")


def print_json(document: object) -> None:
    """To a terminal in ASCII: characters that would drive it, or turn the text around, are escaped."""
    print(json.dumps(document, indent=2, ensure_ascii=sys.stdout.isatty()))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell. Control characters never reach a terminal."""
    cells = [[printable(cell) for cell in row] for row in (titles, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def counted(number: int, one: str) -> str:
    """`1 warning`, `2 warnings`."""
    return f"{number} {one}{'' if number == 1 else 's'}"


def printable(value: object) -> str:
    """What others have written (labels, reasons, bodies) must not drive the terminal."""
    text = "" if value is None else str(value)
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def warn(text: str) -> None:
    """A message may name what others have written: a file, a label. Line breaks are ours."""
    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)
