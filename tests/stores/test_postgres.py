"""The PostgreSQL store keeps the contract; and what is its own: batches, locks, the server's settings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from proxy.core.intent import State
from proxy.errors import ConfigurationError, StoreUnavailable
from proxy.store import postgres_calls, postgres_schema
from proxy.store.base import BlobLost, BlobRef, Query, Store, Swap
from proxy.store.heartbeats import Beat
from proxy.store.postgres import PostgresStore
from proxy.store.postgres_line import Address, Line
from tests.servers.postgres import PostgresServer, postgres
from tests.stores import budget_contract as budgets
from tests.stores import calls
from tests.stores.budget_contract import BudgetContract
from tests.stores.contract import AFTER_ALL, StoreContract
from tests.stores.run_contract import RunContract


class TestPostgres(BudgetContract, RunContract, StoreContract):
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


# Writes down, at the very commit of a transaction that made a call, how it commits.
WATCH_COMMITS = """
CREATE TABLE semel.commits (setting text);
CREATE FUNCTION semel.watch_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO semel.commits VALUES (current_setting('synchronous_commit'));
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER watch_commit AFTER INSERT ON semel.calls DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION semel.watch_commit();
"""


@pytest.fixture
def url(postgres_server: PostgresServer, database: str) -> str:
    return postgres_server.url(database)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url)
    yield store
    await store.close()


# ---- batches ----


async def test_what_waits_goes_in_one_statement(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred claims at once are a few round trips; each has its own answer."""
    asked: list[str] = []
    attempt = store._writing.attempt

    async def counted(text: str, values: list[object]) -> list[tuple[object, ...]]:
        asked.append(text)
        return await attempt(text, values)

    monkeypatch.setattr(store._writing, "attempt", counted)
    made = [calls.claim(store.owner) for _ in range(100)]
    swaps = await asyncio.gather(*(store.swap(call, entry, expected=0) for call, entry in made * 2))
    assert [swap.won for swap in swaps] == [True] * 100 + [False] * 100
    assert [swap.present for swap in swaps[100:]] == [call for call, _ in made]
    assert len(asked) <= 4


async def test_a_job_that_cannot_be_stored_spoils_no_batch(store: PostgresStore) -> None:
    """Refused by the server or by the encoding: the others in its batch win, and nothing of it is left."""
    good = [calls.claim(store.owner) for _ in range(7)]
    surrogate, entry = calls.claim(store.owner)
    key, _ = calls.claim(store.owner)
    bad = [replace(surrogate, tool="\ud800"), replace(key, sends=2**70)]
    jobs = [*good[:3], (bad[0], entry), *good[3:5], (bad[1], entry), *good[5:]]
    answers = await asyncio.gather(
        *(store.swap(call, line, expected=0) for call, line in jobs), return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, StoreUnavailable)]
    assert len(refused) == 2
    assert [answer for answer in answers if answer not in refused] == [Swap(True)] * 7
    assert len((await store.find(Query())).calls) == 7


async def test_text_that_postgresql_cannot_hold_comes_back_as_it_was(store: PostgresStore) -> None:
    """What an upstream said may hold U+0000, and what escapes it."""
    call, entry = calls.claim(store.owner)
    nasty = "a\x00b\x01c\x01\x02\x01\x03"
    call = replace(call, tool=nasty)
    await store.swap(call, entry._replace(why=nasty), expected=0)
    doubtful, line = calls.lose(call)
    assert doubtful.doubt is not None
    doubtful = replace(doubtful, doubt=replace(doubtful.doubt, excerpt=nasty))
    await store.swap(doubtful, line, expected=1)
    assert await store.get(call.key) == doubtful
    assert (await store.history(call.key))[0].why == nasty
    assert (await store.find(Query(tool=nasty))).calls == [doubtful]


async def test_a_row_that_cannot_be_read_hurts_nobody_else(
    store: PostgresStore, postgres_server: PostgresServer, database: str
) -> None:
    """Of a newer version: StoreUnavailable for who asks for it, named in listings, others are answered."""
    (good, entry), (bad, line) = calls.claim("dead"), calls.claim("dead")
    await store.swap(good, entry, expected=0)
    await store.swap(bad, line, expected=0)
    postgres_server.execute(
        "UPDATE semel.calls SET record_version = 99 WHERE key = %s", bad.key, database=database
    )
    answers = await asyncio.gather(
        store.get(good.key), store.get(bad.key), store.swap(bad, line, expected=0), return_exceptions=True
    )
    assert answers[0] == good
    assert all(isinstance(answer, StoreUnavailable) and "newer" in str(answer) for answer in answers[1:])
    assert (await store.find(Query())).unreadable.keys() == {bad.id}
    orphans = await store.orphans()
    assert (orphans.calls, list(orphans.unreadable)) == ([good], [bad.id])


async def test_swaps_that_wait_for_each_other_are_untangled(store: PostgresStore, url: str) -> None:
    """Somebody holds one row and wants the next, against the order: nobody is told that the store is away
    for a deadlock, and every swap has its answer."""
    one, entry = calls.claim(store.owner, b"\x01" * 16)
    two, _ = calls.claim(store.owner, b"\x02" * 16)
    for call in (one, two):
        await store.swap(call, entry, expected=0)
    lock = b"SELECT 1 FROM semel.calls WHERE key = %s FOR UPDATE"
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(lock, (two.key,))
        swaps = asyncio.gather(*(store.swap(*calls.settle(call), expected=1) for call in (one, two)))
        while True:  # until the batch waits for the second row, having the first
            waits = await connection.execute(b"SELECT 1 FROM pg_locks WHERE NOT granted")
            if await waits.fetchall():
                break
            await asyncio.sleep(0.01)
        await connection.execute(b"SET deadlock_timeout = '10min'")  # so that it is the batch that gives way
        waiting = asyncio.create_task(connection.execute(lock, (one.key,)))
        await waiting
        await connection.rollback()
        assert [swap.won for swap in await swaps] == [True, True]


async def test_counts_are_folded_and_stay_what_they_are(
    store: PostgresStore, postgres_server: PostgresServer, database: str
) -> None:
    """The sum is the same before, during and after, and the rows that make it up are few afterwards."""
    for _ in range(10):
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        await store.swap(*calls.settle(call), expected=1)
    expected = dict.fromkeys(State, 0) | {State.DONE: 10}
    assert (await store.census()).by_state == expected
    await store._clean()
    assert (await store.census()).by_state == expected
    ((left,),) = postgres_server.execute("SELECT count(*) FROM semel.counts", database=database)
    assert left == 1


# ---- the server and its tables ----


async def test_processes_that_start_together_make_one_schema(url: str) -> None:
    """Eight at once on an empty database: one secret, and all of them serve."""
    stores = await asyncio.gather(*(PostgresStore.open(url) for _ in range(8)))
    try:
        assert len({store.secret for store in stores}) == 1
        await asyncio.gather(*(store.ping() for store in stores))
    finally:
        for store in stores:
            await store.close()


async def test_a_database_of_a_newer_semel_is_refused(
    store: PostgresStore, url: str, postgres_server: PostgresServer, database: str
) -> None:
    """And left as it is."""
    postgres_server.execute("UPDATE semel.meta SET value = '99' WHERE name = 'schema'", database=database)
    with pytest.raises(ConfigurationError, match="newer semel"):
        await PostgresStore.open(url)


async def test_a_failed_migration_leaves_nothing(
    url: str,
    postgres_server: PostgresServer,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """All of it is one transaction."""
    broken = tmp_path / "broken.sql"
    broken.write_text("CREATE TABLE semel.meta (name text); SELECT 1 / 0;")
    monkeypatch.setattr(postgres_schema, "MIGRATIONS", (str(broken),))
    with pytest.raises(ConfigurationError, match="division by zero"):
        await PostgresStore.open(url)
    assert postgres_server.execute("SELECT to_regnamespace('semel')::text", database=database) == [(None,)]
    monkeypatch.undo()
    await (await PostgresStore.open(url)).close()


async def test_a_version_1_database_is_migrated_and_has_room_for_budgets(
    url: str, postgres_server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was claimed before is settled after it; a process of the version before goes on meanwhile."""
    monkeypatch.setattr(postgres_schema, "MIGRATIONS", postgres_schema.MIGRATIONS[:1])
    monkeypatch.setattr(postgres_schema, "KNOWN_VERSION", 1)
    await postgres_schema.move_in(Address(url), lambda *_, **__: None)
    monkeypatch.undo()
    old = calls.claim("of the version before")
    text, values = postgres_calls.swap([postgres_calls.SwapJob(*old, None)])
    in_its_words = text.replace(", held", "").replace(", ARRAY[]::semel.posting[])", ")")
    line = Line(Address(url))
    store = None
    try:
        assert await line.ask(in_its_words, values) == [("won", 0)]
        store = await PostgresStore.open(url)
        assert await store.get(old[0].key) == old[0]
        charge = budgets.charge(budgets.calls_of(1))
        assert (await store.swap(*calls.claim(store.owner), expected=0, charge=charge)).won
        assert not (await store.swap(*calls.claim(store.owner), expected=0, charge=charge)).won
        settled = postgres_calls.swap([postgres_calls.SwapJob(*calls.settle(old[0]), None)])[1]
        assert await line.ask(in_its_words, settled) == [("won", 0)], "the version before, still there"
        done = await store.get(old[0].key)
        assert done is not None
        assert done.state is State.DONE
    finally:
        await line.close()
        if store is not None:
            await store.close()


async def test_commits_are_durable_whatever_the_database_says(
    store: PostgresStore, url: str, postgres_server: PostgresServer, database: str
) -> None:
    """synchronous_commit is set in each transaction that counts, and is what it is at its commit."""
    postgres_server.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    postgres_server.execute(WATCH_COMMITS, database=database)
    other = await PostgresStore.open(url)
    try:
        await other.swap(*calls.claim(other.owner), expected=0)
    finally:
        await other.close()
    assert postgres_server.execute("SELECT setting FROM semel.commits", database=database) == [("on",)]


async def test_a_latin_database_is_refused(postgres_server: PostgresServer, database: str) -> None:
    """Names would be lost in it."""
    name = f"{database}_latin"
    postgres_server.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(ConfigurationError, match="UTF8"):
            await PostgresStore.open(postgres_server.url(name))
    finally:
        postgres_server.drop(name)


@pytest.fixture
def careless() -> Iterator[PostgresServer]:
    server = PostgresServer("fsync=off")
    try:
        server.start()
        yield server
    finally:
        server.remove()


async def test_a_server_that_does_not_sync_is_refused(careless: PostgresServer) -> None:
    """It would lose what it promised when power fails."""
    with pytest.raises(ConfigurationError, match="fsync = off"):
        await PostgresStore.open(careless.url("postgres"))


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


async def test_an_asynchronous_standby_is_warned_about_and_never_served_from(primary: PostgresServer) -> None:
    """A failover to it would lose what was acknowledged last; what it says may be old."""
    notes: dict[str, object] = {}
    standby = PostgresServer.standby_of(primary)
    try:
        standby.start()
        async with asyncio.timeout(30):
            while primary.execute("SELECT count(*) FROM pg_stat_replication") != [(1,)]:
                await asyncio.sleep(0.05)
        store = await PostgresStore.open(
            primary.url("postgres"), note=lambda event, **fields: notes.update({event: fields})
        )
        await store.close()
        assert "synchronous_standby_names" in str(notes["asynchronous-standby"])
        with pytest.raises(ConfigurationError, match="read-only"):
            await PostgresStore.open(standby.url("postgres"))
    finally:
        standby.remove()


# ---- owners and clocks ----


async def test_a_burial_is_a_swap_on_the_beat(store: PostgresStore) -> None:
    """A beat that came first wins; the buried never beat again under that name."""
    beats = store._beats
    await beats.enroll("x", 9.0)
    seen = next(beat for beat in await beats.all() if beat.epoch == "x")
    assert seen == Beat("x", 1, False, 9.0)
    (after,) = [beat for beat in await beats.beat("x") if beat.epoch == "x"]
    assert after.count == 2
    assert not await beats.bury(seen)
    assert not await store.owner_is_dead("x")
    assert await beats.bury(after)
    assert await beats.bury(after)  # and again, by another
    assert [beat for beat in await beats.beat("x") if beat.epoch == "x"] == []
    assert await store.owner_is_dead("x")
    assert not await beats.bury(Beat("never heard of", 1))


async def test_a_clock_that_was_set_back_is_told_of(
    store: PostgresStore, url: str, postgres_server: PostgresServer, database: str
) -> None:
    """The latest time that anybody has had is kept, and never goes back."""
    postgres_server.execute("UPDATE semel.clock SET mark = mark + 3600", database=database)
    ahead = await store.clock_mark(0.0)
    await store.ping()
    assert await store.clock_mark(0.0) == ahead
    notes: list[str] = []
    other = await PostgresStore.open(url, note=lambda event, **_: notes.append(event))
    await other.close()
    assert notes == ["clock-behind"]


# ---- the rest ----


async def test_a_damaged_blob_is_never_taken_for_a_whole_one(
    store: PostgresStore, postgres_server: PostgresServer, database: str
) -> None:
    """Other bytes of the same length, or a part that is gone: BlobLost, at the latest in place of the last
    part; putting it again mends it."""
    content = os.urandom(600_000)
    for damage in (
        "UPDATE semel.parts SET content = set_byte(content, 7, get_byte(content, 7) # 1) WHERE n = 1",
        "DELETE FROM semel.parts WHERE n = 2",
    ):
        ref = await store.put_blob([content])
        postgres_server.execute(damage, database=database)
        whole = b""
        with pytest.raises(BlobLost):
            async for part in store.read_blob(ref):
                whole += part
        assert len(whole) < len(content)
        await store.put_blob([content])
        assert b"".join([part async for part in store.read_blob(ref)]) == content


async def test_parts_that_were_never_named_are_collected(
    store: PostgresStore, postgres_server: PostgresServer, database: str
) -> None:
    """Of a process that died while writing, and of a name that leads elsewhere now."""

    def dies() -> Iterator[bytes]:
        yield b"x" * 300_000
        raise OSError("the disk of the spool is gone")

    with pytest.raises(OSError, match="spool"):
        await store.put_blob(dies())
    for _ in range(2):
        await store.put_blob([b"again and again"])
    await store.collect(AFTER_ALL)
    assert len(postgres_server.execute("SELECT 1 FROM semel.parts", database=database)) == 3
    postgres_server.execute("UPDATE semel.uploads SET touched_at = now() - interval '2 h'", database=database)
    await store.collect(AFTER_ALL)
    assert len(postgres_server.execute("SELECT 1 FROM semel.parts", database=database)) == 1
    assert postgres_server.execute("SELECT 1 FROM semel.uploads", database=database) == []


async def test_a_cache_over_its_limit_loses_what_expires_first(url: str) -> None:
    """And counts it; what has merely expired is not counted."""
    store = await PostgresStore.open(url, cache_limit=3_500)
    try:
        await store.cache_put(b"expired", b"x" * 1000, -1.0)
        for n in range(5):
            await store.cache_put(b"%d" % n, b"x" * 1000, 60.0 + n)
        await store._cache.trim()
        left = [n for n in range(5) if await store.cache_get(b"%d" % n) is not None]
        assert left == [2, 3, 4]
        assert store.evictions() == 2
    finally:
        await store.close()


@pytest.mark.parametrize(
    "given",
    [
        "postgres://u:hunter@h:x/db",
        "postgres://u:hunter@@h/db",
        "postgres://u:hunter/2@h/db",
        "postgres://[hunter",
    ],
)
def test_an_address_that_is_none_does_not_give_the_password_away(given: str) -> None:
    """What libpq did not understand may be a part of it."""
    with pytest.raises(ConfigurationError) as raised:
        Address(given)
    assert "hunter" not in str(raised.value)


def test_the_address_that_is_shown_has_no_password() -> None:
    """Nor do messages of the driver, whatever they quote."""
    address = Address("postgresql://u:hunter%2F2@h:1/db?sslmode=require")
    assert address.shown == "postgres://h:1/db"
    assert "hunter" not in address.unavailable(RuntimeError('bad "hunter/2"')).detail
