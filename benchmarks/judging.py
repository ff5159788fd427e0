"""What is wanted of a figure, and the mark that it gets; all that one run has found.

Three marks: met; within a tenth, which fails nothing, since two runs on one machine differ by that much;
missed. What could not be measured has no mark and fails nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

SLACK = 0.1

Relation = Literal["at least", "at most"]


class Mark(StrEnum):
    MET = "met"
    NEARLY = "within a tenth"
    MISSED = "missed"


class Check(NamedTuple):
    """One line: a figure, and what is wanted of it."""

    name: str
    value: float
    relation: Relation
    bound: float

    @property
    def mark(self) -> Mark:
        if self.relation == "at least":
            short, far = self.value < self.bound, self.value < self.bound * (1 - SLACK)
        else:
            short, far = self.value > self.bound, self.value > self.bound * (1 + SLACK)
        return Mark.MISSED if far else Mark.NEARLY if short else Mark.MET


class Rates(NamedTuple):
    """Requests per second, one figure a round, and how they were asked for."""

    connections: int
    requests: int
    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


class Unmeasured(NamedTuple):
    """What was wanted of it, and why there is no figure."""

    name: str
    relation: Relation
    bound: float
    why: str


@dataclass(slots=True)
class Found:
    """`shown` is measured along and not judged."""

    rates: dict[str, Rates] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    shown: dict[str, float] = field(default_factory=dict)
    unmeasured: list[Unmeasured] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)

    def judge(self, name: str, value: float, relation: Relation, bound: float) -> None:
        self.checks.append(Check(name, value, relation, bound))

    def ratio(self, name: str, against: str) -> float:
        """Within each round, then the median: a slow minute of the machine hits both sides of a ratio."""
        return ratio(self.rates[name].values, self.rates[against].values)


def ratio(values: Sequence[float], against: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(values, against, strict=True))


def said(check: Check, *, small: bool) -> str:
    return "too small to judge" if small else check.mark


def missed(checks: Sequence[Check], *, small: bool) -> list[str]:
    """By more than a tenth. A small run is judged by nothing: that it came to its end is what was asked."""
    return [check.name for check in checks if check.mark is Mark.MISSED and not small]
