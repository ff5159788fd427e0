"""`semel stats`: the record's figures, over the store and through a proxy."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from proxy.cli.stats import SCHEMA
from tests.admin.scene import FINE, LOST, scene
from tests.cli.command import semel


@pytest.fixture(autouse=True)
def _away_from_any_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SEMEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("way", ["store", "proxy"])
async def test_figures_of_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str) -> None:
    """Calls by state, the oldest doubt, the size; evictions only from who counts them."""
    async with scene(tmp_path, FINE, LOST) as world:
        place = ["--state-dir", str(tmp_path / "state")] if way == "store" else ["--proxy", world.url]
        empty = await asyncio.to_thread(semel, capsys, "stats", *place)
        assert (empty.status, "oldest in doubt  " in empty.out, "  none\n" in empty.out) == (0, True, True)
        await world.charge(1), await world.charge(2)
        found = (await asyncio.to_thread(semel, capsys, "stats", "--json", *place)).document(SCHEMA)
        assert (found["calls"]["done"], found["calls"]["in_doubt"]) == (1, 1)
        assert found["store_bytes"] > 0
        assert found["cache_evictions"] == (None if way == "store" else 0)
        text = (await asyncio.to_thread(semel, capsys, "stats", *place)).out
        assert "calls in_doubt" in text
        assert "s ago (" in text
        assert "iB (embedded)" in text


def test_no_record_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And none is made by looking."""
    ran = semel(capsys, "stats", "--state-dir", tmp_path)
    assert (ran.status, ran.out) == (2, "")
    assert "There is no record" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_nobody_there_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do."""
    ran = semel(capsys, "stats", "--proxy", "http://127.0.0.1:1")
    assert (ran.status, "Is `semel serve` running there" in ran.err) == (1, True)
