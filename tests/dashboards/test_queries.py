"""Every query of the dashboards asks for something that semel tells, by labels that it has, and is PromQL."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dashboards.queries import DELIBERATELY_ABSENT, LABELS
from proxy.core.intent import State
from proxy.problem import PROBLEMS
from tests.dashboards.queries import NAMES, Asked, every, read, substituted
from tests.inside import call, semel
from tests.origin import READ_ALL, Origin, Reset, answer

QUERIES = [*every()]
SELECTOR = re.compile(r"\b(?P<metric>semel_\w+)(?:\{(?P<matchers>[^}]*)\})?")
MATCHER = re.compile(r'(?P<label>\w+)(?P<how>=~|!~|!=|=)"(?P<value>[^"]*)"')
BY = re.compile(r"\b(?:by|on) \((?P<labels>[^)]*)\)\s*\(")
PARTS = ("_bucket", "_sum", "_count")
SCRAPED = {"instance", "job"}  # what Prometheus adds
# About the store: told by every proxy on it.
OF_THE_STORE = re.compile(r"semel_(calls_in_state|oldest_\w+|store_bytes|store_part_bytes|owners)\b")
# Values that labels can have, as far as queries name them.
VALUES: dict[tuple[str, str], set[str]] = {
    ("semel_calls_total", "status"): {"executed", "replayed", "joined", "passed", "refused"},
    ("semel_call_seconds", "status"): {"executed", "replayed", "joined", "passed", "refused"},
    ("semel_calls_total", "mode"): {"once", "cache", "pass", "deny"},
    ("semel_problems_total", "type"): {problem.name for problem in PROBLEMS.values()},
    ("semel_calls_in_state", "state"): {str(state) for state in State},
    ("semel_recovered_total", "state"): {"in_doubt", "released"},
    ("semel_store_seconds", "op"): {"get", "swap"},
    ("semel_policy_reloads_total", "result"): {"good", "bad"},
    ("semel_upstream_responses_total", "code"): {"lost", "not_sent", "5.."},
    ("semel_build_info", "store"): {"memory", ".*best-effort"},
}
POLICY = """
upstream: pay
base_url: http://127.0.0.1:{port}
rules:
  - {{name: charge, match: {{method: POST, path: /charge}}, cost: {{usd: 0.5}}}}
  - {{name: look, match: {{method: POST, path: /look}}, safe: true}}
  - {{name: watched, match: {{method: POST, path: /watched}}, cost: {{usd: 0.5}}, shadow: true}}
"""


def base(metric: str) -> str:
    return next((metric.removesuffix(part) for part in PARTS if metric.endswith(part)), metric)


def selectors(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    for found in SELECTOR.finditer(text):
        matchers = MATCHER.finditer(found["matchers"] or "")
        yield found["metric"], {one["label"]: one["value"] for one in matchers}


def inside(text: str, start: int) -> str:
    """Up to the parenthesis that closes the one before `start`."""
    depth = 1
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return text[start:index]
    raise AssertionError(f"a parenthesis is open in {text}")


async def scraped(tmp_path: Path) -> str:
    """What a semel tells that has executed, replayed, looked on at and lost calls."""
    fine = (*READ_ALL, answer(200, b"ok"))
    async with (
        Origin(fine, fine, fine, (*READ_ALL, Reset())) as origin,
        semel(tmp_path, POLICY.format(port=origin.port)) as app,
    ):
        port = app.address.port
        for body in (b"1", b"1", b"2"):
            for path in ("/pay/charge", "/pay/watched"):
                await call(port, "POST", path, {}, body)
        return (await call(port, "GET", "/metrics")).body.decode()


@pytest.fixture
async def told(tmp_path: Path) -> dict[str, set[str]]:
    """Each metric's labels, none where there is nothing to tell of yet."""
    text = await scraped(tmp_path)
    found: dict[str, set[str]] = {name: set() for name in re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(base(sample.name), set()).update(set(sample.labels) - {"le"})
    return found


async def test_every_metric_that_is_asked_for_exists(told: dict[str, set[str]]) -> None:
    """A metric that was renamed would leave its panels empty, and nobody would know."""
    asked = {base(metric) for query in QUERIES for metric, _ in selectors(query.expr)}
    assert sorted(asked - set(told)) == []


async def test_every_metric_that_exists_is_shown(told: dict[str, set[str]]) -> None:
    """Or is named, with the reason, as one that is left out on purpose."""
    asked = {base(metric) for query in QUERIES for metric, _ in selectors(query.expr)}
    assert sorted(set(told) - asked) == sorted(DELIBERATELY_ABSENT)
    assert all(DELIBERATELY_ABSENT.values())


async def test_the_table_of_labels_is_true(told: dict[str, set[str]]) -> None:
    """The generator knows by it which variables narrow what."""
    seen = {metric: labels for metric, labels in told.items() if labels}
    assert {metric: set(LABELS[metric]) for metric in seen} == seen
    assert len(seen) >= 10


async def test_rules_with_effects_are_known_from_the_start(tmp_path: Path) -> None:
    """The dashboard of effects knows them by the duplicates that could be prevented: 0, and not for reads."""
    fine = (*READ_ALL, answer(200, b"ok"))
    async with Origin(fine) as origin, semel(tmp_path, POLICY.format(port=origin.port)) as app:
        text = (await call(app.address.port, "GET", "/metrics")).body.decode()
    begun = re.findall(r"^semel_duplicates_prevented_total\{(.*)\} 0\.0$", text, re.MULTILINE)
    assert {re.sub(r'.*rule="(\w+)".*', r"\1", labels) for labels in begun} == {"charge", "default"}
    assert any("semel_duplicates_prevented_total" in query.expr.split(" and on ")[-1] for query in QUERIES)


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_selectors_name_labels_that_are_there(query: Asked) -> None:
    """Each is narrowed by every variable whose label it has, and names no label or value that it has not."""
    assert [*selectors(query.expr)]
    for metric, matchers in selectors(query.expr):
        labels = set(LABELS[base(metric)])
        assert set(matchers) <= labels | SCRAPED, metric
        for variable in ("upstream", "rule", "instance"):
            if variable in labels | SCRAPED:
                assert matchers.get(variable) == f"${variable}", metric
        for label, value in matchers.items():
            if not value.startswith("$"):
                assert set(value.split("|")) <= VALUES[base(metric), label]
    grouped = set()
    for found in BY.finditer(query.expr):
        wanted = {label.strip() for label in found["labels"].split(",")}
        grouped |= wanted
        # What stands behind `and on` chooses among the series, and has labels of its own.
        for metric, _ in selectors(inside(query.expr, found.end()).split(" and on ")[0]):
            own = {"le"} if metric.endswith("_bucket") else set()
            assert wanted <= set(LABELS[base(metric)]) | SCRAPED | own, metric
    assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= grouped, "a legend names what is not told apart"


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_numbers_are_put_together_as_they_must_be(query: Asked) -> None:
    """What every proxy tells of one store is not added up; nothing is divided by 0; counters are rated."""
    for found in OF_THE_STORE.finditer(query.expr):
        before = query.expr[: found.start()]
        assert re.search(r"\bmax(?: by \([^)]*\))? ?\((?:(?:deriv|rate)\()?$", before), query.expr
    if " / " in query.expr:
        assert re.search(r" / \(.* > 0\)$", query.expr)
    if "histogram_quantile" in query.expr:
        assert query.expr.endswith(" >= 0"), "a window without observations is NaN"
        assert re.search(r"sum by \(le(, \w+)*\) \(rate\(semel_\w+_bucket\{", query.expr)
    for found in re.finditer(r"semel_\w+(?:_total|_bucket|_sum|_count)\{[^}]*\}(?P<window>\[)?", query.expr):
        of_rules = query.expr[: found.start()].endswith("(sum by (upstream, rule) (")  # which rules there are
        assert found["window"] or of_rules, "a counter as it stands says nothing"
    for window in re.findall(r"\[([^\]]+)\]", query.expr):
        assert window in ("$__range", "$__rate_interval", "30m"), window


def test_a_number_about_people_is_not_made_up() -> None:
    """Where nobody tells, "0 in doubt" would be a lie: what a person acts on is not filled in with 0."""
    for query in QUERIES:
        if OF_THE_STORE.search(query.expr):
            assert "vector(0)" not in query.expr, query


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian's package prometheus) is missing"
)
def test_every_query_is_promql(tmp_path: Path) -> None:
    """Read by Prometheus's own parser, each as a rule; variables of the dashboards as well."""
    asked = {str(query): substituted(query.expr) for query in QUERIES}
    for name in NAMES:
        for variable in read(name)["templating"]["list"]:
            if variable["type"] == "query" and variable["query"]["query"].startswith("query_result("):
                expr = variable["query"]["query"].removeprefix("query_result(").removesuffix(")")
                asked[f"{name}: ${variable['name']}"] = substituted(expr)
    rules = [
        {"record": f"query:{number}", "expr": expr, "labels": {"asked": where}}
        for number, (where, expr) in enumerate(asked.items())
    ]
    file = tmp_path / "rules.json"  # which is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    checked = subprocess.run(
        ["promtool", "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout
