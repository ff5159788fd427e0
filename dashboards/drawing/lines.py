"""A panel with lines over time: its axes, its lines, its thresholds. What a line is called is in legends.py.

Where samples are missing the line has a gap, and a sample alone is a dot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from dashboards.drawing import legends
from dashboards.drawing.answers import Series, Source, Window
from dashboards.drawing.reading import Panel
from dashboards.drawing.sheet import COLOURS, PALETTE, QUIET, Area, Sheet
from dashboards.drawing.units import lines_of_an_axis, shown

MOST_LINES = 5
HEADROOM = 1.04
TICK = 10.0  # pixels of text
BELOW, ABOVE = 20.0, 8.0
# Seconds between two times below an axis.
SPANS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)

Values = NDArray[np.float64]


class Line(NamedTuple):
    name: str
    colour: str
    values: Values  # at the window's steps, NaN where there is none


def draw(sheet: Sheet, panel: Panel, area: Area, source: Source) -> bool:
    """Whether there was something to draw."""
    times = _steps(source.window)
    drawn = _lines(panel, source, times)
    if not drawn:
        middle = area.x + area.width / 2, area.y + area.height / 2
        sheet.write(*middle, panel.empty, 12, room=area.width, colour=QUIET, side="center")
        return False
    entries = [legends.entry(line.name, line.colour, line.values, panel.unit) for line in drawn]
    area = legends.draw(sheet, panel, area, entries)
    ticks = _ticks(panel, drawn)
    texts = [shown(tick, panel.unit, tidy=True) for tick in ticks]
    left = max(sheet.measured(text, TICK) for text in texts) + 8
    axes = sheet.axes(area.within(left, ABOVE, 6, BELOW))
    _scaled(axes, panel, ticks, texts)
    _timed(axes, source.window, area.width - left)
    base = np.zeros_like(times)
    for line in drawn:
        base = _drawn(axes, times, line, base, panel)
    for step in panel.steps:
        if math.isfinite(step.value) and step.value <= ticks[-1]:
            axes.axhline(step.value, color=COLOURS[step.colour], linewidth=1, dashes=(5, 4))
    return True


# ---- the lines ----


def _steps(window: Window) -> Values:
    return np.arange(window.start, window.end + window.step / 2, window.step)


def _lines(panel: Panel, source: Source, times: Values) -> list[Line]:
    found = [
        (target.named(series.labels), _placed(series, source.window, times))
        for target in panel.targets
        for series in source.over_time(target.expr)
    ]
    told = [(name, values) for name, values in found if np.isfinite(values).any()]
    return [Line(name, PALETTE[n % len(PALETTE)], values) for n, (name, values) in enumerate(told)]


def _placed(series: Series, window: Window, times: Values) -> Values:
    placed = np.full(len(times), np.nan)
    for at, value in zip(series.times, series.values, strict=True):
        index = round((at - window.start) / window.step)
        if 0 <= index < len(placed) and math.isfinite(value):
            placed[index] = value
    return placed


def _drawn(axes: Axes, times: Values, line: Line, base: Values, panel: Panel) -> Values:
    """What the next one stands on."""
    values = base + line.values if panel.stacked else line.values
    axes.plot(times, values, color=line.colour, linewidth=1.4, solid_joinstyle="round")
    if not panel.linear_below:  # on that scale the area says nothing
        axes.fill_between(times, values, base, color=line.colour, alpha=panel.filled, linewidth=0)
    there = np.isfinite(values)
    beside = np.concatenate(([False], there[:-1])) | np.concatenate((there[1:], [False]))
    alone = there & ~beside
    if alone.any():
        axes.plot(times[alone], values[alone], ".", color=line.colour, markersize=5)
    return base + np.nan_to_num(line.values) if panel.stacked else base


# ---- the axes ----


def _ticks(panel: Panel, drawn: Sequence[Line]) -> list[float]:
    values = [np.nan_to_num(line.values) for line in drawn]
    largest = float(np.sum(values, axis=0).max() if panel.stacked else np.max(values))
    lowest = float(np.min(values))
    if panel.linear_below:
        return _decades(lowest, largest, panel.linear_below)
    # A line along the upper edge would look cut off.
    largest = largest * HEADROOM if panel.maximum is None else panel.maximum
    return lines_of_an_axis(largest if largest > 0 else 1.0, panel.unit, MOST_LINES)


def _decades(lowest: float, largest: float, linear: float) -> list[float]:
    """Linear around 0, then ten times as much from line to line; every third where they are many."""
    up = max(0, math.ceil(math.log10(max(largest, linear) / linear)))
    down = max(0, math.ceil(math.log10(max(-lowest, linear) / linear)))
    every = max(1, math.ceil(up / MOST_LINES))
    above = [linear * 10.0**power for power in range(0, up + every, every)]
    below = [-linear * 10.0**power for power in range(0, down + every, every)] if lowest < 0 else []
    return [*reversed(below), 0.0, *above]


def _scaled(axes: Axes, panel: Panel, ticks: Sequence[float], texts: Sequence[str]) -> None:
    if panel.linear_below:
        axes.set_yscale("symlog", linthresh=panel.linear_below)
        axes.minorticks_off()
    axes.set_ylim(ticks[0], ticks[-1])
    axes.set_yticks(ticks, texts)


def _timed(axes: Axes, window: Window, width: float) -> None:
    """Times of day, as far apart as their text needs."""
    lasts = window.end - window.start
    room = max(1.0, width / 70)
    span = next((one for one in SPANS if lasts / one <= room), SPANS[-1])
    first = math.ceil(window.start / span) * span
    at = [first + span * number for number in range(int((window.end - first) // span) + 1)]
    form = "%H:%M:%S" if span % 60 else "%H:%M"
    # Text at the very edge would stand out of the panel.
    at = [one for one in at if lasts * 0.04 <= one - window.start <= lasts * 0.96]
    axes.set_xlim(window.start, window.end)
    axes.set_xticks(at, [datetime.fromtimestamp(one, UTC).strftime(form) for one in at])
