"""A dashboard's file, read into what is drawn. What these dashboards do not use is an error where it would
change the picture: a kind of panel that nobody draws must not be left out in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

KINDS = ("stat", "timeseries", "table")
_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class UnknownPanel(Exception):
    """There is no way to draw it here."""


class Box(NamedTuple):
    """On the grid of 24 columns."""

    x: int
    y: int
    width: int
    height: int


class Target(NamedTuple):
    ref_id: str
    expr: str
    legend: str
    instant: bool

    def named(self, labels: Mapping[str, str]) -> str:
        return _LABEL.sub(lambda match: labels.get(match[1], ""), self.legend)


class Step(NamedTuple):
    value: float  # from here on
    colour: str


def colour_of(steps: Sequence[Step], value: float, otherwise: str) -> str:
    reached = [step.colour for step in steps if value >= step.value]
    return reached[-1] if reached else otherwise


class Column(NamedTuple):
    """Of a table: a label's, or with `ref_id` that of a query."""

    title: str
    label: str = ""
    ref_id: str = ""
    unit: str = "locale"
    decimals: int | None = None
    empty: str = ""
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    kind: str
    title: str
    box: Box
    targets: tuple[Target, ...]
    unit: str
    decimals: int | None
    empty: str
    steps: tuple[Step, ...]
    # of a number
    label: str = ""  # shown in place of the value
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # by the label's value
    # of lines
    minimum: float | None = None
    maximum: float | None = None
    linear_below: float = 0.0  # with a logarithmic scale above
    stacked: bool = False
    filled: float = 0.0
    legend_right: bool = False
    calculated: tuple[str, ...] = ()
    # of a table
    columns: tuple[Column, ...] = ()
    sorted_by: str = ""


class Section(NamedTuple):
    title: str
    collapsed: bool
    panels: tuple[Panel, ...]


class Dashboard(NamedTuple):
    title: str
    sections: tuple[Section, ...]


def read(path: Path) -> Dashboard:
    return dashboard(json.loads(path.read_text(encoding="utf-8")))


def dashboard(said: Mapping[str, Any]) -> Dashboard:
    sections: list[Section] = []
    for one in said["panels"]:
        if one["type"] == "row":
            inside = tuple(panel(each) for each in one.get("panels", ()))
            sections.append(Section(one["title"], bool(one.get("collapsed")), inside))
        else:
            last = sections.pop() if sections else Section("", collapsed=False, panels=())
            sections.append(last._replace(panels=(*last.panels, panel(one))))
    return Dashboard(said["title"], tuple(sections))


def panel(said: Mapping[str, Any]) -> Panel:
    if said["type"] not in KINDS:
        raise UnknownPanel(f"{said.get('title', '')}: {said['type']}")
    defaults: Mapping[str, Any] = said["fieldConfig"]["defaults"]
    if said["type"] != "table" and said["fieldConfig"]["overrides"]:
        raise UnknownPanel(f"{said['title']}: {said['type']} with overrides")
    where = said["gridPos"]
    return Panel(
        kind=said["type"],
        title=said["title"],
        box=Box(where["x"], where["y"], where["w"], where["h"]),
        targets=tuple(_target(one) for one in said["targets"]),
        unit=defaults["unit"],
        decimals=defaults.get("decimals"),
        empty=defaults.get("noValue", "no data"),
        steps=_steps(defaults.get("thresholds", {})),
        **_OF_KIND[said["type"]](said, defaults),
    )


def _target(said: Mapping[str, Any]) -> Target:
    return Target(said["refId"], said["expr"], said["legendFormat"], said.get("instant", False))


def _steps(thresholds: Mapping[str, Any]) -> tuple[Step, ...]:
    """The first holds from below: it has no value, or null."""
    said = ((one.get("value"), one["color"]) for one in thresholds.get("steps", ()))
    return tuple(Step(float("-inf") if value is None else value, colour) for value, colour in said)


def _of_a_number(said: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    words = {
        value: (result["text"], result["color"])
        for mapping in defaults.get("mappings", ())
        for value, result in mapping["options"].items()
    }
    fields = said["options"]["reduceOptions"].get("fields", "")
    return {"label": fields.strip("/^$"), "words": words}


def _of_lines(said: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    custom, legend = defaults["custom"], said["options"]["legend"]
    scale = custom.get("scaleDistribution", {})
    if scale and scale["type"] != "symlog":
        raise UnknownPanel(f"{said['title']}: a scale {scale['type']}")
    return {
        "minimum": defaults.get("min"),
        "maximum": defaults.get("max"),
        "linear_below": scale.get("linearThreshold", 0.0),
        "stacked": custom.get("stacking", {}).get("mode") == "normal",
        "filled": custom.get("fillOpacity", 0) / 100,
        "legend_right": legend["placement"] == "right",
        "calculated": tuple(legend["calcs"]),
    }


def _of_a_table(said: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    del defaults
    (organize,) = [one["options"] for one in said["transformations"] if one["id"] == "organize"]
    titles: Mapping[str, str] = organize["renameByName"]
    ordered = sorted(titles, key=lambda name: organize["indexByName"][name])
    labels = [name for name in ordered if not name.startswith("Value")]
    columns = [Column(titles[name], label=name) for name in labels]
    columns += [
        Column(titles[f"Value #{one['refId']}"], ref_id=one["refId"]) for one in said["targets"]
    ]  # fmt: skip
    told: dict[str, dict[str, Any]] = {}
    for override in said["fieldConfig"]["overrides"]:
        properties = {one["id"]: one["value"] for one in override["properties"]}
        told.setdefault(override["matcher"]["options"], {}).update(properties)
    (first,) = said["options"]["sortBy"]
    return {
        "columns": tuple(_overridden(column, told.get(column.title, {})) for column in columns),
        "sorted_by": first["displayName"],
    }


def _overridden(column: Column, told: Mapping[str, Any]) -> Column:
    mapped = [one["options"]["result"]["text"] for one in told.get("mappings", ())]
    return column._replace(
        unit=told.get("unit", column.unit),
        decimals=told.get("decimals"),
        empty=mapped[0] if mapped else told.get("noValue", ""),
        steps=_steps(told.get("thresholds", {})),
    )


_OF_KIND = {"stat": _of_a_number, "timeseries": _of_lines, "table": _of_a_table}
