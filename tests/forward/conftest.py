"""semel, in the test's own process, trusts the origin's certificate."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.conftest import STORES, kept_as_named
from tests.origin import CERTIFICATE


@pytest.fixture(params=["memory", *STORES])
def forward_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """How calls come in does not depend on where they are kept."""
    with kept_as_named(request):
        yield


@pytest.fixture(autouse=True)
def _trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(autouse=True)
def _nothing_went_wrong_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Event loops swallow what protocols raise, and only log it."""
    yield
    wrong = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not wrong, [record.getMessage() for record in wrong]
