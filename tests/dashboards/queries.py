"""Every query of the committed dashboards, and what Grafana would put in place of their variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent.parent / "dashboards"
NAMES = ("overview", "effects", "store")
VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::\w+)?\}|(?P<bare>\w+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    dashboard: str
    panel_id: int
    panel: str
    panel_type: str
    ref_id: str
    expr: str
    instant: bool
    legend: str

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel} {self.ref_id}"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Without the rows, with what collapsed rows hold."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def every() -> Iterator[Asked]:
    for name in NAMES:
        for panel in panels(read(name)):
            for target in panel["targets"]:
                yield Asked(
                    dashboard=name,
                    panel_id=panel["id"],
                    panel=panel["title"],
                    panel_type=panel["type"],
                    ref_id=target["refId"],
                    expr=target["expr"],
                    instant=target.get("instant", False),
                    legend=target["legendFormat"],
                )


def variables(text: str) -> set[str]:
    return {match["braced"] or match["bare"] for match in VARIABLE.finditer(text)}


def substituted(
    expr: str,
    *,
    upstream: str = ".*",
    rule: str = ".*",
    instance: str = ".*",
    range: str = "5m",  # noqa: A002 - by Grafana's name
    rate_interval: str = "15s",
    interval: str = "15s",
) -> str:
    """A variable that Grafana would not know is a KeyError."""
    values = {
        "upstream": upstream,
        "rule": rule,
        "instance": instance,
        "__range": range,
        "__rate_interval": rate_interval,
        "__interval": interval,
    }
    return VARIABLE.sub(lambda match: values[match["braced"] or match["bare"]], expr)
