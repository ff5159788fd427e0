"""/metrics, /healthz and /readyz: what runs, whether it lives, whether the store answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from proxy import __version__, faults
from proxy.app import App
from proxy.faults import Point
from tests import ambient
from tests.inside import call, semel
from tests.origin import READ_ALL, Origin, Reset, answer

pytestmark = pytest.mark.usefixtures("some_store")

# The contract's names with their labels, as far as they mean something outside runs.
METRICS = {
    "semel_calls_total": {"upstream", "rule", "mode", "status"},
    "semel_duplicates_prevented_total": {"upstream", "rule"},
    "semel_call_seconds_bucket": {"upstream", "status", "le"},
    "semel_call_seconds_count": {"upstream", "status"},
    "semel_upstream_seconds_bucket": {"upstream", "rule", "le"},
    "semel_store_seconds_bucket": {"op", "le"},
    "semel_upstream_responses_total": {"upstream", "rule", "code"},
    "semel_calls_in_state": {"state"},
    "semel_oldest_in_doubt_seconds": set(),
    "semel_problems_total": {"type"},
    "semel_store_bytes": set(),
    "semel_cache_evictions_total": set(),
    "semel_policy_reloads_total": {"result"},
    "semel_build_info": {"version", "store"},
}


@pytest.fixture(autouse=True)
def _no_faults_left() -> Iterator[None]:
    yield
    faults.disarm_all()


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[tuple[Origin, App]]:
    fine = (*READ_ALL, answer(200, b"ok"))
    async with Origin(fine, fine, (*READ_ALL, Reset())) as origin:
        policy = (
            f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\n"
            "rules: [{name: charge, match: {method: POST, path: '/charge/{id}'}},"
            " {name: look, match: {path: /look}, safe: true, repeat: same}]\n"
        )
        async with semel(tmp_path, policy) as app:
            yield origin, app


async def scrape(app: App) -> list[Sample]:
    got = await call(app.address.port, "GET", "/metrics")
    assert got.status == 200
    assert got.get("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    return [
        sample for family in text_string_to_metric_families(got.body.decode()) for sample in family.samples
    ]


def value(samples: list[Sample], name: str, **labels: str) -> float:
    return sum(
        sample.value
        for sample in samples
        if sample.name == name and all(sample.labels[key] == wanted for key, wanted in labels.items())
    )


async def test_metrics_tell_what_happened(tmp_path: Path) -> None:
    """Executed, replayed, passed, in doubt, refused: each counted, by the contract's names and labels."""
    async with world(tmp_path) as (_, app):
        port = app.address.port
        await call(port, "POST", "/pay/charge/1", {}, b"{}")
        await call(port, "POST", "/pay/charge/1", {}, b"{}")
        await call(port, "POST", "/pay/charge/1", {}, b"{}")
        await call(port, "GET", "/pay/anything?secret=1")
        await call(port, "POST", "/pay/charge/2", {}, b"{}")
        await call(port, "POST", "/nobody/x", {}, b"{}")
        app.observer.reloaded(good=True, detail="")
        samples = await scrape(app)
        labels_of = {sample.name: set(sample.labels) for sample in samples}
        for name, labels in METRICS.items():
            assert labels_of.get(name) == labels, name
        assert value(samples, "semel_calls_total", rule="charge", mode="once", status="executed") == 1
        assert value(samples, "semel_calls_total", rule="charge", mode="once", status="replayed") == 2
        assert value(samples, "semel_calls_total", rule="default", status="passed") == 1
        assert value(samples, "semel_calls_total", rule="charge", status="refused") == 1
        assert value(samples, "semel_duplicates_prevented_total", upstream="pay", rule="charge") == 2
        assert value(samples, "semel_upstream_responses_total", rule="charge", code="200") == 1
        assert value(samples, "semel_upstream_responses_total", rule="charge", code="lost") == 1
        assert value(samples, "semel_calls_in_state", state="done") == 1
        assert value(samples, "semel_calls_in_state", state="in_doubt") == 1
        assert value(samples, "semel_oldest_in_doubt_seconds") >= 0
        assert value(samples, "semel_problems_total", type="in-doubt") == 1
        assert value(samples, "semel_problems_total", type="unknown-upstream") == 1
        assert value(samples, "semel_call_seconds_count") == 6
        size = value(samples, "semel_store_bytes")
        assert size > 0
        parts = [sample for sample in samples if sample.name == "semel_store_part_bytes"]
        assert not parts or sum(sample.value for sample in parts) == size
        kind = ambient.store().partition(":")[0]
        assert value(samples, "semel_build_info", version=__version__, store=kind) == 1


async def test_labels_are_bounded(tmp_path: Path) -> None:
    """No path, no tool, no header of a caller becomes a label, however many there are."""
    async with world(tmp_path) as (_, app):
        port = app.address.port
        await call(port, "POST", "/pay/charge/1", {"Semel-Tool": "free-text"}, b"{}")
        before = len(await scrape(app))
        for number in range(20):
            await call(
                port, "POST", f"/strange{number}/path{number}", {"Semel-Tool": f"gadget{number}"}, b"{}"
            )
        first = len(await scrape(app))
        for number in range(20, 60):
            await call(
                port, "POST", f"/strange{number}/path{number}", {"Semel-Tool": f"gadget{number}"}, b"{}"
            )
        samples = await scrape(app)
        assert len(samples) == first > before
        values = {text for sample in samples for text in sample.labels.values()}
        assert not any(
            "strange" in text or "gadget" in text or "free" in text or "/" in text for text in values
        )


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_running_semel_is_healthy_and_ready(tmp_path: Path, path: str) -> None:
    """Read with GET or HEAD; none of it is a call."""
    async with world(tmp_path) as (origin, app):
        assert (await call(app.address.port, "GET", path)).status == 200
        assert (await call(app.address.port, "HEAD", path)).status == 200
        assert (await call(app.address.port, "GET", f"{path}?probe=1")).status == 200
        assert origin.started == 0
        assert value(await scrape(app), "semel_calls_total") == 0


@pytest.mark.parametrize("some_store", [ambient.EMBEDDED], indirect=True)
async def test_not_ready_while_the_store_fails_and_ready_when_it_is_back(tmp_path: Path) -> None:
    """503 with Retry-After; the process lives, metrics are shown all the same. Of SQLite's own disk: servers
    that are away are in tests/stores/test_postgres_serve.py and tests/stores/test_redis_faults.py."""

    def fail() -> None:
        raise OSError("the disk is gone")

    async with world(tmp_path) as (_, app):
        port = app.address.port
        faults.arm(Point.COMMIT_BEGUN, fail)
        ready = await call(port, "GET", "/readyz")
        assert (ready.status, json.loads(ready.body)["type"]) == (503, "urn:semel:store-unavailable")
        assert ready.get("Retry-After") == "1"
        assert (await call(port, "GET", "/healthz")).status == 200
        assert value(await scrape(app), "semel_build_info") == 1
        faults.disarm_all()
        assert (await call(port, "GET", "/readyz")).status == 200


async def test_with_the_store_closed_nothing_with_effects_is_sent(tmp_path: Path) -> None:
    """503 for a call with effects; a safe one passes without a record; /readyz says why."""
    async with world(tmp_path) as (origin, app):
        port = app.address.port
        await app.store.close()
        assert (await call(port, "GET", "/readyz")).status == 503
        assert (await call(port, "GET", "/healthz")).status == 200
        refused = await call(port, "POST", "/pay/charge/1", {}, b"{}")
        assert (refused.status, json.loads(refused.body)["type"]) == (503, "urn:semel:store-unavailable")
        assert origin.started == 0
        safe = await call(port, "GET", "/pay/look")
        assert (safe.status, safe.semel) == (200, "passed")
        assert value(await scrape(app), "semel_problems_total", type="store-unavailable") == 1
