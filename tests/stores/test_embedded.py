"""The embedded store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.store.embedded import EmbeddedStore
from tests.stores.contract import StoreContract


class TestEmbedded(StoreContract):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "state"

    async def open(self) -> EmbeddedStore:
        return await EmbeddedStore.open(self.directory)
