"""Several real processes on one PostgreSQL: races, wake-ups, deaths, and owners that sleep."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import deque
from collections.abc import AsyncIterator

import pytest

from proxy import faults
from proxy.core.intent import State
from proxy.store.postgres import PostgresStore
from tests.servers.postgres import PostgresServer
from tests.stores import calls
from tests.stores.process import DEAD_AFTER, HEARTBEAT, child

ROUNDS = 20


@pytest.fixture
def url(postgres_server: PostgresServer, database: str) -> str:
    return postgres_server.url(database)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url, heartbeat=HEARTBEAT, dead_after=DEAD_AFTER)
    yield store
    await store.close()


async def test_a_waiter_in_another_process_wakes_within_50_ms_of_the_commit(
    url: str, store: PostgresStore
) -> None:
    """The 99th percentile of 200 wake-ups, from the commit's answer to the waiter's next step."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pauses = random.Random(seed)
    rounds = 200
    commits: list[float] = []
    wakes: list[float] = []
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    faults.arm(faults.Point.COMMITTED, lambda: commits.append(time.monotonic()))
    try:
        async with child("watch", url) as watcher:
            watcher.write(f"{call.id} 1 {rounds}")
            for _ in range(rounds):
                await asyncio.sleep(pauses.uniform(0.0, 0.015))
                step = calls.release(call) if call.state is State.PENDING else calls.claim_again(call, "x")
                assert (await store.swap(*step, expected=call.version)).won
                call = step[0]
                wakes.append(float(await watcher.read()))
    finally:
        faults.disarm_all()
    delays = sorted(wake - commit for wake, commit in zip(wakes, commits, strict=True))
    print(f"p50 {delays[rounds // 2] * 1e3:.1f} ms, p99 {delays[rounds * 99 // 100] * 1e3:.1f} ms")
    assert delays[rounds * 99 // 100] <= 0.050


async def test_a_killed_owner_is_dead_after_its_time_and_not_before(url: str, store: PostgresStore) -> None:
    """While it lives, however long, it is not; killed, its pending calls are orphans after `dead_after`."""
    async with child("claim", url) as other:
        key = os.urandom(16)
        other.write(key.hex())
        assert await other.read() == "True"
        began = time.monotonic()
        while time.monotonic() < began + 2 * DEAD_AFTER:
            assert not await store.owner_is_dead(other.owner)
            assert (await store.orphans()).calls == []
            await asyncio.sleep(HEARTBEAT)
        killed = time.monotonic()
        other.process.kill()
        await other.process.wait()
        async with asyncio.timeout(30):
            while not (orphans := (await store.orphans()).calls):
                await asyncio.sleep(0.02)
        # Its last beat may have been seen a beat before it was killed.
        assert time.monotonic() - killed > DEAD_AFTER - 2 * HEARTBEAT
        assert [call.key for call in orphans] == [key]
        assert await store.owner_is_dead(other.owner)


async def test_an_owner_that_slept_too_long_does_not_act(url: str, store: PostgresStore) -> None:
    """Stopped beyond `dead_after` and woken: the first thing it can say is no, whatever it beats. Buried, it
    goes on under another name; what it had claimed stays the dead one's."""
    async with child("owns", url) as other:
        other.write("?")
        assert await other.read() == f"True {other.owner}"
        os.kill(other.process.pid, signal.SIGSTOP)
        call, entry = calls.claim(other.owner)
        await store.swap(call, entry, expected=0)
        async with asyncio.timeout(30):
            while not (await store.orphans()).calls:
                await asyncio.sleep(0.02)
        other.write("?")  # it is there when it wakes
        os.kill(other.process.pid, signal.SIGCONT)
        assert await other.read() != f"True {other.owner}"
        said = ""
        async with asyncio.timeout(30):
            while not said.startswith("True"):
                await asyncio.sleep(HEARTBEAT)
                other.write("?")
                said = await other.read()
        epoch = said.split()[1]
        assert epoch != other.owner
        assert await store.owner_is_dead(other.owner)
        assert not await store.owner_is_dead(epoch)
        assert (await store.orphans()).calls == [call]


async def test_an_owner_that_slept_and_was_not_missed_goes_on(url: str, store: PostgresStore) -> None:
    """Nobody has written down its death: its next beat makes it an owner again, and nothing was taken."""
    async with child("owns", url) as other:
        await store.close()  # nobody watches
        os.kill(other.process.pid, signal.SIGSTOP)
        await asyncio.sleep(1.5 * DEAD_AFTER)
        other.write("?")
        os.kill(other.process.pid, signal.SIGCONT)
        await other.read()
        said: deque[str] = deque(maxlen=1)
        async with asyncio.timeout(30):
            while f"True {other.owner}" not in said:
                await asyncio.sleep(HEARTBEAT)
                other.write("?")
                said.append(await other.read())
