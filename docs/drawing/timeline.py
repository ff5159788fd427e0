"""A run over time, drawn from what `semel runs show RUN --json` gives: a lane for each attempt, a bar for
each step that it asked.

An executed step has its own times. The record says which steps an attempt was given again and in which order,
not at which moment: their bars share the time between what is known before and after them evenly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from dashboards.drawing.sheet import CARD, EDGE, GRID, INK, QUIET, WIDTH, Area, Sheet, style

EXECUTED, REPLAYED, DOUBT, OPEN = "executed", "replayed", "in doubt", "not settled"
COLOURS = {EXECUTED: "#2b66c4", REPLAYED: "#23804a", DOUBT: "#c8323c", OPEN: "#8a93a3"}
STATES = {"done": EXECUTED, "released": EXECUTED, "in_doubt": DOUBT}
MARGIN, NAMES, HEAD, LANE, FOOT = 14.0, 170.0, 50.0, 96.0, 46.0
BAR, TEXT = 28.0, 11.0
MOST_TICKS = 9
SPANS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
FOOTER = (
    "Drawn from the record of the run. It keeps the order of replays, not the moment of each: those of an "
    "attempt are spread evenly."
)


Step: TypeAlias = Mapping[str, Any]


class Bar(NamedTuple):
    """Times in seconds since the run began."""

    attempt: int  # from 0
    step: int
    tool: str
    kind: str
    start: float
    end: float


class Lane(NamedTuple):
    name: str
    said: str


def bars(run: Mapping[str, Any]) -> list[Bar]:
    began = _seconds(run["created_at"])
    settled = [_seconds(step["settled_at"]) for step in run["steps"] if step["settled_at"]]
    last = max([_seconds(run["active_at"]), *settled])
    found: list[Bar] = []
    for number, attempt in enumerate(run["attempts"]):
        at = _seconds(attempt["first_at"])
        groups = _groups(run["steps"], attempt["name"])
        for index, (own, steps) in enumerate(groups):
            if own:
                found += [_executed(number, step, began, last) for step in steps]
                at = found[-1].end + began
            else:
                following = groups[index + 1][1] if index + 1 < len(groups) else []
                until = _seconds(following[0]["created_at"] if following else attempt["last_at"])
                found += _replayed(number, steps, at - began, max(until, at) - began)
    return found


def _groups(steps: Sequence[Step], attempt: str) -> list[tuple[bool, list[Step]]]:
    """What this attempt asked, in the order of steps: those it made itself, and those it was given again."""
    asked = [step for step in steps if attempt in step["asked_by"]]
    return [(own, list(some)) for own, some in groupby(asked, lambda step: step["attempt"] == attempt)]


def _executed(number: int, step: Step, began: float, last: float) -> Bar:
    end = last if step["settled_at"] is None or step["state"] == "in_doubt" else _seconds(step["settled_at"])
    kind = STATES.get(step["state"], OPEN)
    return Bar(number, step["seq"], step["tool"], kind, _seconds(step["created_at"]) - began, end - began)


def _replayed(number: int, steps: Sequence[Step], start: float, end: float) -> Iterator[Bar]:
    each = (end - start) / len(steps)
    for place, step in enumerate(steps):
        kind = DOUBT if step["state"] == "in_doubt" else REPLAYED
        begin = start + place * each
        yield Bar(number, step["seq"], step["tool"], kind, begin, begin + each * 0.6)


def lanes(run: Mapping[str, Any]) -> list[Lane]:
    """What became of its calls, as the record counts them."""
    counted = ("replayed", "executed", "joined", "refused")
    return [
        Lane(f"attempt {number}", ", ".join(f"{one[what]} {what}" for what in counted if one[what]))
        for number, one in enumerate(run["attempts"], 1)
    ]


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


# ---- the picture ----


def draw(run: Mapping[str, Any]) -> bytes:
    return sheet(run).png()


def sheet(run: Mapping[str, Any]) -> Sheet:
    with style():
        drawn, rows = bars(run), lanes(run)
        made = Sheet(round(HEAD + LANE * len(rows) + FOOT + 2 * MARGIN))
        _head(made, run["run"], drawn)
        card = Area(MARGIN, HEAD, WIDTH - 2 * MARGIN, LANE * len(rows) + FOOT - 14)
        made.block(card, CARD, edge=EDGE, above=-2)
        room = Area(MARGIN + NAMES, HEAD, card.width - NAMES - 60, LANE * len(rows))
        scale = room.width / max((bar.end for bar in drawn), default=1.0)
        _times(made, room, scale)
        for number, lane in enumerate(rows):
            middle = HEAD + LANE * (number + 0.5)
            made.write(MARGIN + 12, middle - 17, lane.name, 13, room=NAMES - 20, bold=True)
            made.write(MARGIN + 12, middle + 1, lane.said, TEXT, room=NAMES - 20, colour=QUIET)
            _lane(made, [bar for bar in drawn if bar.attempt == number], room.x, middle, scale)
        made.write(MARGIN + 2, made.height - 14, FOOTER, TEXT, room=WIDTH - 2 * MARGIN, colour=QUIET)
        return made


def _head(made: Sheet, run: str, drawn: Sequence[Bar]) -> None:
    made.write(MARGIN + 2, HEAD / 2, f"Run {run}", 16, room=WIDTH / 2, bold=True)
    x = WIDTH - MARGIN
    for kind in reversed([one for one in COLOURS if any(bar.kind == one for bar in drawn)]):
        x -= made.measured(kind, 12)
        made.write(x, HEAD / 2, kind, 12, room=200)
        x -= 18
        made.block(Area(x, HEAD / 2 - 6, 12, 12), COLOURS[kind], above=1)
        x -= 18


def _times(made: Sheet, room: Area, scale: float) -> None:
    lasts = room.width / scale
    span = next((one for one in SPANS if lasts / one <= MOST_TICKS), SPANS[-1])
    for number in range(int(lasts / span) + 1):
        x = room.x + number * span * scale
        made.block(Area(x, room.y + 6, 1, room.height - 6), GRID, above=-1)
        made.write(
            x, room.y + room.height + 13, f"{number * span:g} s", TEXT, room=60, colour=QUIET, side="center"
        )


def _lane(made: Sheet, drawn: Sequence[Bar], left: float, middle: float, scale: float) -> None:
    """Names stand below the bars, in two rows by turns, so that neighbours have room."""
    middles = [left + (bar.start + bar.end) / 2 * scale for bar in drawn]
    for number, bar in enumerate(drawn):
        width = max((bar.end - bar.start) * scale, 4.0)
        x = left + bar.start * scale
        made.block(Area(x, middle - BAR / 2 - 10, width, BAR), COLOURS[bar.kind], above=1)
        text = str(bar.step)
        if made.measured(text, 12, bold=True) + 4 <= width:
            made.write(
                x + width / 2, middle - 10, text, 12, room=width, colour=CARD, side="center", bold=True
            )
        beside = [
            abs(middles[number] - middles[other])
            for other in (number - 2, number + 2)
            if 0 <= other < len(drawn)
        ]
        room = min([160.0, *(one - 8 for one in beside)])
        y = middle + BAR / 2 + (2 if number % 2 == 0 else 18)
        made.write(middles[number], y, bar.tool, TEXT, room=room, colour=INK, side="center")
