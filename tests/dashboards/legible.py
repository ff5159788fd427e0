"""Whether a picture can be read: what is written in it, and that no text is outside or on another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matplotlib.text import Text

from dashboards.drawing.sheet import Sheet

SLACK = 1.5  # pixels by which text may be measured otherwise than it is drawn


def texts(sheet: Sheet) -> Iterator[tuple[str, Any]]:
    """What can be read in it, and where, in pixels."""
    renderer = sheet.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    ticks = {
        id(one) for axes in sheet.figure.axes for one in (*axes.get_xticklabels(), *axes.get_yticklabels())
    }
    for one in sheet.figure.findobj(Text):
        assert isinstance(one, Text)
        placed = one.get_position() != (0.0, 0.0) or id(one) in ticks
        if one.get_visible() and one.get_text() and placed:
            yield one.get_text(), one.get_window_extent(renderer)


def is_legible(sheet: Sheet) -> None:
    """No text stands out of the sheet or on another."""
    found = [(text, float(at.x0), float(at.y0), float(at.x1), float(at.y1)) for text, at in texts(sheet)]
    for text, left, low, right, high in found:
        outside = max(-left, -low, right - sheet.width, high - sheet.height)
        assert outside <= SLACK, f"{text!r} stands out by {outside} pixels"
    found.sort(key=lambda one: one[1])
    for number, (one, _, low, right, high) in enumerate(found):
        for other, left, other_low, _, other_high in found[number + 1 :]:
            if left >= right - SLACK:
                break
            down = min(high, other_high) - max(low, other_low)
            assert down <= SLACK, f"{one!r} and {other!r} are on each other"


def read_in(sheet: Sheet) -> set[str]:
    return {text for text, _ in texts(sheet)}
