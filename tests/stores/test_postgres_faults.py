"""PostgreSQL in trouble: the server killed under load, connections cut, stalled, half closed, answers lost.

What was acknowledged is there afterwards. Meanwhile callers hear StoreUnavailable, soon, and nothing else;
and the same store goes on when the server is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from proxy.core.intent import Call, Entry
from proxy.errors import StoreUnavailable
from proxy.store.postgres import PostgresStore
from tests.relay import Act, Fault, Plan, Relay
from tests.servers.postgres import PostgresServer, postgres
from tests.stores import calls

SOAK = bool(os.environ.get("SEMEL_SOAK"))
HEARTBEAT, DEAD_AFTER = 0.2, 1.0
PATIENCE = 0.5
# Waiting for a turn, connecting, asking, twice: no caller waits longer, whatever the server does.
BOUND = 20.0


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """One that may be killed."""
    with postgres() as server:
        yield server


async def opened(url: str) -> PostgresStore:
    store = await PostgresStore.open(url, heartbeat=HEARTBEAT, dead_after=DEAD_AFTER, patience=PATIENCE)
    try:
        await store.open_run("default", "r", "a1", calls.NOW)
    except BaseException:
        await store.close()
        raise
    return store


@pytest.fixture
async def direct(postgres_server: PostgresServer, database: str) -> AsyncIterator[PostgresStore]:
    store = await opened(postgres_server.url(database))
    yield store
    await store.close()


class Load:
    """Claims and settles without end, half of it in a run that was opened before, and remembers what was
    acknowledged and what was not."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.acknowledged: dict[bytes, Call] = {}
        self.uncertain: dict[bytes, Call] = {}
        self.failures = 0
        self._going = True
        self._tasks = [asyncio.create_task(self._work(n % 2 == 0)) for n in range(8)]

    async def _work(self, in_run: bool) -> None:
        while self._going:
            make = calls.in_run if in_run else calls.claim
            claimed = await self._swap(*make(self._store.owner), 0)
            if claimed is not None:
                await self._swap(*calls.settle(claimed), 1)

    async def _swap(self, call: Call, entry: Entry, expected: int) -> Call | None:
        try:
            async with asyncio.timeout(BOUND):
                swap = await self._store.swap(call, entry, expected=expected)
        except StoreUnavailable:
            self.failures += 1
            self.uncertain[call.key] = call
            await asyncio.sleep(0.02)
            return None
        assert swap.won  # nobody else has this key
        made = replace(call, seq=swap.seq) if call.run else call
        self.acknowledged[call.key] = made
        return made

    async def more(self, number: int) -> None:
        """Until so many more are acknowledged."""
        goal = len(self.acknowledged) + number
        async with asyncio.timeout(60):
            while len(self.acknowledged) < goal:
                await asyncio.sleep(0.005)
                for task in self._tasks:
                    if task.done():
                        task.result()

    async def more_failures(self) -> None:
        goal = self.failures + 1
        async with asyncio.timeout(60):
            while self.failures < goal:
                await asyncio.sleep(0.005)

    async def end(self) -> None:
        self._going = False
        await asyncio.gather(*self._tasks)

    async def check(self, store: PostgresStore) -> int:
        """Everything acknowledged is there, as it was or one step further; of the rest, how many landed."""
        for key, call in self.acknowledged.items():
            row = await store.get(key)
            assert row is not None
            assert row.version >= call.version
            if row.version == call.version:
                assert row == call
            assert len(await store.history(key)) == row.version
        rows = [(await store.get(key), call) for key, call in self.uncertain.items()]
        assert all(row is None or row.version in (call.version, call.version - 1) for row, call in rows)
        changes = await store.run_changes("default", "r", "a1", 0)
        assert changes is not None
        places = sorted(step.seq for step in changes.steps)
        assert places == list(range(1, changes.run.last_seq + 1))  # no place is lost or given twice
        return sum(row is not None and row.version == call.version for row, call in rows)


@pytest.mark.parametrize("how", ["kill", "immediate"])
async def test_a_server_killed_under_load_loses_nothing_acknowledged(
    own_server: PostgresServer, how: str
) -> None:
    """Several times; the same store goes on each time without being opened again."""
    database = own_server.new_database()
    store = await opened(own_server.url(database))
    load = Load(store)
    try:
        for _ in range(20 if SOAK else 2):
            await load.more(200)
            await asyncio.to_thread(own_server.kill if how == "kill" else own_server.stop)
            await load.more_failures()
            with pytest.raises(StoreUnavailable):
                await store.ping()
            await asyncio.to_thread(own_server.start)
        await load.more(200)
        await load.end()
        landed = await load.check(store)
        print(f"{len(load.acknowledged)} acknowledged, {load.failures} failed, {landed} of them landed")
        await store.ping()
        assert store.owns()
    finally:
        await load.end()
        await store.close()


async def test_nobody_is_blamed_for_a_server_that_was_away(own_server: PostgresServer) -> None:
    """While it is away nobody may act; when it is back both do again, and neither has buried the other."""
    url = own_server.url(own_server.new_database())
    one, two = await opened(url), await opened(url)
    try:
        made = [calls.claim(store.owner) for store in (one, two)]
        for store, (call, entry) in zip((one, two), made, strict=True):
            await store.swap(call, entry, expected=0)
        await asyncio.to_thread(own_server.kill)
        async with asyncio.timeout(30):
            while one.owns() or two.owns():
                await asyncio.sleep(0.02)
        await asyncio.sleep(DEAD_AFTER)
        await asyncio.to_thread(own_server.start)
        async with asyncio.timeout(30):
            while not (one.owns() and two.owns()):
                for store in (one, two):
                    with contextlib.suppress(StoreUnavailable):
                        assert (await store.orphans()).calls == []
                await asyncio.sleep(0.02)
        assert not await one.owner_is_dead(two.owner)
        assert not await two.owner_is_dead(one.owner)
    finally:
        await one.close()
        await two.close()


@pytest.mark.parametrize("act", list(Act))
async def test_broken_connections_lose_nothing_and_hang_nobody(
    postgres_server: PostgresServer, database: str, direct: PostgresStore, act: Act
) -> None:
    """Each connection breaks somewhere, in one direction or the other, until the last ones, which hold."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    coin = random.Random(seed)
    plans = [Plan()] * 6  # let it open
    for _ in range(40 if SOAK else 8):
        # A connection begins with half a kilobyte downwards; a batch's answer has a few dozen bytes.
        up, down = Fault(coin.randrange(500, 30_000), act), Fault(coin.randrange(500, 1200), act)
        plans.append(Plan(up=up) if coin.random() < 0.5 else Plan(down=down))
    async with Relay(postgres_server.port, *plans, Plan()) as relay:
        store = await opened(postgres_server.url(database, port=relay.port))
        load = Load(store)
        try:
            for _ in range(len(plans)):
                await load.more(30)
                for line in (store._writing, store._reading):  # the next connection, with the next plan
                    if line._connection is not None:
                        postgres_server.execute(
                            "SELECT pg_terminate_backend(%s)", line._connection.info.backend_pid
                        )
            await load.more(100)
            await load.end()
            landed = await load.check(direct)
            print(f"{len(load.acknowledged)} acknowledged, {load.failures} failed, {landed} of them landed")
            assert load.failures > 0
            async with asyncio.timeout(BOUND):
                while not store.owns():
                    await asyncio.sleep(0.05)
            await store.ping()
        finally:
            await load.end()
            await store.close()


async def test_a_swap_whose_answer_is_lost_is_not_known_and_has_landed(
    postgres_server: PostgresServer, database: str, direct: PostgresStore
) -> None:
    """The commit's reply is cut off in its last byte: StoreUnavailable, never `won`; the row is there, and
    whoever reads it again sees that."""
    async with Relay(postgres_server.port) as relay:
        store = await opened(postgres_server.url(database, port=relay.port))
        before = len(relay.passages)
        assert (await store.swap(*calls.claim(store.owner), expected=0)).won
        others = [passage for passage in relay.passages[before:] if passage.seen_down > 0]
        length = others[-1].seen_down
        await store.close()
    plans = [Plan()] * before + [Plan(down=Fault(length - 1, Act.CUT))] * 3
    async with Relay(postgres_server.port, *plans, Plan()) as relay:
        store = await opened(postgres_server.url(database, port=relay.port))
        try:
            call, entry = calls.claim(store.owner)
            with pytest.raises(StoreUnavailable):
                await store.swap(call, entry, expected=0)
            assert await direct.get(call.key) == call
            async with asyncio.timeout(BOUND):
                while True:
                    with contextlib.suppress(StoreUnavailable):
                        assert await store.get(call.key) == call
                        break
        finally:
            await store.close()


async def test_connections_that_ended_while_nobody_spoke_cost_no_call(
    postgres_server: PostgresServer, database: str, direct: PostgresStore
) -> None:
    """They are seen to be gone before anything is sent on them: nobody is told that the store is away."""
    await direct.swap(*calls.claim(direct.owner), expected=0)
    for _ in range(3):
        postgres_server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", database
        )
        await asyncio.sleep(0.1)
        assert (await direct.swap(*calls.claim(direct.owner), expected=0)).won


async def test_a_stalled_server_is_given_up_in_time(postgres_server: PostgresServer, database: str) -> None:
    """Everything that a caller may ask, at once, on connections that say nothing any more."""
    quiet = Plan(down=Fault(1, Act.STALL))
    async with Relay(postgres_server.port, *[Plan()] * 8, quiet) as relay:
        store = await opened(postgres_server.url(database, port=relay.port))
        try:
            while len(relay.passages) < 8:
                await relay_connection(relay.port)
            call, entry = calls.claim(store.owner)
            for line in (store._writing, store._reading, store._beating, *store._lines._lines):
                await line.drop()
            asked = [
                store.swap(call, entry, expected=0),
                store.get(call.key),
                store.note(call.key, entry),
                store.open_run("default", "r", "a1", 1.0),
                store.history(call.key),
                store.put_blob([b"x"]),
                store.changed(call.key, 0, 1.0),
                store.ping(),
                store.orphans(),
            ] + [store.get(os.urandom(16)) for _ in range(20)]
            async with asyncio.timeout(BOUND):
                answers = await asyncio.gather(*asked, return_exceptions=True)
            assert {type(answer) for answer in answers} == {StoreUnavailable}
        finally:
            async with asyncio.timeout(2 * BOUND):
                await store.close()


async def relay_connection(port: int) -> None:
    """Uses up one plan."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
