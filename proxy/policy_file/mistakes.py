"""A mistake has a place and a sentence; all of them are told at once.

Nobody wants to mend a file one error at a time, so readers note what is wrong and read on. Only when
everything has been read is one exception raised, with all mistakes in the order of the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from proxy.errors import ConfigurationError

_LONGEST_MESSAGE = 400
# Nobody mends more at a time. A file of a mebibyte could have four hundred thousand, and each costs time.
MOST_MISTAKES = 200


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something stands, counted from one. Without a line: a variable or a flag, by its name."""

    file: str
    line: int = 0
    col: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}" if self.line else self.file


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    file: str
    line: int
    col: int
    message: str

    def __str__(self) -> str:
        return f"{Place(self.file, self.line, self.col)}: {self.message}"


class Mistakes(ConfigurationError):
    """Everything that is wrong, sorted by place; its text has one line for each."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes: tuple[Mistake, ...] = tuple(sorted(set(mistakes)))
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class PolicyMistakes(Mistakes):
    """In policy files."""


class SettingsMistakes(Mistakes):
    """In semel.yaml, the environment or the flags."""


class Log:
    """Collects mistakes while reading goes on. A mistake noted twice (a preset read twice) counts once."""

    def __init__(self) -> None:
        self._noted: set[Mistake] = set()
        self._count = 0

    def add(self, at: Place, message: str) -> None:
        """Raises Enough when there are so many that reading on is of no use."""
        self._count += 1
        if len(self._noted) < MOST_MISTAKES:
            self._noted.add(Mistake(at.file, at.line, at.col, _one_line(message)))
            return
        if len(self._noted) == MOST_MISTAKES:
            more = f"from here on there are more mistakes: mend these {MOST_MISTAKES} first"
            self._noted.add(Mistake(at.file, at.line, at.col, more))
        raise Enough

    def __len__(self) -> int:
        """Grows with every mistake noted, so that a reader can see whether its part was without."""
        return self._count

    @property
    def noted(self) -> frozenset[Mistake]:
        return frozenset(self._noted)


def _one_line(message: str) -> str:
    """What a file says ends up on a terminal: without line breaks, escape sequences, or whole novels."""
    shown = message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + "…"
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in shown)


class Wrong(Exception):
    """Ends the reading of one value. Without a message everything has been noted already."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message)
        self.message = message


class Enough(Wrong):
    """Ends all reading."""


def nearest(word: str, known: Sequence[str]) -> str | None:
    """What was probably meant, if anything comes near."""
    near = get_close_matches(word[:80], known, n=1, cutoff=0.6)
    return near[0] if near else None


def suggestion(word: str, known: Sequence[str]) -> str:
    """`: did you mean 'x'?`, or nothing where nothing is near."""
    near = nearest(word, known)
    return f": did you mean '{near}'?" if near else ""
