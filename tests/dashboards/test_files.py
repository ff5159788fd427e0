"""The committed dashboards: what the generator writes, what Grafana's own model reads, whole and in order."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from itertools import combinations
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.__main__ import files
from dashboards.frame import SEMEL_URL
from tests.dashboards.queries import FOLDER, NAMES, panels, read, variables

every_dashboard = pytest.mark.parametrize("name", NAMES)
COLUMNS = 24
PAGE = FOLDER.parent / "proxy" / "admin" / "page" / "main.js"


def difference(before: str, after: str) -> str:
    found = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "committed", "made", lineterm="", n=2
    )
    return "\n".join([*found][:60])


def pretty(value: object) -> str:
    return json.dumps(value, cls=JSONEncoder, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def test_the_committed_files_are_what_the_generator_writes() -> None:
    """Whoever edits a file by hand, or forgets `make dashboards`, is told here."""
    made = files()
    assert {path.name for path in FOLDER.glob("*.json")} == set(made) == {f"{name}.json" for name in NAMES}
    for name, text in made.items():
        changed = difference((FOLDER / name).read_text(encoding="utf-8"), text)
        assert not changed, f"run `make dashboards`: {name}\n{changed}"


@every_dashboard
def test_grafanas_model_reads_all_of_it(name: str) -> None:
    """Read into the model of Grafana's schema and written again, nothing is lost and nothing is added."""
    register_default_plugins()
    committed = read(name)
    model = Dashboard.from_json(read(name))
    changed = difference(pretty(committed), pretty(model))
    assert not changed, f"{name}.json\n{changed}"


def test_the_round_trip_would_notice() -> None:
    """The model drops what the schema does not have: in a panel's options, a target, a field, a variable."""
    register_default_plugins()
    for number in range(5):
        found = read("overview")
        panel, variable = found["panels"][1], found["templating"]["list"][0]
        target, defaults = panel["targets"][0], panel["fieldConfig"]["defaults"]
        (panel["options"], target, defaults, variable, found)[number]["misspelt"] = True
        given = pretty(found)
        assert "misspelt" in difference(given, pretty(Dashboard.from_json(found)))


@every_dashboard
def test_each_is_found_by_a_fixed_name_and_leads_to_the_others(name: str) -> None:
    """Fixed uid, no id of some Grafana, the tag by which the dashboards list each other."""
    found = read(name)
    assert (found["uid"], found["tags"]) == (f"semel-{name}", ["semel"])
    assert not {"id", "version", "__inputs"} & set(found)
    assert found["description"]
    others, page = found["links"]
    assert (others["type"], others["tags"], others["keepTime"], others["includeVars"]) == (
        "dashboards",
        ["semel"],
        True,
        True,
    )
    assert page["url"].startswith("${semel_url}/_semel/")


@every_dashboard
def test_every_panel_says_what_it_shows(name: str) -> None:
    """Title, description of at least two sentences, unit, the chosen data source, a legend for each query."""
    for panel in panels(read(name)):
        where = f"{name}: {panel['title']}"
        assert panel["title"], where
        assert len(panel["description"]) > 60, where
        assert panel["description"].count("\n\n") >= 1, f"{where} does not say what is normal"
        assert panel["fieldConfig"]["defaults"]["unit"], where
        assert panel["fieldConfig"]["defaults"]["noValue"], where
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, where
        assert panel["targets"], where
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"], where
            assert target["legendFormat"], where
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), where


@every_dashboard
def test_numbers_and_tables_ask_once_and_lines_over_time(name: str) -> None:
    """A total over a range is one value; every number has a colour for good, bad or neither."""
    for panel in panels(read(name)):
        instant = panel["type"] in ("stat", "table")
        for target in panel["targets"]:
            assert (target.get("instant", False), target.get("range", False)) == (instant, not instant)
            if "increase(" in target["expr"].split("@ end()")[0] and not instant:
                assert "@ end()" in target["expr"], f"{panel['title']}: a total drawn over time"
        if panel["type"] == "stat":
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert steps[0]["value"] is None
            values = [step["value"] for step in steps[1:]]
            assert values == sorted(values)
            assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]
            mapped = panel["fieldConfig"]["defaults"].get("mappings")
            assert values or mapped or steps[0]["color"] == "blue", f"{panel['title']}: good or bad?"


@every_dashboard
def test_columns_of_tables_have_names_and_units(name: str) -> None:
    """Nobody reads "Value #C": each query's column is renamed, and what it is called has a unit."""
    for panel in panels(read(name)):
        if panel["type"] != "table":
            continue
        merge, organize = panel["transformations"]
        assert (merge["id"], organize["id"]) == ("merge", "organize")
        renamed = organize["options"]["renameByName"]
        overrides = {
            one["matcher"]["options"]: one["properties"] for one in panel["fieldConfig"]["overrides"]
        }
        for target in panel["targets"]:
            title = renamed[f"Value #{target['refId']}"]
            assert title == target["legendFormat"]
            assert {"unit", "decimals", "noValue"} <= {one["id"] for one in overrides[title]}
        assert panel["options"]["sortBy"][0]["displayName"] in renamed.values()


@every_dashboard
def test_panels_fill_the_grid_and_do_not_overlap(name: str) -> None:
    """24 columns; every row of panels is full, so that nothing hangs in the air."""
    found = read(name)
    everything = [*found["panels"], *(one for row in found["panels"] for one in row.get("panels", ()))]
    places = [(one["title"], one["gridPos"]) for one in everything]
    for title, at in places:
        assert 0 <= at["x"] < at["x"] + at["w"] <= COLUMNS, title
    for (title, one), (other, two) in combinations(places, 2):
        beside = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        above = one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]
        assert beside or above, f"{title} lies over {other}"
    filled = Counter[int]()
    for _, at in places:
        filled.update(dict.fromkeys(range(at["y"], at["y"] + at["h"]), at["w"]))
    assert set(filled.values()) == {COLUMNS}
    assert set(filled) == set(range(max(filled) + 1)), "a gap between rows"


@every_dashboard
def test_ids_are_unique_and_rows_hold_what_they_should(name: str) -> None:
    """Grafana strips panels from an open row, and finds a panel by its id."""
    found = read(name)
    rows = [one for one in found["panels"] if one["type"] == "row"]
    numbers = [one["id"] for one in [*rows, *panels(found)]]
    assert len(set(numbers)) == len(numbers)
    assert 0 not in numbers
    for row in rows:
        assert row["title"]
        assert bool(row["panels"]) == row["collapsed"]
    titles = Counter(one["title"] for one in panels(found))
    assert set(titles.values()) == {1}, titles.most_common(1)


@every_dashboard
def test_variables(name: str) -> None:
    """The same on each: data source; proxies, upstreams, rules, several or all; where semel is."""
    found = read(name)
    known = {one["name"]: one for one in found["templating"]["list"]}
    assert list(known) == ["datasource", "instance", "upstream", "rule", "semel_url"]
    assert (known["datasource"]["type"], known["datasource"]["query"]) == ("datasource", "prometheus")
    for each in ("instance", "upstream", "rule"):
        one = known[each]
        assert (one["multi"], one["includeAll"], one["allValue"]) == (True, True, ".*")
        assert one["current"]["value"] == ["$__all"]
        assert one["datasource"]["uid"] == "${datasource}"
    assert (known["semel_url"]["type"], known["semel_url"]["query"]) == ("textbox", SEMEL_URL)
    asked = {each: known[each]["query"]["query"] for each in ("instance", "upstream", "rule")}
    assert "$instance" in asked["upstream"]
    assert {"upstream", "instance"} == variables(asked["rule"])
    # What Prometheus answers, as Grafana hands it to the expression.
    row = '{upstream="mail", rule="send"} 3 1700000000000'
    for each, wanted in (("upstream", "mail"), ("rule", "send")):
        assert re.findall(known[each]["regex"].strip("/"), row) == [wanted]
        assert re.findall(known[each]["regex"].strip("/"), "{} 3 1700000000000") == []


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in strings(one)]
    if isinstance(value, list):
        return [text for one in value for text in strings(one)]
    return [value] if isinstance(value, str) else []


@every_dashboard
def test_every_variable_that_is_used_is_there_and_each_is_used(name: str) -> None:
    """A misspelt one would be asked for by its dollar sign."""
    found = read(name)
    known = {one["name"] for one in found["templating"]["list"]}
    for_panels = {used for text in strings([found["panels"], found["links"]]) for used in variables(text)}
    assert {one for one in for_panels if not one.startswith("__")} == known
    assert {one for one in for_panels if one.startswith("__")} <= {"__range", "__rate_interval"}
    everywhere = {used for text in strings(found["templating"]) for used in variables(text)}
    assert everywhere - {"__all"} <= known


@every_dashboard
def test_links_lead_to_views_of_the_operators_page(name: str) -> None:
    """Where a person decides: the address behind # is one that the page knows."""
    views = re.search(r"const views = \{([^}]+)\}", PAGE.read_text(encoding="utf-8"))
    assert views is not None
    known = {word.split(":")[0].strip() for word in views[1].split(",")}
    urls = [link["url"] for panel in panels(read(name)) for link in panel.get("links", ())]
    assert urls
    for url in urls:
        start, _, view = url.partition("/_semel/#/")
        assert (start, view in known) == ("${semel_url}", True), url
    for panel in panels(read(name)):
        asked = " ".join(target["expr"] for target in panel["targets"])
        if re.search(r"oldest_|in_doubt|awaiting", asked):
            assert panel["links"], f"{panel['title']}: a person acts on this"
