"""Alerts that fire when they should and not otherwise, about metrics that there are, with a page for each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from docs import reference
from tests.dashboards.alerting import (
    RULES,
    RUNBOOKS,
    UNIT_TESTS,
    broken,
    cases_of,
    failed_by,
    needs_promtool,
    promtool,
    rules,
    unit_tests,
)
from tests.dashboards.queries import NAMES, read
from tests.docs.pages import blocks
from tests.inside import call, semel

ALERTS = rules()
# Numbers in an expression that are no bounds: compared with 0 or 1 as yes and no.
YES_AND_NO = {"SemelDown", "SemelBestEffortDurability"}


@needs_promtool
def test_prometheus_takes_the_rules() -> None:
    """No mistake, and nothing that its linter would have otherwise."""
    told = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert told.returncode == 0, told.stdout.decode()
    assert f"SUCCESS: {len(ALERTS)} rules found" in told.stdout.decode()


@needs_promtool
@pytest.mark.parametrize("file", UNIT_TESTS, ids=lambda file: file.stem)
def test_the_unit_tests_hold(file: Path) -> None:
    """`promtool test rules`, as a reader would run it."""
    told = promtool("test", "rules", file)
    assert told.returncode == 0, told.stdout.decode()


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_seen_to_fire_and_not_to(alert: str) -> None:
    """With labels and annotations where it fires; in a group of its own, where it never does, as well."""
    groups = [expected for _, _, expected in cases_of(alert)]
    fired = [one for expected in groups for case in expected for one in case["exp_alerts"]]
    assert fired
    assert all(set(one["exp_annotations"]) == set(ALERTS[alert]["annotations"]) for one in fired)
    assert any(not any(case["exp_alerts"] for case in expected) for expected in groups)


def test_no_unit_test_is_about_an_alert_that_is_gone() -> None:
    """promtool takes an unknown name for an alert that never fires."""
    groups = [group for file in UNIT_TESTS for group in unit_tests(file)["tests"]]
    assert {case["alertname"] for group in groups for case in group["alert_rule_test"]} == set(ALERTS)


@needs_promtool
@pytest.mark.parametrize("alert", ALERTS)
def test_a_broken_alert_fails_its_unit_tests(alert: str, tmp_path: Path) -> None:
    """Every operator turned, every bound a little higher and lower, every half of a condition left out: where
    the unit tests still hold, they say nothing about it. As it is, the alert passes them."""
    variants = [("as it is", ALERTS[alert]), *broken(ALERTS[alert])]
    assert len(variants) > 5
    failed = failed_by(alert, [rule for _, rule in variants], tmp_path)
    assert [what for number, (what, _) in enumerate(variants) if number not in failed] == ["as it is"]


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_says_what_is_needed(alert: str) -> None:
    """How long, how urgent, what, where to read on; bounds are marked, a `for` of nothing has its reason."""
    rule = ALERTS[alert]
    text = RULES.read_text(encoding="utf-8").split(f"- alert: {alert}\n")[1].split("- alert:")[0]
    assert re.search(r"^ +for: (?:[1-9]\d*m|0s  # .{12,})$", text, re.MULTILINE)
    assert rule["labels"]["severity"] in {"page", "ticket", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert all(rule["annotations"].values())
    assert alert in YES_AND_NO or "# bound: " in rule["expr"]
    assert rule["annotations"]["runbook"] == f"docs/runbooks/{alert}.md"


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_its_page(alert: str) -> None:
    """Its title names the alert; what is affected, what to look at, what to do, what not, when it ends."""
    page = (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {alert}: ")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == [
        "What is affected, and what is not",
        "What to look at",
        "What to do",
        "What not to do",
        "When it ends",
    ]
    assert f"**{ALERTS[alert]['labels']['severity']}**" in page


def test_each_panel_that_a_page_names_is_there() -> None:
    """On the dashboard that stands before it, whether it is a panel or a row."""
    dashboards = {f"semel / {name.capitalize()}": read(name) for name in NAMES}
    titles = {
        title: {panel["title"] for row in found["panels"] for panel in (row, *row.get("panels", ()))}
        for title, found in dashboards.items()
    }
    named = 0
    for page in sorted(RUNBOOKS.glob("Semel*.md")):
        for line in re.findall(r"^- Dashboard .+(?:\n  .+)*", page.read_text(encoding="utf-8"), re.MULTILINE):
            here: set[str] = set()
            for name in re.findall(r"\*([^*]+)\*", re.sub(r"\s+", " ", line)):
                if name in titles:
                    here = titles[name]
                    continue
                assert name in here, f"{page.name}: {name}"
                named += 1
    assert named > len(ALERTS)


def test_the_table_has_every_alert_and_every_page_is_an_alerts() -> None:
    """docs/runbooks/README.md links each page, with the alert's severity; no page is left over."""
    told = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[`(\w+)`\]\(\w+\.md\) \| (\w+) \|", told, re.MULTILINE))
    assert rows == {alert: rule["labels"]["severity"] for alert, rule in ALERTS.items()}
    assert {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"} == set(ALERTS)


async def test_every_metric_is_one_that_semel_tells(tmp_path: Path) -> None:
    """In the rules, their unit tests and the pages: a name that is misspelt is a query that finds nothing."""
    async with semel(tmp_path, "upstream: pay\nbase_url: http://127.0.0.1:1\n", store="memory") as app:
        page = (await call(app.address.port, "GET", "/metrics")).body.decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", page, re.MULTILINE))
    known = set(kinds) | {
        f"{name}_{part}"
        for name, kind in kinds.items()
        if kind == "histogram"
        for part in ("bucket", "count", "sum")
    }
    texts = [RULES, *UNIT_TESTS, *RUNBOOKS.glob("*.md")]
    for file in texts:
        named = set(re.findall(r"\bsemel_[a-z_]+[a-z]\b", file.read_text(encoding="utf-8")))
        assert named <= known, f"{file.name}: {named - known}"


async def test_what_one_event_is_enough_for_is_told_before_the_first(tmp_path: Path) -> None:
    """`increase` does not see a series that begins with 1: a semel that has just started tells each as 0."""
    async with semel(tmp_path, "upstream: pay\nbase_url: http://127.0.0.1:1\n", store="memory") as app:
        page = (await call(app.address.port, "GET", "/metrics")).body.decode()
    looked_at = {
        (name, matchers)
        for rule in ALERTS.values()
        if rule["for"] == "0s" or rule["alert"] in ("SemelStoreUnavailable", "SemelPolicyReloadFailed")
        for name, matchers in re.findall(r"(semel_\w+_total|semel_\w+_outdated)(\{[^}]*\})?", rule["expr"])
    }
    assert len(looked_at) >= 7
    for name, matchers in looked_at:
        wanted = rf"{name}{re.escape(matchers)} 0\.0" if matchers else rf"{name}(?:\{{.*\}})? 0\.0"
        assert re.search(rf"^{wanted}$", page, re.MULTILINE), name + matchers


async def test_without_its_store_semel_tells_no_figures_of_it(tmp_path: Path) -> None:
    """What SemelStoreUnavailable knows an absent store by when nobody calls: told before, missing then."""
    async with semel(tmp_path, "upstream: pay\nbase_url: http://127.0.0.1:1\n", store="embedded") as app:
        for is_there in (True, False):
            page = (await call(app.address.port, "GET", "/metrics")).body.decode()
            assert "\nsemel_build_info{" in page
            assert ("\nsemel_store_bytes " in page) is is_there
            await app.store.close()


@needs_promtool
def test_prometheus_takes_every_query_of_the_pages(tmp_path: Path) -> None:
    """Each line of a `text` block in an alert's page is pasted into Prometheus as it stands."""
    queries = [
        {"record": f"query:{page.stem}:{number}", "expr": line}
        for page in RUNBOOKS.glob("Semel*.md")
        for block in blocks(page, "text")
        for number, line in enumerate(block.text.splitlines())
    ]
    assert len(queries) >= len(ALERTS)
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": queries}]}), encoding="utf-8")
    told = promtool("check", "rules", file)
    assert told.returncode == 0, told.stdout.decode()


@needs_promtool
def test_prometheus_takes_the_configuration_that_loads_the_rules(tmp_path: Path) -> None:
    """The first block of docs/runbooks/README.md, with the place where the rules are here."""
    said = blocks(RUNBOOKS / "README.md", "text")[0].text
    assert "/etc/prometheus/semel/alerts.yaml" in said
    file = tmp_path / "prometheus.yml"
    file.write_text(said.replace("/etc/prometheus/semel/alerts.yaml", str(RULES)), encoding="utf-8")
    told = promtool("check", "config", file)
    assert told.returncode == 0, told.stdout.decode()
    assert "1 rule files found" in told.stdout.decode()


def test_every_problem_is_one_that_semel_gives() -> None:
    """The types by which the alerts choose."""
    given = {problem.name for problem in reference.given_problems()}
    asked = {name for rule in ALERTS.values() for name in re.findall(r'type="([^"]+)"', rule["expr"])}
    assert asked
    assert asked <= given
