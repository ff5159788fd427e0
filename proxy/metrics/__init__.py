"""Prometheus metrics by the names of the contract. Labels are bounded: names from policy files only.

Counting happens on every call and rendering a few times a minute, so counting is a dictionary's `+= 1` on
the event loop, and everything else is done when somebody asks.

    observer.py   what is counted: it hears what happened, and renders it
    counting.py   counters, levels and histograms: kept here, summed over workers, shown by prometheus_client
    zeros.py      which of them are shown before anything has happened
    standing.py   what the store says of itself when somebody asks
    described.py  all of them by name, for documents and dashboards
"""

from proxy.metrics.counting import Figures
from proxy.metrics.observer import CONTENT_TYPE, MetricsObserver

__all__ = ["CONTENT_TYPE", "Figures", "MetricsObserver"]
