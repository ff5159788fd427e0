"""A panel with one number, or a few side by side: as large as its room allows, in its threshold's colour."""

from __future__ import annotations

import math
from typing import NamedTuple

from dashboards.drawing.answers import Series, Source
from dashboards.drawing.reading import Panel, Target, colour_of
from dashboards.drawing.sheet import COLOURS, QUIET, Area, Sheet
from dashboards.drawing.units import shown

MOST = 4  # side by side
LARGEST, SMALLEST = 30.0, 9.0


class Said(NamedTuple):
    text: str
    colour: str
    name: str


def draw(sheet: Sheet, panel: Panel, area: Area, source: Source) -> bool:
    """Whether there was something to draw."""
    found = [(target, one) for target in panel.targets for one in source.at_the_end(target.expr)]
    told = [said for target, one in found if (said := _said(panel, target, one)) is not None]
    if not told:
        _write(sheet, area, Said(panel.empty, QUIET, ""))
        return False
    cells = told[:MOST]
    width = area.width / len(cells)
    for number, said in enumerate(cells):
        cell = Area(area.x + number * width, area.y, width, area.height).within(3, 0, 3, 0)
        _write(sheet, cell, said if len(told) > 1 else said._replace(name=""))
    if len(told) > MOST:
        text = f"and {len(told) - MOST} more"
        sheet.write(area.x + area.width / 2, area.y + area.height - 5, text, 9, room=area.width,
                    colour=QUIET, side="center")  # fmt: skip
    return True


def _said(panel: Panel, target: Target, series: Series) -> Said | None:
    name = target.named(series.labels)
    if panel.label:
        value = series.labels.get(panel.label, "")
        text, colour = panel.words.get(value, (value, "orange"))
        return Said(text, COLOURS[colour], name)
    value_now = series.values[-1]
    if math.isnan(value_now):
        return None
    colour = colour_of(panel.steps, value_now, "text")
    return Said(shown(value_now, panel.unit, panel.decimals), COLOURS[colour], name)


def _write(sheet: Sheet, area: Area, said: Said) -> None:
    """The size is that at which it fills its room: text grows as its size does."""
    wide = max(sheet.measured(said.text, LARGEST, bold=True), 1)
    size = max(SMALLEST, min(LARGEST, LARGEST * (area.width - 8) / wide, area.height * 0.5))
    middle, centre = area.x + area.width / 2, area.y + area.height / 2
    if said.name:
        centre -= 8
        sheet.write(
            middle, area.y + area.height - 18, said.name, 9, room=area.width, colour=QUIET, side="center"
        )
    size = size if said.colour != QUIET else min(size, 14)
    sheet.write(middle, centre, said.text, size, room=area.width, colour=said.colour, side="center",
                bold=said.colour != QUIET)  # fmt: skip
