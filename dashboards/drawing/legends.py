"""What the lines of a panel are called: a table beside them with the last and the highest value, or a list
below. What has no room is counted, not left out in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dashboards.drawing.reading import Panel
from dashboards.drawing.sheet import INK, QUIET, Area, Sheet
from dashboards.drawing.units import shown

TEXT, LINE, SWATCH, GAP = 10.0, 16.0, 10.0, 14.0
HEADS = {"lastNotNull": "Last", "max": "Max"}
MOST_LINES = 2  # of a list below
MORE = 66.0  # for saying how many more there are
WIDEST = 0.42  # of a panel: the table beside its lines


class Entry(NamedTuple):
    name: str
    colour: str
    calculated: dict[str, str]


def entry(name: str, colour: str, values: NDArray[np.float64], unit: str) -> Entry:
    there = values[np.isfinite(values)]
    worth = {"lastNotNull": float(there[-1]), "max": float(there.max())}
    return Entry(name, colour, {how: shown(value, unit) for how, value in worth.items()})


def draw(sheet: Sheet, panel: Panel, area: Area, entries: Sequence[Entry]) -> Area:
    """What is left for the lines."""
    return _beside(sheet, panel, area, entries) if panel.legend_right else _below(sheet, area, entries)


def _beside(sheet: Sheet, panel: Panel, area: Area, entries: Sequence[Entry]) -> Area:
    heads = [(how, HEADS[how]) for how in panel.calculated]
    texts = {how: [head, *(one.calculated[how] for one in entries)] for how, head in heads}
    columns = {how: max(sheet.measured(one, TEXT) for one in told) + GAP for how, told in texts.items()}
    longest = max(sheet.measured(one.name, TEXT) for one in entries)
    names = min(longest, area.width * WIDEST - sum(columns.values()) - SWATCH - 6)
    width = SWATCH + 6 + names + sum(columns.values())
    left, right = area.x + area.width - width, area.x + area.width
    fits = int((area.height - LINE) // LINE)
    cut = len(entries) > fits
    rows = entries[: fits - 1] if cut else entries
    y = area.y + LINE / 2
    edge = right
    for how, head in reversed(heads):
        sheet.write(edge, y, head, TEXT, room=columns[how], colour=QUIET, side="right")
        edge -= columns[how]
    for one in rows:
        y += LINE
        _named(sheet, left, y, one, names)
        edge = right
        for how, _ in reversed(heads):
            sheet.write(edge, y, one.calculated[how], TEXT, room=columns[how], side="right")
            edge -= columns[how]
    if cut:
        text = f"and {len(entries) - len(rows)} more"
        sheet.write(left, y + LINE, text, TEXT, room=width, colour=QUIET)
    return area.within(0, 0, width + 10, 0)


def _below(sheet: Sheet, area: Area, entries: Sequence[Entry]) -> Area:
    """Set as words are: as many in a line as have room. The last line keeps room to count the rest."""
    rows: list[list[tuple[Entry, float]]] = [[]]
    left = area.width
    for one in entries:
        width = sheet.measured(one.name, TEXT) + 1
        kept = MORE if len(rows) == MOST_LINES and one is not entries[-1] else 0
        if rows[-1] and SWATCH + 5 + width > left - kept:
            if len(rows) == MOST_LINES:
                break
            rows.append([])
            left = area.width
            kept = MORE if len(rows) == MOST_LINES and one is not entries[-1] else 0
        width = min(width, left - kept - SWATCH - 5)
        rows[-1].append((one, width))
        left -= SWATCH + 5 + width + GAP
    top = area.y + area.height - LINE * len(rows)
    for number, row in enumerate(rows):
        x, y = area.x, top + LINE * (number + 0.5)
        for one, width in row:
            _named(sheet, x, y, one, width)
            x += SWATCH + 5 + width + GAP
    hidden = len(entries) - sum(len(row) for row in rows)
    if hidden:
        y = area.y + area.height - LINE / 2
        sheet.write(area.x + area.width, y, f"+{hidden} more", TEXT, room=MORE, colour=QUIET, side="right")
    return area.within(0, 0, 0, LINE * len(rows) + 4)


def _named(sheet: Sheet, x: float, y: float, one: Entry, room: float) -> None:
    sheet.block(Area(x, y - 2, SWATCH, 4), one.colour, above=3)
    sheet.write(x + SWATCH + 5, y, one.name, TEXT, room=room, colour=INK)
