"""Everything about the exchange holds whether or not it looks for a row before it claims."""

from __future__ import annotations

import pytest

from proxy import ledger


@pytest.fixture(autouse=True, params=["looks", "guesses"])
def _guess(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`guesses`: every call is taken for new until its claim says otherwise."""
    if request.param == "guesses":
        monkeypatch.setattr(ledger, "NEW_IN_A_ROW", -1)
