"""A secret to sign with, pauses that a test can wait for, and nothing that goes wrong unseen."""

from __future__ import annotations

import pytest

from proxy.notifying import hook
from tests.notifying.scene import SECRET


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMEL_NOTIFY_SECRET", SECRET)
    monkeypatch.setattr(hook, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(hook, "LONGEST_PAUSE", 0.1)
