"""For the client's tests: nothing of the environment but what a test sets, and nothing left running."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import monotonic, sleep

import pytest

import semel
from semel import Client
from tests.client.fake import LIMIT, Fake, faking

# Of a proxy between, and of a `semel run` around the tests.
VARIABLES = ("SEMEL_URL", "SEMEL_RUN", "SEMEL_ATTEMPT", "SEMEL_TOKEN", "SEMEL_OFF")


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    # Whoever asked them would find nobody there.
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    semel._default.cache_clear()
    yield
    semel._default.cache_clear()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Hearts are joined, and reports come to an end."""
    yield
    end = monotonic() + LIMIT
    while ours := [one.name for one in threading.enumerate() if one.name.startswith("semel")]:
        assert monotonic() < end, ours
        sleep(0.01)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with faking() as one:
        yield one


@pytest.fixture
def client(fake: Fake) -> Client:
    """Outside runs."""
    return Client(fake.url, timeout=5)


@pytest.fixture
def in_run(fake: Fake) -> Client:
    return Client(f"{fake.url}/@nightly+a1", timeout=5)
