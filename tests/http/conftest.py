"""What shows that a request went by a plan, or by express."""

from __future__ import annotations

import pytest

from proxy.front.plans import Plan
from tests.http.expressed import Trips, watched


@pytest.fixture
def by_plan(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies of all requests that went by a plan, as they come."""
    seen: list[bytes] = []
    real = Plan.incoming

    def noted(self: Plan, body: bytes, *more: object) -> object:
        seen.append(body)
        return real(self, body, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Plan, "incoming", noted)
    return seen


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    """What went by express, as it goes."""
    return watched(monkeypatch)
