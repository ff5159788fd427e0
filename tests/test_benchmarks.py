"""`make bench` runs through and tells what it found. Nothing here is judged by time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks import nginx

ROOT = Path(__file__).parent.parent


def test_a_small_run_measures_everything_and_writes_its_table(tmp_path: Path) -> None:
    """Every server is asked, every ratio is told, and the page says the same as the JSON."""
    table = tmp_path / "table.md"
    done = subprocess.run(
        [
            sys.executable, "-m", "benchmarks", "--rounds", "1", "--requests", "50", "--rows", "1500",
            "--json", "--table", str(table),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=200, check=False,
        env={**os.environ, "BENCH_SMALL": "1"},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    told = json.loads(done.stdout)
    assert done.returncode == bool(told["failed"])
    servers = {
        "bare aiohttp.web.Server", "semel replay", "bare aiohttp reverse proxy", "semel once",
        "semel once, encrypted", "bare aiohttp.web.Server, one by one", "semel replays a run, one by one",
        "once on embedded", "once on PostgreSQL", "once on Valkey",
        "replays by 1 worker", "replays by 2 workers",
        "semel replay, metrics on", "semel replay, metrics off",
    }  # fmt: skip
    if nginx.find() is not None:
        servers.add("nginx proxy_cache hit")
        assert "replay against an nginx proxy_cache hit" in told["shown"]
    assert set(told["rates"]) == servers
    assert "once encrypted against once in the clear" in told["shown"]
    assert all(rate > 0 for rate in told["rates"].values())
    assert len(told["checks"]) == 13
    page = table.read_text()
    for name, value, _, _ in told["checks"]:
        assert f"| {name} | {value:.2f} |" in page
    for name in servers:
        assert f"| {name} |" in page
    assert "round 1 of 1: semel once" in done.stderr
