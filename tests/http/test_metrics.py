"""What /metrics shows before anything happened, of several workers, and of what seldom happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from proxy.core.intent import State
from proxy.core.policy import PolicySet
from proxy.metrics import Figures, MetricsObserver
from proxy.metrics.observer import GATHERED
from proxy.observe import RECOVERED, Sent, Served
from proxy.policy_file import load_policies
from proxy.problem import PROBLEMS
from tests.http.test_own_pages import scrape, value
from tests.inside import call, semel
from tests.origin import READ_ALL, Origin, answer

RULES = """
rules:
  - {name: pay, match: {method: POST, path: /pay}, cost: {usd: 0.5}}
  - {name: look, match: {method: GET, path: /look}, mode: cache, stale: revalidate, max_age: 1s}
  - {name: through, match: {path: /through}, mode: pass}
  - {name: never, match: {path: /never}, mode: deny}
"""


def policies(directory: Path, rules: str = RULES) -> PolicySet:
    file = directory / "up.yaml"
    file.write_text(f"upstream: up\nbase_url: http://127.0.0.1:1\n{rules}")
    return load_policies([file])


def shown(metrics: MetricsObserver, *others: Figures) -> list[Sample]:
    text = metrics.render("memory", None, 0.0, others).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def labelled(samples: list[Sample], name: str, *labels: str) -> set[tuple[str, ...]]:
    return {tuple(each.labels[label] for label in labels) for each in samples if each.name == name}


def test_what_may_happen_is_shown_as_zero(tmp_path: Path) -> None:
    """By the rules there are; what cannot become of a rule's calls is not shown."""
    metrics = MetricsObserver()
    metrics.governed(policies(tmp_path))
    samples = shown(metrics)
    assert not any(sample.value for sample in samples if sample.name != "semel_build_info")
    calls = labelled(samples, "semel_calls_total", "rule", "status")
    assert {status for rule, status in calls if rule == "pay"} == {
        "executed",
        "replayed",
        "joined",
        "refused",
    }
    assert {status for rule, status in calls if rule == "through"} == {"passed", "refused"}
    assert {status for rule, status in calls if rule == "never"} == {"refused"}
    assert {status for rule, status in calls if rule == "default"} >= {"executed", "passed"}
    assert {status for rule, status in calls if not rule} == {"refused"}  # before it is known what for
    assert {rule for rule, _ in calls} == {"", "pay", "look", "through", "never", "default"}
    by_rule = {
        name: labelled(samples, f"semel_{name}_total", "upstream", "rule")
        for name in ("duplicates_prevented", "saved_usd", "spent_usd", "suspected_polls", "drifts")
    }
    own = ("local-tools", "default")  # tools of the agent's own, which need no file
    recorded = {("up", "pay"), ("up", "look"), ("up", "default"), own}
    assert by_rule == {
        "duplicates_prevented": {("up", "pay"), ("up", "default"), own},
        "saved_usd": {("up", "pay")},
        "spent_usd": {("up", "pay")},
        "suspected_polls": recorded,
        "drifts": {("up", "look")},
    }
    lost = labelled(samples, "semel_upstream_responses_total", "rule", "code")
    assert lost == {(rule, code) for rule in ("pay", "default") for code in ("lost", "not_sent")}
    assert labelled(samples, "semel_problems_total", "type") == {(one.name,) for one in PROBLEMS.values()}
    assert labelled(samples, "semel_policy_reloads_total", "result") == {("good",), ("bad",)}


def test_what_would_happen_and_what_is_told_are_shown_as_zero(tmp_path: Path) -> None:
    """Where a rule is only looked on at, where somebody is told; elsewhere nothing is."""
    names = ("shadow_calls", "shadow_problems", "shadow_duplicates_prevented", "notifications")

    def kinds(metrics: MetricsObserver) -> dict[str, int]:
        samples = shown(metrics)
        return {name: sum(one.name == f"semel_{name}_total" for one in samples) for name in names}

    metrics = MetricsObserver()
    metrics.governed(policies(tmp_path))
    metrics.notifies(())
    assert kinds(metrics) == dict.fromkeys(names, 0)
    metrics.governed(policies(tmp_path, "rules: [{name: pay, match: {method: POST}, shadow: true}]\n"))
    metrics.notifies(["in_doubt"])
    found = kinds(metrics)
    assert found["shadow_problems"] == len({problem.name for problem in PROBLEMS.values()})
    assert (found["shadow_calls"], found["shadow_duplicates_prevented"], found["notifications"]) == (6, 1, 5)


def test_what_is_counted_was_shown_before(tmp_path: Path) -> None:
    """Of every shipped rule: whatever becomes of a call of it, its series was there as zero."""
    presets = load_policies(["presets"])
    metrics = MetricsObserver()
    metrics.governed(presets)
    before = {(sample.name, *sorted(sample.labels.items())) for sample in shown(metrics)}
    counted = ("semel_calls_total", "semel_duplicates_prevented_total", "semel_saved_usd_total")
    for upstream in presets.upstreams.values():
        for rule in upstream.rules:
            statuses = ["refused"] if rule.mode == "deny" else ["passed", "refused"]
            if rule.mode in ("once", "cache"):
                statuses = ["executed", "replayed", "joined", "refused"]
            for status in statuses:
                for method in rule.methods or {"POST"}:
                    metrics.served(
                        Served(
                            upstream=upstream.name,
                            rule=rule.name,
                            mode=rule.mode.value,
                            status=status,
                            safe=rule.is_safe(method),
                            cost_usd=0.0 if rule.cost is None else 0.1,
                        )
                    )
    after = {(each.name, *sorted(each.labels.items())) for each in shown(metrics) if each.name in counted}
    assert after - before == set()
    assert len(after) > 1000


def test_a_rule_that_is_gone_is_not_forgotten(tmp_path: Path) -> None:
    """A counter that disappears with a reload would be taken for a restart."""
    metrics = MetricsObserver()
    metrics.governed(policies(tmp_path))
    metrics.served(Served(upstream="up", rule="pay", mode="once", status="executed"))
    metrics.governed(policies(tmp_path, "rules: [{name: other, match: {path: /other}}]\n"))
    samples = shown(metrics)
    assert value(samples, "semel_calls_total", rule="pay") == 1
    assert ("other",) in labelled(samples, "semel_calls_total", "rule")


def test_workers_are_summed_and_only_counts_are_inherited() -> None:
    """What held of a dead worker holds no longer; what it counted stays counted."""
    one, other = MetricsObserver(), MetricsObserver()
    for each in (one, other):
        each.reloaded(good=False, detail="")
        each.read_evictions(lambda: 3)
        each.batched(5)
        each.noted(RECOVERED, state=str(State.IN_DOUBT))
    both = shown(one, other.figures())
    assert value(both, "semel_policies_outdated") == 2
    assert value(both, "semel_cache_evictions_total") == 6
    assert value(both, "semel_store_batch_rows_count") == 2
    assert value(both, "semel_store_batch_rows_sum") == 10
    assert value(both, "semel_recovered_total", state="in_doubt") == 2
    heir = MetricsObserver()
    heir.take_over(other.figures())
    heir.read_evictions(lambda: 1)
    left = shown(one, heir.figures())
    assert value(left, "semel_policies_outdated") == 1
    assert value(left, "semel_cache_evictions_total") == 3 + 3 + 1
    assert value(left, "semel_store_batch_rows_sum") == 10
    assert value(left, "semel_recovered_total", state="in_doubt") == 2
    one.reloaded(good=True, detail="")
    assert value(shown(one), "semel_policies_outdated") == 0


async def test_the_time_that_semel_adds(tmp_path: Path) -> None:
    """Of what went upstream, and of nothing else: with the upstream's own time it is the call's."""
    fine = (*READ_ALL, answer(200, b"ok"))
    async with Origin(fine, fine) as origin:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n{RULES}"
        async with semel(tmp_path, policy) as app:
            port = app.address.port
            statuses = [
                (await call(port, method, path, {}, b"{}")).semel
                for method, path in (
                    ("POST", "/up/pay"),
                    ("POST", "/up/pay"),
                    ("POST", "/up/through"),
                    ("POST", "/up/never"),
                )
            ]
            assert statuses == ["executed", "replayed", "passed", "refused"]
            samples = await scrape(app)
    assert value(samples, "semel_added_seconds_count") == 2
    fetched = ("executed", "passed")
    went = sum(value(samples, "semel_call_seconds_sum", upstream="up", status=each) for each in fetched)
    upstream = value(samples, "semel_upstream_seconds_sum", upstream="up")
    added = value(samples, "semel_added_seconds_sum", upstream="up")
    assert added > 0
    assert abs(went - upstream - added) < 1e-9


def test_a_status_without_meaning_is_shown_by_its_class(tmp_path: Path) -> None:
    """Whatever an upstream answers, a rule has fewer than a hundred series of it; alerts find theirs."""
    metrics = MetricsObserver()
    metrics.governed(policies(tmp_path))
    for code in (*range(200, 1000), "lost", "not_sent"):
        metrics.sent(Sent(upstream="up", rule="through", code=str(code), seconds=0.0))
    samples = [
        each
        for each in shown(metrics)
        if each.name == "semel_upstream_responses_total" and each.labels["rule"] == "through"
    ]
    codes = {each.labels["code"]: each.value for each in samples}
    assert len(codes) < 100
    assert sum(codes.values()) == 802
    assert sum(value for code, value in codes.items() if re.fullmatch("5..", code)) == 100
    assert {"200", "404", "429", "499", "503", "529", "lost", "not_sent"} <= set(codes)
    assert (codes["2xx"] > 1, codes["9xx"]) == (True, 100.0)


@pytest.mark.parametrize("status", ["replayed", "joined", "executed", "passed"])
@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("usd", [0.0, 0.25])
@pytest.mark.parametrize("often", [1, GATHERED - 1, 2 * GATHERED + 3])
def test_what_is_told_again_is_counted_like_the_rest(status: str, safe: bool, usd: float, often: int) -> None:
    """Gathered or not: whoever reads the figures sees each of them, whichever way they are read."""
    told = Served(upstream="up", rule="r", mode="once", status=status, safe=safe, cost_usd=usd)
    times = [0.0001 * (number % 90) for number in range(often)]
    one_by_one, again = MetricsObserver(), MetricsObserver()
    tell = again.again(told)
    for seconds in times:
        one_by_one.served(told._replace(seconds=seconds))
        tell(seconds)
    expected, found = (dict(_read(one)) for one in (one_by_one, again))
    assert expected == pytest.approx(found)
    assert again.figures()["semel_calls"] == one_by_one.figures()["semel_calls"]
    tell(1.0)
    assert again.figures()["semel_calls"] != one_by_one.figures()["semel_calls"]


def _read(metrics: MetricsObserver) -> list[tuple[str, float]]:
    return [(f"{each.name} {sorted(each.labels.items())}", each.value) for each in shown(metrics)]
