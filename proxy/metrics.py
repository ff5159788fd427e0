"""Prometheus metrics by the names of the contract. Labels are bounded: names from policy files only.

Counting happens on every call and rendering a few times a minute, so counting is a dictionary's `+= 1` on
the event loop, and everything else is done when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, TypeAlias, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from proxy import __version__
from proxy.core.intent import State
from proxy.observe import COLLECTED, DIVERGED, DRIFT, POLLING, Deaf, Sent, Served
from proxy.store.base import Census

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
# From a replay (tenths of a millisecond) to a model's long answer.
_CALL_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_STORE_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
# Answers without a second send: what the product is for.
_PREVENTED = frozenset({"replayed", "joined"})


# What was counted, by metric: the label values and the number, or the row of a histogram.
Figures: TypeAlias = dict[str, list[tuple[list[str], Any]]]


class _Counter:
    def __init__(self, name: str, words: str, *labels: str) -> None:
        self.name, self.words, self.labels = name, words, labels
        self.values: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def family(self, others: Iterable[Figures]) -> Metric:
        family = CounterMetricFamily(self.name, self.words, labels=self.labels)
        values = self.values.copy()
        for figures in others:
            for names, value in figures.get(self.name, ()):
                values[tuple(names)] += value
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family

    def add(self, labels: tuple[str, ...], value: float) -> None:
        self.values[labels] += value


class _Histogram:
    def __init__(self, name: str, words: str, bounds: Sequence[float], *labels: str) -> None:
        self.name, self.words, self.bounds, self.labels = name, words, bounds, labels
        # Per label set: how many fell into each bucket (the last is +Inf), and their sum at the end.
        self.values: defaultdict[tuple[str, ...], list[float]] = defaultdict(
            lambda: [0.0] * (len(bounds) + 2)
        )

    def observe(self, labels: tuple[str, ...], value: float) -> None:
        row = self.values[labels]
        row[bisect_left(self.bounds, value)] += 1
        row[-1] += value

    def add(self, labels: tuple[str, ...], row: Sequence[float]) -> None:
        self.values[labels] = [here + there for here, there in zip(self.values[labels], row, strict=True)]

    def family(self, others: Iterable[Figures]) -> Metric:
        family = HistogramMetricFamily(self.name, self.words, labels=self.labels)
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        summed = _Histogram(self.name, self.words, self.bounds)
        for labels, row in [
            *self.values.items(),
            *((tuple(labels), row) for figures in others for labels, row in figures.get(self.name, ())),
        ]:
            summed.add(labels, row)
        for labels, row in summed.values.items():
            family.add_metric(labels, list(zip(names, accumulate(row[:-1]), strict=True)), row[-1])
        return family


class MetricsObserver(Deaf):
    def __init__(self, *, store: str) -> None:
        self._store = store
        self._census: Census | None = None
        self._others: Sequence[Figures] = ()
        self._now = 0.0
        self._calls = _Counter(
            "semel_calls", "Calls answered, by what semel did", "upstream", "rule", "mode", "status"
        )
        self._prevented = _Counter(
            "semel_duplicates_prevented",
            "Calls with effects answered without a second send",
            "upstream",
            "rule",
        )
        self._responses = _Counter(
            "semel_upstream_responses",
            "What upstreams answered; lost and not_sent where they did not",
            "upstream",
            "rule",
            "code",
        )
        self._problems = _Counter("semel_problems", "semel's own answers", "type")
        self._saved = _Counter(
            "semel_saved_usd", "What answers given again would have cost", "upstream", "rule"
        )
        self._spent = _Counter("semel_spent_usd", "What executed calls cost", "upstream", "rule")
        self._divergences = _Counter("semel_divergences", "Calls held because an attempt left its record")
        self._polls = _Counter(
            "semel_suspected_polls", "Replays of one call that look like polling", "upstream", "rule"
        )
        self._drifts = _Counter(
            "semel_drifts", "Answers fetched anew that differ from the recorded ones", "upstream", "rule"
        )
        self._collected = _Counter(
            "semel_collected", "What collecting has removed: calls, runs, blobs", "what"
        )
        self._collected_bytes = _Counter("semel_collected_bytes", "Content that collecting has removed")
        self._notifications = _Counter(
            "semel_notifications",
            "What became of notifications; failed ones are tried again",
            "type",
            "result",
        )
        self._reloads = _Counter("semel_policy_reloads", "Policy reloads", "result")
        self._would = _Counter(
            "semel_shadow_calls",
            "Calls that were only looked on at, by what semel would have done",
            "upstream",
            "rule",
            "would",
        )
        self._would_problems = _Counter(
            "semel_shadow_problems", "What semel would have answered itself", "type"
        )
        self._would_prevent = _Counter(
            "semel_shadow_duplicates_prevented",
            "Calls with effects that would have been answered without a second send",
            "upstream",
            "rule",
        )
        self._would_save = _Counter(
            "semel_shadow_saved_usd", "What answers that would have been given again cost", "upstream", "rule"
        )
        self._call_seconds = _Histogram(
            "semel_call_seconds",
            "From the request's head to the reply's end",
            _CALL_BOUNDS,
            "upstream",
            "status",
        )
        self._upstream_seconds = _Histogram(
            "semel_upstream_seconds", "One exchange with an upstream", _CALL_BOUNDS, "upstream", "rule"
        )
        self._store_seconds = _Histogram(
            "semel_store_seconds", "One operation of the store", _STORE_BOUNDS, "op"
        )
        self._counters = (
            self._calls,
            self._prevented,
            self._responses,
            self._saved,
            self._spent,
            self._problems,
            self._divergences,
            self._polls,
            self._drifts,
            self._collected,
            self._collected_bytes,
            self._reloads,
            self._notifications,
            self._would,
            self._would_problems,
            self._would_prevent,
            self._would_save,
        )
        self._histograms = (self._call_seconds, self._upstream_seconds, self._store_seconds)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def served(self, told: Served) -> None:
        self._calls.values[told.upstream, told.rule, told.mode, told.status] += 1
        self._call_seconds.observe((told.upstream, told.status), told.seconds)
        if told.cost_usd > 0 and told.status == "executed":
            self._spent.values[told.upstream, told.rule] += told.cost_usd
        _count(told, self._prevented, self._saved, self._problems)

    def shadowed(self, told: Served, would: str) -> None:
        """What was only looked on at, by the same measure."""
        self._would.values[told.upstream, told.rule, would] += 1
        _count(told, self._would_prevent, self._would_save, self._would_problems)

    def sent(self, told: Sent) -> None:
        self._responses.values[told.upstream, told.rule, told.code] += 1
        self._upstream_seconds.observe((told.upstream, told.rule), told.seconds)

    def store_took(self, operation: str, seconds: float) -> None:
        self._store_seconds.observe((operation,), seconds)

    def reloaded(self, *, good: bool, detail: str) -> None:
        self._reloads.values[("good" if good else "bad",)] += 1

    def noted(self, event: str, **fields: object) -> None:
        if event == DIVERGED:
            self._divergences.values[()] += 1
        elif event == DRIFT:
            self._drifts.values[str(fields["upstream"]), str(fields["rule"])] += 1
        elif event == COLLECTED:
            for what in ("calls", "runs", "blobs"):
                self._collected.values[(what,)] += cast("int", fields[what])
            self._collected_bytes.values[()] += cast("int", fields["bytes"])
        elif event == POLLING:
            self._polls.values[str(fields["upstream"]), str(fields["rule"])] += 1

    def notified(self, kind: str, result: str) -> None:
        """Counted apart from what is told: what is dropped comes in thousands, and the log says it once."""
        self._notifications.values[kind, result] += 1

    def figures(self) -> Figures:
        """What this process has counted, for whoever sums."""
        return {one.name: [(list(k), v) for k, v in one.values.items()] for one in self._all()}

    def take_over(self, figures: Figures) -> None:
        """Go on where another process has ended: a counter that falls would be taken for a restart."""
        for one in self._all():
            for labels, value in figures.get(one.name, ()):
                one.add(tuple(labels), value)

    def _all(self) -> Iterable[_Counter | _Histogram]:
        return (*self._counters, *self._histograms)

    def render(self, census: Census | None, now: float, others: Sequence[Figures] = ()) -> bytes:
        """`census` is None when the store does not answer: the rest is shown all the same. `others`: what
        further workers have counted."""
        self._census, self._now, self._others = census, now, others
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Asked by prometheus_client while rendering."""
        yield from (one.family(self._others) for one in self._all())
        if self._census is not None:
            yield from _store_families(self._census, self._now)
        build = {"version": __version__, "store": self._store}
        yield InfoMetricFamily("semel_build", "What is running", value=build)


def _count(told: Served, prevented: _Counter, saved: _Counter, problems: _Counter) -> None:
    if told.status in _PREVENTED:
        if not told.safe:
            prevented.values[told.upstream, told.rule] += 1
        if told.cost_usd > 0:
            saved.values[told.upstream, told.rule] += told.cost_usd
    if told.problem:
        problems.values[(told.problem,)] += 1


def _store_families(census: Census, now: float) -> Iterable[Metric]:
    states = GaugeMetricFamily("semel_calls_in_state", "Calls in the store", labels=["state"])
    for state in State:
        states.add_metric([str(state)], census.by_state.get(state, 0))
    yield states
    oldest = census.oldest_doubt_at
    age = 0.0 if oldest is None else max(0.0, now - oldest)
    yield GaugeMetricFamily("semel_oldest_in_doubt_seconds", "Age of the oldest call in doubt", value=age)
    yield GaugeMetricFamily("semel_store_bytes", "Size of the store", value=census.bytes_used)
    parts = GaugeMetricFamily("semel_store_part_bytes", "The same by part", labels=["part"])
    for part, size in census.parts.items():
        parts.add_metric([part], size)
    yield parts
    yield CounterMetricFamily(
        "semel_cache_evictions", "Shared answers evicted before their time", value=census.cache_evictions
    )
