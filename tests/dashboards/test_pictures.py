"""The pictures: every panel can be drawn whatever Prometheus answers, numbers are written as Grafana writes
them, and the states and a run are drawn from their tables.

Nothing here needs a Prometheus: the answers are made up. `make pictures` draws from a real one.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from PIL import Image

from dashboards.drawing import page, reading
from dashboards.drawing.answers import Series, Window
from dashboards.drawing.sheet import PALETTE, WIDTH, Area, Sheet, style
from dashboards.drawing.units import UNITS, lines_of_an_axis, shown
from docs import reference
from docs.drawing import states, timeline
from proxy.core.intent import TRANSITIONS
from tests.dashboards import queries
from tests.dashboards.legible import is_legible, read_in, texts
from tests.docs.pages import ROOT

WINDOW = Window(1_700_000_000, 1_700_000_120, step=2)
TIMES = [WINDOW.start + 2 * number for number in range(61)]  # all of its steps
LABELS = ("upstream", "rule", "status", "type", "code", "state", "part", "what", "would", "result", "store",
          "version", "instance")  # fmt: skip
LONG = "a-name-that-is-longer-than-any-room-for-it-could-be"


def named(number: int, text: str = "thing") -> dict[str, str]:
    return dict.fromkeys(LABELS, f"{text}-{number}")


class Answers:
    """The same to every query."""

    window = WINDOW

    def __init__(self, series: Sequence[Series]) -> None:
        self.series = list(series)

    def over_time(self, expr: str) -> list[Series]:
        assert WINDOW.filled_in(expr)
        return self.series

    def at_the_end(self, expr: str) -> list[Series]:
        return [Series(labels, times[-1:], values[-1:]) for labels, times, values in self.series]


def waves(number: int, text: str = "thing", size: float = 40.0) -> list[Series]:
    return [
        Series(named(one, text), TIMES, [size * (1 + math.sin(at / 9 + one)) for at in range(61)])
        for one in range(number)
    ]


ANSWERS = {
    "nothing": Answers([]),
    "three": Answers(waves(3)),
    "one sample": Answers([Series(named(1), TIMES[30:31], [0.25])]),
    "not a number": Answers([Series(named(1), TIMES, [math.nan] * 61)]),
    "infinite": Answers([Series(named(1), TIMES, [math.inf] * 60 + [math.nan]), *waves(1)]),
    "zeros": Answers([Series(named(1), TIMES, [0.0] * 61)]),
    "no labels": Answers([Series({}, TIMES, [3.0] * 61)]),
    "below zero": Answers([Series(named(1), TIMES, [-5000.0] * 61), *waves(1)]),
    "thirty of long names": Answers(waves(30, LONG, size=3e9)),
    "tiny": Answers(waves(2, size=4e-8)),
}
DASHBOARDS = {name: reading.read(queries.FOLDER / f"{name}.json") for name in queries.NAMES}
PANELS = [panel for one in DASHBOARDS.values() for section in one.sections for panel in section.panels]


# ---- the dashboards ----


# The rest is about values, which all lines and numbers share: one dashboard's are enough.
USUAL = ("nothing", "three", "one sample", "not a number", "thirty of long names")
DRAWN = [(name, answer) for name in DASHBOARDS for answer in ANSWERS if answer in USUAL or name == "store"]


@pytest.mark.parametrize(("name", "answer"), DRAWN)
def test_every_panel_is_drawn_and_legible_whatever_comes(name: str, answer: str) -> None:
    """Empty, NaN, one sample, thirty series: no error, and no text on another or outside."""
    with style():
        sheet = page.draw(DASHBOARDS[name], ANSWERS[answer])
        is_legible(sheet)
    read = read_in(sheet)
    assert page.FOOTER in read
    for panel in shown_of(DASHBOARDS[name], read):
        assert any(panel.title.startswith(text.rstrip("…")) for text in read), panel.title
    if answer == "three":
        assert len(sheet.figure.axes) == sum(
            one.kind == "timeseries" for one in shown_of(DASHBOARDS[name], read)
        )
    if answer in ("nothing", "not a number"):
        assert not sheet.figure.axes
        assert {panel.empty for panel in shown_of(DASHBOARDS[name], read)} <= read | LABELS_SAY


# With a label in place of a value there is something to say also where the value is no number.
LABELS_SAY = {panel.empty for panel in PANELS if panel.label}


def shown_of(dashboard: reading.Dashboard, read: set[str]) -> list[reading.Panel]:
    """Without a section that is left out."""
    return [one for section in dashboard.sections if section.title in read for one in section.panels]


@pytest.mark.parametrize("kind", reading.KINDS)
def test_a_panel_says_what_it_shows(kind: str) -> None:
    """With an answer it is the answer, without one the panel's own words for that."""
    panel = next(one for one in PANELS if one.kind == kind)
    with style():
        there, empty = (Sheet(400), Sheet(400))
        area = Area(10, 10, 900, 380)
        assert page.draw_panel(there, panel, area, ANSWERS["three"])
        assert not page.draw_panel(empty, panel, area, ANSWERS["nothing"])
    assert panel.empty in read_in(empty) - read_in(there)
    if kind == "timeseries":
        assert {panel.targets[0].named(named(number)) for number in range(3)} <= read_in(there)
        drawn = [line.get_color() for line in there.figure.axes[0].get_lines()]
        assert drawn == list(PALETTE[:3])
    elif kind == "table":
        assert {column.title for column in panel.columns} <= read_in(there)


def test_colours_are_those_of_the_thresholds() -> None:
    """One call in doubt is red on the overview, none is green."""
    (doubt,) = [one for one in PANELS if one.title == "In doubt now" and one.box.x == 9]
    assert reading.colour_of(doubt.steps, 0, "text") == "green"
    assert reading.colour_of(doubt.steps, 1, "text") == "red"


def test_a_section_that_is_closed_is_drawn_where_something_is_in_it() -> None:
    """Shadow mode: with zeros it is left out, and the sheet is shorter."""
    whole = DASHBOARDS["overview"]
    last = whole._replace(sections=whole.sections[-2:])
    full, zeros = (page.draw(last, ANSWERS[one]) for one in ("three", "zeros"))
    assert full.height > zeros.height
    assert "Shadow mode" in read_in(full)
    assert "Shadow mode" not in read_in(zeros)


@pytest.mark.parametrize("kind", ["gauge", "heatmap", "barchart"])
def test_a_kind_that_nobody_draws_is_an_error(kind: str) -> None:
    """It must not be left out in silence."""
    said = queries.read("store")
    said["panels"][1] = {**said["panels"][1], "type": kind}
    with pytest.raises(reading.UnknownPanel, match=kind):
        reading.dashboard(said)


def test_a_variable_that_grafana_does_not_know_is_an_error() -> None:
    """As in the queries' own test."""
    assert WINDOW.filled_in("rate(x[$__rate_interval]) + increase(x[${__range}])") == (
        "rate(x[15s]) + increase(x[120s])"
    )
    with pytest.raises(KeyError):
        WINDOW.filled_in("x{a=$b}")


# ---- units ----


@pytest.mark.parametrize(
    ("value", "unit", "decimals", "text"),
    [
        (0, "locale", None, "0"), (7, "locale", 0, "7"), (1234, "locale", 0, "1,234"),
        (5.6e6, "locale", None, "5,600,000"), (0.5, "locale", None, "0.500"), (-3, "locale", None, "-3"),
        (1234, "ops", None, "1.23 K ops/s"), (5.6e6, "ops", None, "5.60 Mil ops/s"),
        (0, "s", None, "0 s"), (0.00032, "s", None, "320 µs"), (0.0123, "s", None, "12.3 ms"),
        (1, "s", None, "1 s"), (60, "s", None, "1 min"), (209.4, "s", None, "3.49 mins"),
        (3600, "s", None, "1 hour"), (3 * 86400, "s", None, "3 days"), (0.24930, "s", 2, "249.30 ms"),
        (0, "percentunit", None, "0%"), (0.473, "percentunit", 1, "47.3%"), (1, "percentunit", None, "100%"),
        (53.71, "currencyUSD", 2, "$53.71"), (1580, "currencyUSD", None, "$1.58 K"),
        (-2, "currencyUSD", None, "-$2"),
        (0, "bytes", None, "0 B"), (1024, "bytes", None, "1 KiB"), (47_815_066, "bytes", None, "45.6 MiB"),
        (2048, "binBps", None, "2 KiB/s"), (5.11, "reqps", None, "5.11 req/s"),
        (0.25, "ops", None, "0.250 ops/s"), (6.666, "cpm", None, "6.67 c/m"),
        (math.inf, "locale", None, "∞"), (math.nan, "s", None, "NaN"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_grafana_writes_them(
    value: float, unit: str, decimals: int | None, text: str
) -> None:
    """Three digits that count, and the unit that fits."""
    assert shown(value, unit, decimals) == text


def test_every_unit_of_the_dashboards_is_known_and_no_other() -> None:
    """Those of the panels and of the tables' columns."""
    used = {panel.unit for panel in PANELS}
    used |= {column.unit for panel in PANELS for column in panel.columns}
    assert used == set(UNITS)
    with pytest.raises(KeyError):
        shown(1, "furlongs")


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("largest", [1e-7, 0.3, 1.0, 7.0, 90.0, 4000.0, 86400.0, 3e9])
def test_an_axis_has_few_lines_and_reaches_the_top(unit: str, largest: float) -> None:
    """No two of them are written alike."""
    found = lines_of_an_axis(largest, unit, 5)
    assert 2 <= len(found) <= 6
    assert found[0] == 0
    assert found[-1] >= largest * 0.999
    assert len({shown(one, unit, tidy=True) for one in found}) == len(found)


# ---- the states ----


def test_the_states_are_drawn_with_the_edges_of_the_table() -> None:
    """Read back from the committed file: an arrow for each, its events beside it, and no other."""
    file = ROOT / "docs" / "pictures" / "states.svg"
    root = ET.fromstring(file.read_text(encoding="utf-8"))
    paths = [one for one in root.iter("{http://www.w3.org/2000/svg}path") if "data-to" in one.attrib]
    drawn = [
        (one.get("data-from"), event, one.get("data-to"))
        for one in paths
        for event in (one.get("data-events") or "").split()
    ]
    wanted = [(str(before or ""), str(event), str(after)) for (before, event), after in TRANSITIONS.items()]
    assert sorted(map(str, drawn)) == sorted(map(str, wanted))
    written = [
        one.text for one in root.iter("{http://www.w3.org/2000/svg}text") if one.get("class") == "event"
    ]
    assert sorted(map(str, written)) == sorted(str(event) for _, event in TRANSITIONS)
    assert set(states.ROUTES) == set(states.arrows())


@pytest.mark.parametrize("path", reference.PICTURES, ids=lambda path: path.name)
def test_a_generated_picture_is_what_the_code_draws(path: Any) -> None:
    """Byte for byte: it is text, and no library draws it. If this fails: `make docs`."""
    assert path.read_text(encoding="utf-8") == reference.PICTURES[path]()


# ---- a run ----


def moment(seconds: float) -> str:
    return f"2024-05-01T10:00:{seconds:06.3f}+00:00"


def step(number: int, attempt: str, asked_by: Sequence[str], start: float, end: float | None,
         state: str = "done") -> dict[str, Any]:  # fmt: skip
    settled = None if end is None else moment(end)
    return {"seq": number, "tool": f"tool_{number}", "attempt": attempt, "asked_by": asked_by, "state": state,
            "created_at": moment(start), "settled_at": settled}  # fmt: skip


def attempt(name: str, first: float, last: float, **counted: int) -> dict[str, Any]:
    none = dict.fromkeys(("replayed", "executed", "joined", "refused"), 0)
    return {"name": name, "first_at": moment(first), "last_at": moment(last), **none, **counted}


STORY: Mapping[str, Any] = {
    "run": "trip",
    "created_at": moment(0),
    "active_at": moment(9),
    "attempts": [attempt("a1", 0, 2, executed=2), attempt("a2", 4, 8, replayed=2, executed=2)],
    "steps": [
        step(1, "a1", ["a1", "a2"], 0, 1),
        step(2, "a1", ["a1", "a2"], 2, 3),
        step(3, "a2", ["a2"], 6, 7),
        step(4, "a2", ["a2"], 8, None, "in_doubt"),
    ],
}


def test_a_run_has_a_bar_for_each_step_that_an_attempt_asked() -> None:
    """Executed at its own time, replayed between the attempt's first call and its first live one."""
    found = [(bar.attempt, bar.step, bar.kind, bar.start) for bar in timeline.bars(STORY)]
    assert found == [
        (0, 1, "executed", 0.0), (0, 2, "executed", 2.0),
        (1, 1, "replayed", 4.0), (1, 2, "replayed", 5.0), (1, 3, "executed", 6.0), (1, 4, "in doubt", 8.0),
    ]  # fmt: skip
    ends = {(bar.attempt, bar.step): bar.end for bar in timeline.bars(STORY)}
    assert ends[0, 2] == 3.0
    assert ends[1, 4] == 9.0  # nobody knows: as long as the run was active


def test_a_run_is_drawn_legibly() -> None:
    """All bars with their tools; the legend has the kinds that there are."""
    with style():
        sheet = timeline.sheet(STORY)
        is_legible(sheet)
    read = [text for text, _ in texts(sheet)]
    assert [read.count(f"tool_{number}") for number in (1, 2, 3, 4)] == [2, 2, 1, 1]
    assert sheet.png() == timeline.draw(STORY)  # the same bytes for the same run
    assert {"attempt 1", "attempt 2", "executed", "replayed", "in doubt"} <= set(read)
    assert "2 replayed, 2 executed" in read


def test_a_run_without_a_replay_or_a_step_is_drawn() -> None:
    """One attempt that asked for nothing; many attempts that only replay."""
    nothing = {**STORY, "attempts": [attempt("a1", 0, 0)], "steps": []}
    many = {**STORY, "attempts": [attempt(f"a{one}", one, one) for one in range(1, 6)]}
    many["steps"] = [step(1, "a1", [f"a{one}" for one in range(1, 6)], 1, 2)]
    with style():
        assert timeline.bars(nothing) == []
        is_legible(timeline.sheet(nothing))
        assert [bar.kind for bar in timeline.bars(many)] == ["executed"] + ["replayed"] * 4
        is_legible(timeline.sheet(many))


# ---- what is committed ----


@pytest.mark.parametrize("name", [*(f"dashboard-{name}" for name in queries.NAMES), "run-timeline"])
def test_the_committed_picture_is_one_of_ours(name: str) -> None:
    """As wide as ours are, small, and shown on some page."""
    file = ROOT / "docs" / "pictures" / f"{name}.png"
    assert file.stat().st_size < 400_000
    with Image.open(file) as picture:
        assert picture.width == WIDTH
    pages = [ROOT / "dashboards" / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown_on = [one for one in pages if re.search(rf"!\[[^]]+\]\([^)]*{name}\.png\)", one.read_text())]
    assert shown_on
