"""A whole dashboard: its panels on their grid, section after section, and below them who has drawn it.

A section that Grafana shows closed is drawn open where something is in it, and left out where nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import chain

from dashboards.drawing import lines, numbers, tables
from dashboards.drawing.answers import Source
from dashboards.drawing.reading import Dashboard, Panel, Section
from dashboards.drawing.sheet import CARD, EDGE, QUIET, WIDTH, Area, Sheet, style

COLUMNS = 24
UNIT, GAP, MARGIN = 29.0, 7.0, 12.0
HEAD, SECTION, FOOT = 44, 30, 30
TITLE = 24.0
TITLES = (11.5, 10.5, 9.5)
FOOTER = "Drawn by semel's own renderer from a Prometheus's data; Grafana looks different."

Draw = Callable[[Sheet, Panel, Area, Source], bool]
DRAWN_BY: Mapping[str, Draw] = {"stat": numbers.draw, "timeseries": lines.draw, "table": tables.draw}


def draw(dashboard: Dashboard, source: Source) -> Sheet:
    with style():
        sections = [one for one in dashboard.sections if not one.collapsed or _has_something(one, source)]
        sheet = Sheet(round(HEAD + sum(SECTION + _height(one) for one in sections) + FOOT))
        _head(sheet, dashboard, source)
        top: float = HEAD
        for section in sections:
            sheet.write(MARGIN + 2, top + SECTION / 2, section.title, 14, room=WIDTH, bold=True)
            top += SECTION
            first = min(panel.box.y for panel in section.panels)
            for panel in section.panels:
                draw_panel(sheet, panel, _placed(panel, first, top), source)
            top += _height(section)
        sheet.write(MARGIN + 2, top + FOOT / 2, FOOTER, 11, room=WIDTH, colour=QUIET)
        return sheet


def draw_panel(sheet: Sheet, panel: Panel, area: Area, source: Source) -> bool:
    """Whether there was something to draw."""
    sheet.block(area, CARD, edge=EDGE, above=-1)
    bold, room = panel.kind != "stat", area.width - 16
    # A long title is first written smaller, then cut.
    fits = (size for size in TITLES if sheet.measured(panel.title, size, bold=bold) <= room)
    size = next(fits, TITLES[-1])
    sheet.write(area.x + 9, area.y + TITLE / 2 + 1, panel.title, size, room=room, bold=bold)
    return DRAWN_BY[panel.kind](sheet, panel, area.within(10, TITLE + 2, 10, 7), source)


def _head(sheet: Sheet, dashboard: Dashboard, source: Source) -> None:
    start, end = (datetime.fromtimestamp(at, UTC) for at in source.window[:2])
    sheet.write(MARGIN + 2, HEAD / 2, dashboard.title, 18, room=WIDTH / 2, bold=True)
    shown = f"{start:%H:%M:%S} to {end:%H:%M:%S} UTC"
    sheet.write(WIDTH - MARGIN, HEAD / 2, shown, 11, room=WIDTH / 2, colour=QUIET, side="right")


def _height(section: Section) -> float:
    first = min(panel.box.y for panel in section.panels)
    return max(panel.box.y + panel.box.height - first for panel in section.panels) * UNIT + GAP


def _placed(panel: Panel, first: int, top: float) -> Area:
    column = (WIDTH - 2 * MARGIN + GAP) / COLUMNS
    x, y, width, height = panel.box
    return Area(
        MARGIN + x * column, top + (y - first) * UNIT, width * column - GAP, height * UNIT - GAP
    )  # fmt: skip


def _has_something(section: Section, source: Source) -> bool:
    """More than zeros."""
    found = chain.from_iterable(
        source.at_the_end(target.expr) if target.instant else source.over_time(target.expr)
        for panel in section.panels
        for target in panel.targets
    )
    return any(value > 0 for series in found for value in series.values)
