"""The reference model keeps the contract, and fails on demand."""

from __future__ import annotations

import pytest

from proxy.errors import StoreUnavailable
from proxy.store.base import BlobRef, Store
from proxy.store.memory import MemoryStore
from proxy.store.memory_world import World
from proxy.store.unnamed import UNTOUCHED
from tests.stores import calls
from tests.stores.budget_contract import BudgetContract
from tests.stores.contract import StoreContract
from tests.stores.run_contract import RunContract


class TestMemory(BudgetContract, RunContract, StoreContract):
    @pytest.fixture(autouse=True)
    def _world(self) -> None:
        self.world = World()

    async def open(self) -> MemoryStore:
        return MemoryStore(self.world)

    async def expire(self, key: bytes) -> None:
        # Past the record's own checks, as damage would.
        object.__setattr__(self.world.calls[key], "expires_at", 1.0)

    async def age(self, blob: BlobRef) -> None:
        self.world.touched[blob.digest] -= UNTOUCHED + 1

    async def die(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        store.kill()


async def test_an_unavailable_store_refuses_and_comes_back() -> None:
    """The switch takes everything away and gives it back unchanged."""
    store = MemoryStore()
    call, entry = calls.claim(store.owner)
    store.unavailable = True
    with pytest.raises(StoreUnavailable):
        await store.swap(call, entry, expected=0)
    store.unavailable = False
    assert await store.get(call.key) is None


async def test_a_swap_whose_reply_is_lost_has_landed() -> None:
    """The ambiguous case: it raises, and the row is there."""
    store = MemoryStore()
    call, entry = calls.claim(store.owner)
    store.fail_after_swaps = 1
    with pytest.raises(StoreUnavailable):
        await store.swap(call, entry, expected=0)
    assert await store.get(call.key) == call
    assert (await store.swap(*calls.settle(call), expected=1)).won
