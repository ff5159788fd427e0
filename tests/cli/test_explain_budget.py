"""`semel explain` says what a budget would do now: what is used, or that it is used up, and until when."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.explaining import document, recorded
from tests.explain_pairs import Request
from tests.origin import OK

POLICY = """upstream: shop
base_url: http://127.0.0.1:PORT
rules:
  - {name: buy, match: {path: /buy}, budget: {calls: 2/1h, usd: 1.00}, cost: {usd: 0.25}}
  - {name: look, match: {path: /look}, budget: {calls: 2/1h}}
"""


def buying(n: int, run: str = "") -> Request:
    return Request("POST", f"/@{run}/shop/buy" if run else "/shop/buy", (), f'{{"n": {n}}}')


@pytest.mark.parametrize("run", ["", "r+a1"])
def test_it_tells_what_is_used_and_when_it_is_used_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run: str
) -> None:
    """An answer that is there costs nothing, whatever is left."""
    recorded(tmp_path, POLICY, buying(1, run))
    now = document(capsys, tmp_path, buying(2, run))["now"]
    time = "in all" if run else "in 1d"
    assert now["what"] == "executed"
    assert f"of its budget 1 of 2 calls in 1h are used, 0.25 of 1.00 USD {time} are used" in now["detail"]
    recorded(tmp_path, POLICY, buying(2, run), scripts=[OK])
    now = document(capsys, tmp_path, buying(3, run))["now"]
    assert now["what"] == "budget-exceeded"
    assert "2 of 2 calls in 1h are used, and this call would add 1 call. Nothing was sent." in now["detail"]
    assert ("the run 'r'" if run else "the tenant 'default'") in now["detail"]
    again = buying(1, run.replace("a1", "a2"))
    assert document(capsys, tmp_path, again)["now"]["what"] == "replayed"


def test_a_safe_call_outside_runs_is_counted_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes live, and is recorded for the budget alone."""
    look = Request("GET", "/shop/look", (), "")
    assert [how for how, _ in recorded(tmp_path, POLICY, look, scripts=[OK])] == ["executed"]
    now = document(capsys, tmp_path, look)["now"]
    assert now["what"] == "executed"
    assert "goes live each time" in now["detail"]
    assert "1 of 2 calls in 1h are used" in now["detail"]
