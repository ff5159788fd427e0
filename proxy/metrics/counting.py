"""What is counted in this process, and how it is summed with what other workers have counted."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, ClassVar, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

# What was counted, by metric: the label values and the number, or the row of a histogram.
Figures: TypeAlias = dict[str, list[tuple[list[str], Any]]]
Labels: TypeAlias = tuple[str, ...]


class Counter:
    """`values[labels] += 1` counts. Who takes a dead worker's place goes on where that ended."""

    _family: ClassVar[type[CounterMetricFamily] | type[GaugeMetricFamily]] = CounterMetricFamily

    def __init__(self, name: str, words: str, *labels: str) -> None:
        self.name, self.words, self.labels = name, words, labels
        self.values: defaultdict[Labels, float] = defaultdict(float)
        if not labels:
            self.values[()] = 0.0

    def begin(self, labels: Iterable[Labels]) -> None:
        """Shown from now on: a counter that first appears as 1 has not grown by anything, for Prometheus."""
        for each in labels:
            self.values.setdefault(each, 0.0)

    def figures(self) -> list[tuple[list[str], Any]]:
        return [(list(labels), value) for labels, value in self.values.items()]

    def take_over(self, figures: Iterable[tuple[list[str], Any]]) -> None:
        for labels, value in figures:
            self.values[tuple(labels)] += value

    def family(self, others: Iterable[Figures]) -> Metric:
        family = self._family(self.name, self.words, labels=self.labels)
        values: defaultdict[Labels, float] = defaultdict(float)
        for figures in ({self.name: self.figures()}, *others):
            for names, value in figures.get(self.name, ()):
                values[tuple(names)] += value
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family


class Level(Counter):
    """What holds of a worker now, summed over workers. It ends with the worker."""

    _family = GaugeMetricFamily

    def take_over(self, figures: Iterable[tuple[list[str], Any]]) -> None:
        """The one before is gone, and what held of it."""


class Reading(Counter):
    """A counter that somebody else keeps, from zero in each process, and that is read when it is told."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(name, words)
        self.read: Callable[[], float] = lambda: 0.0

    def figures(self) -> list[tuple[list[str], Any]]:
        return [([], self.values[()] + self.read())]


class Histogram:
    def __init__(self, name: str, words: str, bounds: Sequence[float], *labels: str) -> None:
        self.name, self.words, self.bounds, self.labels = name, words, bounds, labels
        # Per label set: how many fell into each bucket (the last is +Inf), and their sum at the end.
        self.values: defaultdict[Labels, list[float]] = defaultdict(lambda: [0.0] * (len(bounds) + 2))
        if not labels:
            self.begin([()])

    def begin(self, labels: Iterable[Labels]) -> None:
        for each in labels:
            self.values[each]

    def observe(self, labels: Labels, value: float) -> None:
        row = self.values[labels]
        row[bisect_left(self.bounds, value)] += 1
        row[-1] += value

    def observing(self, labels: Labels) -> Callable[[float], None]:
        """`observe` for these labels, where every call does it: a row stays the same list for ever."""
        row, bounds = self.values[labels], self.bounds

        def observe(value: float) -> None:
            row[bisect_left(bounds, value)] += 1
            row[-1] += value

        return observe

    def figures(self) -> list[tuple[list[str], Any]]:
        return [(list(labels), row) for labels, row in self.values.items()]

    def take_over(self, figures: Iterable[tuple[list[str], Any]]) -> None:
        _sum_up(self.values, figures)

    def family(self, others: Iterable[Figures]) -> Metric:
        family = HistogramMetricFamily(self.name, self.words, labels=self.labels)
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        summed: dict[Labels, list[float]] = {}
        for figures in ({self.name: self.figures()}, *others):
            _sum_up(summed, figures.get(self.name, ()))
        for labels, row in summed.items():
            family.add_metric(labels, list(zip(names, accumulate(row[:-1]), strict=True)), row[-1])
        return family


def _sum_up(rows: dict[Labels, list[float]], figures: Iterable[tuple[list[str], Any]]) -> None:
    for names, row in figures:
        present = rows.setdefault(tuple(names), [0.0] * len(row))
        present[:] = [here + there for here, there in zip(present, row, strict=True)]
