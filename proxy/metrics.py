"""Prometheus metrics by the names of the contract. Labels are bounded: names from policy files only."""

from __future__ import annotations

from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from proxy import __version__
from proxy.core.intent import State
from proxy.observe import Sent, Served
from proxy.store.base import Census

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
# From a replay (tenths of a millisecond) to a model's long answer.
_CALL_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_STORE_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
# Answers without a second send: what the product is for.
_PREVENTED = frozenset({"replayed", "joined"})


class MetricsObserver:
    def __init__(self, *, store: str) -> None:
        self.registry = registry = CollectorRegistry()
        self._calls = Counter(
            "semel_calls_total",
            "Calls answered, by what semel did",
            ["upstream", "rule", "mode", "status"],
            registry=registry,
        )
        self._prevented = Counter(
            "semel_duplicates_prevented_total",
            "Calls with effects answered without a second send",
            ["upstream", "rule"],
            registry=registry,
        )
        self._call_seconds = Histogram(
            "semel_call_seconds",
            "From the request's head to the reply's end",
            ["upstream", "status"],
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self._upstream_seconds = Histogram(
            "semel_upstream_seconds",
            "One exchange with an upstream",
            ["upstream", "rule"],
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self._store_seconds = Histogram(
            "semel_store_seconds",
            "One operation of the store",
            ["op"],
            buckets=_STORE_BUCKETS,
            registry=registry,
        )
        self._responses = Counter(
            "semel_upstream_responses_total",
            "What upstreams answered; lost and not_sent where they did not",
            ["upstream", "rule", "code"],
            registry=registry,
        )
        self._problems = Counter("semel_problems_total", "semel's own answers", ["type"], registry=registry)
        self._reloads = Counter("semel_policy_reloads_total", "Policy reloads", ["result"], registry=registry)
        self._in_state = Gauge("semel_calls_in_state", "Calls in the store", ["state"], registry=registry)
        self._oldest = Gauge(
            "semel_oldest_in_doubt_seconds", "Age of the oldest call in doubt", registry=registry
        )
        self._bytes = Gauge("semel_store_bytes", "Size of the store", registry=registry)
        self._evictions = Gauge(
            "semel_cache_evictions_total", "Shared answers evicted before their time", registry=registry
        )
        Info("semel_build", "What is running", registry=registry).info(
            {"version": __version__, "store": store}
        )
        # Finding a child by its labels costs more than counting: remember each.
        self._calls_of = lru_cache(maxsize=4096)(self._calls.labels)
        self._prevented_of = lru_cache(maxsize=4096)(self._prevented.labels)
        self._seconds_of = lru_cache(maxsize=4096)(self._call_seconds.labels)
        self._upstream_of = lru_cache(maxsize=4096)(self._upstream_seconds.labels)
        self._store_of = lru_cache(maxsize=64)(self._store_seconds.labels)
        self._responses_of = lru_cache(maxsize=4096)(self._responses.labels)

    def served(self, told: Served) -> None:
        self._calls_of(told.upstream, told.rule, told.mode, told.status).inc()
        self._seconds_of(told.upstream, told.status).observe(told.seconds)
        if told.status in _PREVENTED and not told.safe:
            self._prevented_of(told.upstream, told.rule).inc()
        if told.problem:
            self._problems.labels(told.problem).inc()

    def sent(self, told: Sent) -> None:
        self._responses_of(told.upstream, told.rule, told.code).inc()
        self._upstream_of(told.upstream, told.rule).observe(told.seconds)

    def store_took(self, operation: str, seconds: float) -> None:
        self._store_of(operation).observe(seconds)

    def reloaded(self, *, good: bool, detail: str) -> None:
        self._reloads.labels("good" if good else "bad").inc()

    def noted(self, event: str, **fields: object) -> None:
        """For the log only."""

    def render(self, census: Census | None, now: float) -> bytes:
        """`census` is None when the store does not answer: the rest is shown all the same."""
        if census is not None:
            for state in State:
                self._in_state.labels(str(state)).set(census.by_state.get(state, 0))
            oldest = census.oldest_doubt_at
            self._oldest.set(0 if oldest is None else max(0.0, now - oldest))
            self._bytes.set(census.bytes_used)
            self._evictions.set(census.cache_evictions)
        return generate_latest(self.registry)
