"""What the panels are drawn from: a Prometheus's answers to their queries, over one window of time.

What Grafana puts in place of a dashboard's variables is put in here: everything is shown, and a rate is over
`Window.rate` seconds.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

TIMEOUT = 30.0
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::\w+)?\}|(?P<bare>\w+))")


class Series(NamedTuple):
    """One line, or one number: then it has one sample."""

    labels: Mapping[str, str]
    times: Sequence[float]
    values: Sequence[float]


class Window(NamedTuple):
    """In seconds; `step` is the time between two points of a line."""

    start: float
    end: float
    step: float = 1.0
    rate: float = 15.0

    def filled_in(self, expr: str) -> str:
        """A variable that is not known is a KeyError."""
        values = {
            "upstream": ".*",
            "rule": ".*",
            "instance": ".*",
            "__range": f"{self.end - self.start:.0f}s",
            "__rate_interval": f"{self.rate:.0f}s",
            "__interval": f"{max(self.step, 1):.0f}s",
        }
        return _VARIABLE.sub(lambda match: values[match["braced"] or match["bare"]], expr)


class Source(Protocol):
    """Expressions are as the dashboard has them, with its variables."""

    @property
    def window(self) -> Window: ...

    def over_time(self, expr: str) -> list[Series]: ...

    def at_the_end(self, expr: str) -> list[Series]: ...


class NotAnswered(Exception):
    """Prometheus does not answer such a query; it says why."""


class FromPrometheus:
    """Over HTTP, one query after the other."""

    def __init__(self, url: str, window: Window) -> None:
        self._url = url.rstrip("/")
        self._window = window
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def window(self) -> Window:
        return self._window

    def over_time(self, expr: str) -> list[Series]:
        start, end, step, _ = self._window
        found = self._ask("query_range", expr, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step:.3f}")
        return [_series(one["metric"], one["values"]) for one in found["result"]]

    def at_the_end(self, expr: str) -> list[Series]:
        found = self._ask("query", expr, time=f"{self._window.end:.3f}")
        if found["resultType"] == "scalar":
            return [_series({}, [found["result"]])]
        return [_series(one["metric"], [one["value"]]) for one in found["result"]]

    def _ask(self, what: str, expr: str, **more: str) -> dict[str, Any]:
        form = urllib.parse.urlencode({"query": self._window.filled_in(expr), **more}).encode()
        try:
            with self._opener.open(f"{self._url}/api/v1/{what}", form, TIMEOUT) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise NotAnswered(f"{expr}: {error.read().decode(errors='replace')}") from None
        data: dict[str, Any] = told["data"]
        return data


def _series(labels: Mapping[str, str], points: Sequence[tuple[float, str]]) -> Series:
    named = {name: value for name, value in labels.items() if name != "__name__"}
    return Series(named, [float(at) for at, _ in points], [float(value) for _, value in points])
