"""Everything about the exchange holds whether or not it looks for a row before it claims, whether an answer
comes in parts or in one piece, and whether or not a call has a task."""

from __future__ import annotations

import pytest

from proxy import ledger
from tests.exchange import stage


@pytest.fixture(autouse=True, params=["looks", "guesses"])
def _guess(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`guesses`: every call is taken for new until its claim says otherwise; answers come in one piece; plain
    calls fly without a task."""
    if request.param == "guesses":
        monkeypatch.setattr(ledger, "NEW_IN_A_ROW", -1)
        monkeypatch.setattr(stage, "IN_ONE_PIECE", True)
        monkeypatch.setattr(stage, "NONSTOP", True)
