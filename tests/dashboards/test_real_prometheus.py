"""A real Prometheus scrapes real proxies under scripted traffic: every query of every panel has an answer,
and the numbers are those of the script."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import pytest

from dashboards.drawing import page, reading
from dashboards.drawing.answers import FromPrometheus, NotAnswered, Window
from tests.dashboards import queries
from tests.dashboards.expected import BY_DASHBOARD, PROCESSES, Between, Expected, Told
from tests.dashboards.legible import is_legible, read_in
from tests.dashboards.queries import Asked, substituted
from tests.dashboards.scraped import RANGE, STATES, Scraped, scraped
from tests.dashboards.world import NAMED, OTHER, WORKERS
from tests.servers.prometheus import Refused, Sample, needs_prometheus

pytestmark = needs_prometheus

STEP = 1.0
# What appears with its first event is extrapolated on both sides.
SLACK = 1.5
# Panels of which each query must be in the table of what is expected.
IN_NUMBERS = ("stat", "table")
PLACES = sorted({(rule.upstream, rule.name) for rule in (*NAMED, OTHER)})


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    with scraped(tmp_path_factory.mktemp("traffic")) as played:
        yield played


def chosen(value: str) -> str:
    """As Grafana puts one value of a variable into a regular expression in a string."""
    return re.escape(value).replace("\\", "\\\\")


async def found(scene: Scraped, asked: Asked, **values: str) -> list[Sample]:
    """As Grafana would ask it for these values of the variables."""
    if asked.instant:
        return await scene.prometheus.query(substituted(asked.expr, **values), scene.at)
    expr = substituted(asked.expr, **values, range=f"{scene.at - scene.began:.0f}s", rate_interval="5s")
    return await scene.prometheus.query_range(expr, scene.began, scene.at, STEP)


def has_data(samples: list[Sample]) -> bool:
    return any(math.isfinite(sample.value) for sample in samples)


async def test_every_query_has_an_answer(scene: Scraped) -> None:
    """Of all proxies, and of the first alone."""
    wrong = []
    for asked in queries.every():
        for instance in (".*", chosen(scene.first)):
            try:
                if not has_data(await found(scene, asked, instance=instance)):
                    wrong.append(f"{asked} of {instance} is empty: {asked.expr}")
            except Refused as refused:
                wrong.append(f"{asked}: {refused}")
    assert not wrong, "\n".join(wrong)


def test_every_panel_can_be_drawn_from_it(scene: Scraped) -> None:
    """By the renderer of the pictures: no panel says that it is empty, and all can be read."""
    window = Window(scene.began, scene.at, STEP, rate=4)
    source = FromPrometheus(f"http://127.0.0.1:{scene.prometheus.port}", window)
    for name in queries.NAMES:
        dashboard = reading.read(queries.FOLDER / f"{name}.json")
        sheet = page.draw(dashboard, source)
        is_legible(sheet)
        read = read_in(sheet)
        shown = [panel for section in dashboard.sections for panel in section.panels]
        assert {section.title for section in dashboard.sections} <= read
        assert not {panel.empty for panel in shown} & read
    with pytest.raises(NotAnswered, match="parse error"):
        source.at_the_end("sum(")


async def test_every_query_has_an_answer_for_some_upstream_and_rule(scene: Scraped) -> None:
    """The variables with one value each: what is shown for all is shown for at least one of them."""
    empty = []
    for asked in queries.every():
        if not queries.variables(asked.expr) & {"upstream", "rule"}:
            continue
        shown = [
            await found(
                scene, asked, upstream=chosen(upstream), rule=chosen(rule), instance=chosen(scene.first)
            )
            for upstream, rule in PLACES
        ]
        if not any(map(has_data, shown)):
            empty.append(f"{asked}: {asked.expr}")
    assert not empty, "\n".join(empty)


async def test_the_figures_are_those_of_the_script(scene: Scraped) -> None:
    """Of the first proxy, whose every sample is exact, and of both."""
    elapsed = scene.at - scene.began
    first = Told(scene.done, (scene.first,), WORKERS, PROCESSES, elapsed)
    both = Told(await scene.all_done(), (scene.first, scene.second), WORKERS, PROCESSES, elapsed)
    wrong = []
    for asked in queries.every():
        expected = BY_DASHBOARD[asked.dashboard].get((asked.panel, asked.legend))
        for told, instance in ((first, chosen(scene.first)), (both, ".*")):
            if expected is not None:
                said = await difference(scene, asked, expected, told, instance)
                wrong += [f"{asked} of {instance}: {said}"] if said else []
    assert not wrong, "\n".join(wrong)


async def difference(scene: Scraped, asked: Asked, expected: Expected, told: Told, instance: str) -> str:
    """Empty where what is shown is what must be. What comes as a rate is asked over the whole traffic."""
    window = f"{RANGE}s"
    expr = substituted(asked.expr, instance=instance, range=window, rate_interval=window)
    shown = await scene.prometheus.query(expr, scene.at)
    if isinstance(expected, Between):
        high = expected.high(told)
        good = shown and all(expected.low < one.value <= high for one in shown)
        return "" if good else f"{shown} is not between {expected.low} and {high}"
    values = {tuple(one.labels.get(name, "") for name in expected.labels): one.value for one in shown}
    is_there = {key: value for key, value in values.items() if value}
    must_be = {key: value for key, value in expected.sums(told).items() if value}
    if expected.at_most:
        good = all(value <= must_be.get(key, 0) * SLACK for key, value in is_there.items())
    else:
        good = is_there == pytest.approx(must_be, rel=1e-9, abs=0)
    if good:
        return ""
    return f"\n  shows {is_there}\n  not   {must_be}"


def test_no_number_is_left_unchecked() -> None:
    """Each query of a panel that shows numbers is in the table, and each line of the table is a query."""
    asked = {(one.dashboard, one.panel, one.legend): one for one in queries.every()}
    known = {(name, *line) for name, table in BY_DASHBOARD.items() for line in table}
    assert known - asked.keys() == set()
    assert {key for key, one in asked.items() if one.panel_type in IN_NUMBERS} - known == set()


@pytest.mark.parametrize("name", queries.NAMES)
async def test_the_variables_offer_what_was_used(scene: Scraped, name: str) -> None:
    """Upstreams and rules of the script, and no preset that nobody asked for."""
    offered = {
        one["name"]: await offers(scene, one["query"]["query"], one["regex"])
        for one in queries.read(name)["templating"]["list"]
        if one["type"] == "query"
    }
    assert offered == {
        "instance": {scene.first, scene.second},
        "upstream": {upstream for upstream, _ in PLACES},
        "rule": {rule for _, rule in PLACES},
    }


async def offers(scene: Scraped, query: str, regex: str) -> set[str]:
    """As Grafana reads a variable's query: the values of a label, or a regular expression over the series."""
    asked = re.fullmatch(
        r"(?:label_values\((?P<of>\w+), ?(?P<label>\w+)\)|query_result\((?P<expr>.*)\))", query
    )
    assert asked is not None, query
    if asked["expr"] is None:
        assert not regex
        series = await scene.prometheus.query(asked["of"], scene.at)
        return {one.labels[asked["label"]] for one in series}
    series = await scene.prometheus.query(substituted(asked["expr"]), scene.at)
    lines = [
        "{" + ",".join(f'{name}="{value}"' for name, value in one.labels.items()) + "}" for one in series
    ]
    matches = [re.search(regex.strip("/"), line) for line in lines]
    return {match[1] for match in matches if match is not None}


async def test_the_counters_are_those_of_the_script(scene: Scraped) -> None:
    """Before any panel: each series of each metric that the script counts, and no other has counted."""
    for proxy, done in ((scene.first, scene.done), (scene.second, scene.beside)):
        for metric, expected in done.figures.items():
            shown = await scene.prometheus.query(f'{metric}{{instance="{proxy}"}} != 0', scene.at)
            told = {_named(one.labels): one.value for one in shown}
            assert told == pytest.approx({_named(dict(key)): value for key, value in expected.items()}), (
                metric
            )


def _named(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Without what Prometheus adds, and without what is empty: to Prometheus it is not there."""
    added = ("instance", "job")
    return frozenset((name, value) for name, value in labels.items() if value and name not in added)


async def test_what_can_be_named_before_it_happens_begins_at_zero(scene: Scraped) -> None:
    """All that the script counts was there before it began, but for what upstreams would answer."""
    for metric, expected in scene.done.figures.items():
        shown = await scene.prometheus.query(f'{metric}{{instance="{scene.first}"}}', scene.began)
        assert not any(one.value for one in shown), metric
        missing = {_named(dict(labels)) for labels in expected} - {_named(one.labels) for one in shown}
        assert all(dict(labels).get("code", "").isdigit() for labels in missing), (metric, missing)


async def test_nothing_falls(scene: Scraped) -> None:
    """Whichever worker is asked, it tells the sum of all."""
    for metric in scene.done.figures.keys() - {STATES}:
        assert not await scene.prometheus.query(f"resets({metric}[{RANGE}s]) > 0", scene.at), metric
