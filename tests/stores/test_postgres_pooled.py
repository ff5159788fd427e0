"""Behind a pooler that gives every transaction another session the contract holds all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from proxy.store.postgres import PostgresStore
from tests.servers.pgbouncer import PgBouncer, program
from tests.servers.postgres import PostgresServer
from tests.stores import calls
from tests.stores import test_postgres as direct

if program() is None:
    pytest.skip("needs pgbouncer (Debian package pgbouncer)", allow_module_level=True)


@pytest.fixture(scope="module")
def bouncer(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    bouncer = PgBouncer(postgres_server)
    yield bouncer
    bouncer.remove()


@pytest.mark.one_in(4)
class TestPooled(direct.TestPostgres):
    @pytest.fixture(autouse=True)
    def _bouncer(self, bouncer: PgBouncer) -> None:
        self.bouncer = bouncer

    async def open(self) -> PostgresStore:
        return await PostgresStore.open(self.server.url(self.database, port=self.bouncer.port))


async def test_waiters_are_woken_by_looking(
    postgres_server: PostgresServer, database: str, bouncer: PgBouncer
) -> None:
    """No message can arrive; the row is looked at, often enough, and nobody listens on a borrowed session."""
    notes: list[str] = []
    url = postgres_server.url(database, port=bouncer.port)
    store = await PostgresStore.open(url, note=lambda event, **_: notes.append(event))
    other = await PostgresStore.open(url)
    try:
        for _ in range(20):
            call, entry = calls.claim(store.owner)
            waiting = asyncio.create_task(store.changed(call.key, 0, 10.0))
            await asyncio.sleep(0.005)
            assert (await other.swap(call, entry, expected=0)).won
            async with asyncio.timeout(1.0):
                assert await waiting
        assert notes == ["store-polls"]
        assert not store._wakes.listening
    finally:
        await store.close()
        await other.close()


async def test_commits_are_durable_whatever_the_session_was_left_with(
    postgres_server: PostgresServer, database: str, bouncer: PgBouncer
) -> None:
    """The setting is the transaction's: the database's own default, and a session's, do not count."""
    postgres_server.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    store = await PostgresStore.open(postgres_server.url(database, port=bouncer.port))
    try:
        postgres_server.execute(direct.WATCH_COMMITS, database=database)
        for _ in range(10):
            await store.swap(*calls.claim(store.owner), expected=0)
        seen = postgres_server.execute("SELECT DISTINCT setting FROM semel.commits", database=database)
        assert seen == [("on",)]
    finally:
        await store.close()
