"""What everything is drawn on: a figure measured in pixels from its upper left corner, text that is cut where
its room ends, and our colours.

Without pyplot, so there is no state of the process that a picture leaves behind.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

WIDTH = 1400
DPI = 100
_POINTS = 72 / DPI  # of a pixel

PAPER, CARD, EDGE, GRID = "#eef0f3", "#ffffff", "#d5d9e0", "#e6e8ec"
INK, QUIET = "#1f2430", "#667085"
# By the names that Grafana gives them.
COLOURS = {
    "green": "#23804a",
    "orange": "#c76a00",
    "red": "#c8323c",
    "blue": "#2b66c4",
    "text": INK,
    "transparent": INK,
}
PALETTE = ("#2f7d4f", "#d9a300", "#2b66c4", "#d9622b", "#b83a4b", "#1f9bb0", "#7a4fb5", "#6b7a1e", "#b0489a",
           "#5b6577")  # fmt: skip
FONT = "DejaVu Sans"  # matplotlib brings it along

Side = Literal["left", "center", "right"]


class Area(NamedTuple):
    """In pixels, from the upper left corner of the sheet."""

    x: float
    y: float
    width: float
    height: float

    def within(self, left: float, top: float, right: float, bottom: float) -> Area:
        return Area(self.x + left, self.y + top, self.width - left - right, self.height - top - bottom)


class Sheet:
    def __init__(self, height: int, width: int = WIDTH) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAPER)
        self._renderer = FigureCanvasAgg(self.figure).get_renderer()  # type: ignore[no-untyped-call]
        self._widths: dict[tuple[str, float, bool], float] = {}

    def measured(self, text: str, size: float, *, bold: bool = False) -> float:
        known = self._widths.get((text, size, bold))
        if known is None:
            font = FontProperties(family=FONT, size=size * _POINTS, weight="bold" if bold else "normal")
            width, _, _ = self._renderer.get_text_width_height_descent(text, font, ismath=False)
            known = self._widths[text, size, bold] = float(width)
        return known

    def fitted(self, text: str, size: float, room: float, *, bold: bool = False) -> str:
        """Cut, with a mark that it was, where there is no room for it."""
        if self.measured(text, size, bold=bold) <= room:
            return text
        cut = bisect_left(
            range(len(text)), True, key=lambda n: self._is_wider(text[: n + 1], size, room, bold)
        )
        return text[:cut].rstrip() + "…" if cut else ""

    def _is_wider(self, text: str, size: float, room: float, bold: bool) -> bool:
        return self.measured(f"{text}…", size, bold=bold) > room

    def write(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        *,
        room: float,
        colour: str = INK,
        side: Side = "left",
        bold: bool = False,
    ) -> Text:
        """In one line with its middle at `y`; `x` is where its `side` is."""
        return self.figure.text(
            x / self.width,
            1 - y / self.height,
            self.fitted(text, size, room, bold=bold),
            fontsize=size * _POINTS,
            color=colour,
            ha=side,
            va="center_baseline",
            weight="bold" if bold else "normal",
            family=FONT,
        )

    def block(self, area: Area, colour: str, *, edge: str | None = None, above: int = 0) -> None:
        self.figure.add_artist(
            Rectangle(
                (area.x / self.width, 1 - (area.y + area.height) / self.height),
                area.width / self.width,
                area.height / self.height,
                facecolor=colour,
                edgecolor=edge or "none",
                linewidth=0.8,
                transform=self.figure.transFigure,
                zorder=above,
            )
        )

    def axes(self, area: Area) -> Axes:
        place = (
            area.x / self.width,
            1 - (area.y + area.height) / self.height,
            area.width / self.width,
            area.height / self.height,
        )
        made = self.figure.add_axes(place, facecolor="none")
        for side in ("top", "right", "left"):
            made.spines[side].set_visible(False)
        made.spines["bottom"].set_color(EDGE)
        made.tick_params(length=0, pad=4, labelsize=10 * _POINTS, labelcolor=QUIET)
        made.grid(axis="y", color=GRID, linewidth=0.8)
        made.set_axisbelow(True)
        return made

    def png(self) -> bytes:
        """With a table of 256 colours: flat areas need no more, and the file is a third."""
        drawn = io.BytesIO()
        self.figure.savefig(drawn, format="png", dpi=DPI, facecolor=PAPER, metadata={"Software": None})
        small = io.BytesIO()
        with Image.open(drawn) as picture:
            flat = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
            flat.save(small, format="png", optimize=True)
        return small.getvalue()


@contextmanager
def style() -> Iterator[None]:
    """Everything is drawn in here. A dollar sign begins no formula."""
    with mpl.rc_context({"text.parse_math": False, "font.family": FONT, "axes.unicode_minus": False}):
        yield
