"""One Chromium and one proxy for all tests of a worker; without Chromium they are skipped, and say what to
install."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from proxy.tokens import digest
from tests.browser.scene import CHROMIUM, World, chromium, world

TOKENS = f"""auth:
  tokens:
    - {{sha256: {digest("semel_ops")}, tenant: acme, role: operator}}
    - {{sha256: {digest("semel_zops")}, tenant: zenith, role: operator}}
    - {{sha256: {digest("semel_ann")}, tenant: acme, role: agent}}
"""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}: install the Debian package chromium")
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[World]:
    async with world(tmp_path_factory.mktemp("shared"), browser) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_guarded(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[World]:
    async with world(tmp_path_factory.mktemp("guarded"), browser, TOKENS) as made:
        made.token, made.operator = "semel_ann", "semel_ops"
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def here(shared: World) -> AsyncIterator[World]:
    """A proxy without tokens, as on one's own machine. Other tests have left their calls in it."""
    shared.begin()
    yield shared
    shared.check()


@pytest_asyncio.fixture(loop_scope="session")
async def guarded(shared_guarded: World) -> AsyncIterator[World]:
    """A proxy that asks for tokens. Other tests have left their calls in it, too."""
    shared_guarded.begin()
    yield shared_guarded
    shared_guarded.check()


@pytest_asyncio.fixture(loop_scope="session")
async def fresh(tmp_path: Path, browser: Browser) -> AsyncIterator[World]:
    """The same with nothing on its record."""
    async with world(tmp_path, browser) as made:
        yield made
