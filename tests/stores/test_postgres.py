"""The PostgreSQL store keeps the contract; and what is its own: batches, locks, the server's settings."""

from __future__ import annotations

import pytest

from proxy.store.base import BlobRef, Store
from proxy.store.postgres import PostgresStore
from tests.servers.postgres import PostgresServer
from tests.stores.contract import StoreContract
from tests.stores.run_contract import RunContract


class TestPostgres(RunContract, StoreContract):
    @pytest.fixture(autouse=True)
    def _database(self, postgres_server: PostgresServer, database: str) -> None:
        self.server, self.database = postgres_server, database

    async def open(self) -> PostgresStore:
        return await PostgresStore.open(self.server.url(self.database))

    async def expire(self, key: bytes) -> None:
        self.server.execute(
            "UPDATE semel.calls SET expires_at = 1.0 WHERE key = %s", key, database=self.database
        )

    async def age(self, blob: BlobRef) -> None:
        self.server.execute(
            "UPDATE semel.blobs SET touched_at = now() - interval '3601 s' WHERE digest = %s",
            blob.digest,
            database=self.database,
        )

    async def test_what_was_read_as_done_stands_while_the_stamp_does(
        self, store: Store, other: Store
    ) -> None:
        """What another process does is not known without asking, so there is no stamp to rely on."""
        done = await self._done(store)
        assert store.settled_stamp() is other.settled_stamp() is None
        assert await other.get(done.key, done) is done

    test_a_lost_swap_leaves_the_stamp_alone = test_what_was_read_as_done_stands_while_the_stamp_does
    test_the_stamp_changes_when_a_done_call_is_collected = (
        test_what_was_read_as_done_stands_while_the_stamp_does
    )
