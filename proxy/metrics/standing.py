"""What the store says of itself when somebody asks. Every process on it says the same: not to be summed."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from proxy.core.intent import State
from proxy.store.base import Census


def families(census: Census, now: float) -> Iterable[Metric]:
    states = GaugeMetricFamily("semel_calls_in_state", "Calls in the store", labels=["state"])
    for state in State:
        states.add_metric([str(state)], census.by_state.get(state, 0))
    yield states
    yield GaugeMetricFamily(
        "semel_oldest_in_doubt_seconds",
        "Age of the oldest call in doubt",
        value=_age(census.oldest_doubt_at, now),
    )
    yield GaugeMetricFamily(
        "semel_oldest_awaiting_approval_seconds",
        "Age of the oldest call that waits for approval, from when it was first asked for",
        value=_age(census.oldest_question_at, now),
    )
    yield GaugeMetricFamily(
        "semel_owners", "Processes that work on the store and live, as this one sees it", value=census.owners
    )
    yield GaugeMetricFamily("semel_store_bytes", "Size of the store", value=census.bytes_used)
    parts = GaugeMetricFamily("semel_store_part_bytes", "The same by part", labels=["part"])
    for part, size in census.parts.items():
        parts.add_metric([part], size)
    yield parts


def _age(since: float | None, now: float) -> float:
    return 0.0 if since is None else max(0.0, now - since)
