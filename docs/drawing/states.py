"""The life of a call as a picture, `docs/pictures/states.svg`: the arrows are those of `TRANSITIONS`.

Where they run is laid out by hand, here; what they are called and that they are there comes from the table.
An arrow of the table without a place here is a KeyError. The same table gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from xml.sax.saxutils import escape

from proxy.core.intent import TRANSITIONS, Event, State

WIDTH, HEIGHT = 1120, 606
BOX_WIDTH, BOX_HEIGHT = 204, 46
LINE = 17


class Spot(NamedTuple):
    x: float
    y: float


class Look(NamedTuple):
    """Of a state: where its middle is, its colours, and one line on what it is."""

    at: Spot
    fill: str
    edge: str
    said: str


class Route(NamedTuple):
    """From a point of one state's edge to a point of the other's, bent towards `bend`."""

    begin: Spot
    bend: Spot
    end: Spot
    label: Spot  # the middle of its text
    side: str = "middle"


BEGIN = Spot(560, 34)  # no live row
LOOKS: Mapping[State, Look] = {
    State.PENDING: Look(Spot(250, 140), "#e8f0fe", "#2b66c4", "about to be sent, or under way"),
    State.AWAITING_APPROVAL: Look(Spot(870, 140), "#fff4e0", "#c76a00", "held for a person"),
    State.RELEASED: Look(Spot(560, 300), "#f3f4f6", "#667085", "nothing came of it, or permitted"),
    State.IN_DOUBT: Look(Spot(122, 430), "#fdeaea", "#c8323c", "nobody knows what came of it"),
    State.DENIED: Look(Spot(998, 430), "#f3f4f6", "#667085", "a person refused it"),
    State.DONE: Look(Spot(560, 560), "#e6f5ec", "#23804a", "a final answer is recorded"),
}
_PENDING, _WAITING, _RELEASED = State.PENDING, State.AWAITING_APPROVAL, State.RELEASED
_DOUBT, _DENIED, _DONE = State.IN_DOUBT, State.DENIED, State.DONE

ROUTES: Mapping[tuple[State | None, State], Route] = {
    (None, _PENDING): Route(Spot(548, 38), Spot(390, 60), Spot(290, 115), Spot(380, 62), "end"),
    (None, _WAITING): Route(Spot(572, 38), Spot(730, 60), Spot(830, 115), Spot(740, 62), "start"),
    (_PENDING, _RELEASED): Route(Spot(330, 165), Spot(370, 285), Spot(456, 298), Spot(372, 216), "start"),
    (_RELEASED, _PENDING): Route(Spot(525, 275), Spot(505, 175), Spot(353, 146), Spot(472, 178), "start"),
    (_WAITING, _RELEASED): Route(Spot(790, 165), Spot(750, 285), Spot(664, 298), Spot(748, 210), "end"),
    (_RELEASED, _WAITING): Route(Spot(595, 275), Spot(615, 175), Spot(767, 146), Spot(640, 178), "end"),
    (_PENDING, _DOUBT): Route(Spot(165, 165), Spot(70, 250), Spot(78, 405), Spot(86, 268), "end"),
    (_DOUBT, _PENDING): Route(Spot(132, 405), Spot(140, 260), Spot(205, 165), Spot(163, 268), "start"),
    (_WAITING, _DENIED): Route(Spot(955, 165), Spot(1050, 250), Spot(1042, 405), Spot(1034, 268), "start"),
    (_DOUBT, _RELEASED): Route(Spot(224, 414), Spot(330, 388), Spot(456, 314), Spot(372, 364)),
    (_DENIED, _RELEASED): Route(Spot(896, 414), Spot(790, 388), Spot(664, 314), Spot(748, 364)),
    (_DOUBT, _DONE): Route(Spot(145, 455), Spot(200, 550), Spot(456, 566), Spot(230, 540), "end"),
    (_DENIED, _DONE): Route(Spot(975, 455), Spot(920, 550), Spot(664, 566), Spot(890, 540), "start"),
    (_RELEASED, _DONE): Route(Spot(560, 325), Spot(560, 430), Spot(560, 535), Spot(560, 430)),
    (_PENDING, _DONE): Route(Spot(240, 165), Spot(260, 480), Spot(480, 535), Spot(345, 482), "end"),
    (_WAITING, _DONE): Route(Spot(880, 165), Spot(860, 480), Spot(640, 535), Spot(775, 482), "start"),
}
# What nearly every call does.
USUAL = {(None, _PENDING), (_PENDING, _DONE)}

_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2430; }
  .name { font: bold 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
  .said { font-size: 11px; fill: #667085; }
  .event { stroke: #ffffff; stroke-width: 5px; stroke-linejoin: round; paint-order: stroke; }
  path { fill: none; stroke: #667085; stroke-width: 1.4; }
  path.usual { stroke: #1f2430; stroke-width: 2.4; }
"""


def arrows() -> dict[tuple[State | None, State], list[Event]]:
    """By where they lead from and to, the events, in the table's order."""
    found: dict[tuple[State | None, State], list[Event]] = {}
    for (before, event), after in TRANSITIONS.items():
        found.setdefault((before, after), []).append(event)
    return found


def svg() -> str:
    return "\n".join((*_head(), *_arrows(), *_states(), "</svg>", ""))


def _head() -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img">'
    )
    yield "<title>The states of a call, and what leads from one to another</title>"
    yield f"<style>{_STYLE}</style>"
    yield (
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L10,5 L0,10 z" '
        'style="fill: #1f2430; stroke: none"/></marker></defs>'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>'


def _arrows() -> Iterator[str]:
    """All lines first, then all words: no line runs through a word."""
    found = arrows()
    for (before, after), events in found.items():
        route = ROUTES[before, after]
        points = f"M{route.begin.x:g},{route.begin.y:g} Q{route.bend.x:g},{route.bend.y:g} "
        points += f"{route.end.x:g},{route.end.y:g}"
        kind = ' class="usual"' if (before, after) in USUAL else ""
        told = f'data-from="{before or ""}" data-to="{after}" data-events="{" ".join(events)}"'
        yield f'<path{kind} {told} d="{points}" marker-end="url(#tip)"/>'
    for pair, events in found.items():
        (x, y), side = ROUTES[pair].label, ROUTES[pair].side
        first = y - LINE * (len(events) - 1) / 2 + 4
        for number, event in enumerate(events):
            yield _text(x, first + LINE * number, event, "event", side)


def _states() -> Iterator[str]:
    yield f'<circle cx="{BEGIN.x:g}" cy="{BEGIN.y:g}" r="10" fill="#1f2430"/>'
    yield _text(BEGIN.x, BEGIN.y - 16, "no live row", "said", "middle")
    for state in State:
        (x, y), fill, edge, said = LOOKS[state]
        yield (
            f'<rect x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="9" fill="{fill}" stroke="{edge}" stroke-width="1.6"/>'
        )
        yield _text(x, y - 3, state, "name", "middle")
        yield _text(x, y + 14, said, "said", "middle")


def _text(x: float, y: float, text: str, kind: str, side: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{side}">{escape(text)}</text>'
