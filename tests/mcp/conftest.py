"""Servers that the tests share: started by the first that needs one, emptied before each."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcp.bridging import Scene, left_behind
from tests.mcp.everything import VERSION, installed, running_everything
from tests.mcp.servers import Shop, running_shop


@pytest.fixture(scope="session")
def open_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with running_shop(tmp_path_factory.mktemp("shop")) as shop:
        yield shop


@pytest.fixture
def shop(open_shop: Shop) -> Iterator[Shop]:
    open_shop.ledger.clear()
    yield open_shop
    open_shop.ledger.lets_go()


@pytest.fixture(scope="session")
def everything_program(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Installed once, whichever process of the session is first."""
    base = tmp_path_factory.getbasetemp()
    return installed((base if worker_id == "master" else base.parent) / f"server-everything-{VERSION}")


@pytest.fixture(scope="session")
def everything_port(everything_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_everything(everything_program, tmp_path_factory.mktemp("everything")) as port:
        yield port


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """For `semel mcp`. Of what a test started there, no process is left."""
    yield Scene(tmp_path)
    Scene(tmp_path).ledger.lets_go()
    end = time.monotonic() + 10
    while left_behind(tmp_path) and time.monotonic() < end:
        time.sleep(0.01)
    left = left_behind(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left behind"
