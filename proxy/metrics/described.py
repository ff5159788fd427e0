"""Every metric there is, with its labels: for the documents and the dashboards, so that nobody lists them."""

from __future__ import annotations

from typing import NamedTuple

from proxy.metrics.observer import MetricsObserver
from proxy.store.base import Census

# As Prometheus shows a family of this kind.
_SUFFIX = {"counter": "_total", "info": "_info"}


class Described(NamedTuple):
    """`name`: as it is asked for; of a histogram without `_bucket`, `_sum`, `_count`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    words: str


def described() -> list[Described]:
    observer = MetricsObserver()
    observer.render("", Census(by_state={}, oldest_doubt_at=None, bytes_used=0, parts={"rows": 0}), 0.0)
    labels = {one.name: one.labels for one in observer.counted}
    return [
        Described(
            name=family.name + _SUFFIX.get(family.type, ""),
            kind="gauge" if family.type == "info" else family.type,
            labels=labels[family.name] if family.name in labels else tuple(family.samples[0].labels),
            words=family.documentation,
        )
        for family in observer.collect()
    ]
