"""A panel with a table: one row for each combination of labels, a column for each query, in its order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dashboards.drawing.answers import Source
from dashboards.drawing.reading import Column, Panel, colour_of
from dashboards.drawing.sheet import COLOURS, GRID, INK, QUIET, Area, Sheet
from dashboards.drawing.units import shown

TEXT, LINE, GAP = 10.5, 22.0, 16.0


class Row(NamedTuple):
    labels: tuple[str, ...]
    values: Mapping[str, float]  # by the query's letter


class Cell(NamedTuple):
    text: str
    colour: str


def draw(sheet: Sheet, panel: Panel, area: Area, source: Source) -> bool:
    """Whether there was something to draw."""
    rows = _rows(panel, source)
    if not rows:
        centre = area.x + area.width / 2, area.y + area.height / 2
        sheet.write(*centre, panel.empty, 12, room=area.width, colour=QUIET, side="center")
        return False
    fits = max(1, int(area.height // LINE) - 1)
    shown_rows = rows[: fits - 1] if len(rows) > fits else rows
    cells = [[_cell(column, row, panel) for column in panel.columns] for row in shown_rows]
    heads = [Cell(column.title, QUIET) for column in panel.columns]
    widths = _widths(sheet, [heads, *cells], area.width)
    for number, line in enumerate([heads, *cells]):
        middle = area.y + LINE * (number + 0.5)
        if number:
            sheet.block(Area(area.x, area.y + LINE * number, area.width, 1), GRID, above=1)
        _write(sheet, panel.columns, line, widths, area.x, middle)
    if len(shown_rows) < len(rows):
        text = f"and {len(rows) - len(shown_rows)} more"
        y = area.y + LINE * (len(shown_rows) + 1.5)
        sheet.write(area.x, y, text, TEXT, room=area.width, colour=QUIET)
    return True


def _rows(panel: Panel, source: Source) -> list[Row]:
    """Merged as Grafana does: what has the same labels is one row."""
    labels = [column.label for column in panel.columns if column.label]
    merged: dict[tuple[str, ...], dict[str, float]] = {}
    for target in panel.targets:
        for series in source.at_the_end(target.expr):
            named = tuple(series.labels.get(label, "") for label in labels)
            if not math.isnan(series.values[-1]):
                merged.setdefault(named, {})[target.ref_id] = series.values[-1]
    (first,) = [column.ref_id for column in panel.columns if column.title == panel.sorted_by]
    found = [Row(named, values) for named, values in merged.items()]
    return sorted(found, key=lambda row: (-row.values.get(first, -math.inf), row.labels))


def _cell(column: Column, row: Row, panel: Panel) -> Cell:
    if column.label:
        labels = [one.label for one in panel.columns if one.label]
        text = row.labels[labels.index(column.label)]
        return Cell(text, INK) if text else Cell(column.empty, QUIET)
    value = row.values.get(column.ref_id)
    if value is None:
        return Cell(column.empty, QUIET)
    colour = COLOURS[colour_of(column.steps, value, "text")]
    return Cell(shown(value, column.unit, column.decimals), colour)


def _widths(sheet: Sheet, lines: Sequence[Sequence[Cell]], room: float) -> list[float]:
    """What each column needs, and its part of what is left over; or less, where that is too much."""
    needed = [max(sheet.measured(cell.text, TEXT) for cell in column) for column in zip(*lines, strict=True)]
    left = room - sum(needed) - GAP * (len(needed) - 1)
    if left >= 0:
        return [width + left / len(needed) for width in needed]
    total = sum(needed)
    return [width + left * width / total for width in needed]


def _write(
    sheet: Sheet, columns: Sequence[Column], line: Sequence[Cell], widths: Sequence[float], x: float, y: float
) -> None:
    """Labels from the left, numbers from the right."""
    for column, cell, width in zip(columns, line, widths, strict=True):
        if column.label:
            sheet.write(x, y, cell.text, TEXT, room=width, colour=cell.colour)
        else:
            sheet.write(x + width, y, cell.text, TEXT, room=width, colour=cell.colour, side="right")
        x += width + GAP
