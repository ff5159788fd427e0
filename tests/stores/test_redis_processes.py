"""Several real processes on one Redis store: races, wake-ups, deaths, owners that stand still."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from proxy.core.intent import State
from proxy.store.redis_store import RedisStore, open_redis
from tests.servers.valkey import Valkey, valkey
from tests.stores import calls
from tests.stores.process import DEAD_AFTER, HEARTBEAT, child

ROUNDS = 200 if os.environ.get("SEMEL_SOAK") else 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[RedisStore]:
    server.ask("FLUSHALL")
    store = await open_redis(server.url, heartbeat=HEARTBEAT, dead_after=DEAD_AFTER)
    yield store
    await store.close()


async def test_a_waiter_in_another_process_wakes_by_a_message_and_not_by_looking(
    server: Valkey, store: RedisStore
) -> None:
    """The 99th percentile of the wake-ups: far below the second after which a waiter looks for itself."""
    coin = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    delays = []
    rounds = 100
    async with child("watch", server.url) as watcher:
        watcher.write(f"{call.id} 1 {rounds}")
        for _ in range(rounds):
            await asyncio.sleep(coin.uniform(0.0, 0.015))
            step = calls.release(call) if call.state is State.PENDING else calls.claim_again(call, "x")
            assert (await store.swap(*step, expected=call.version)).won
            committed = time.monotonic()
            call = step[0]
            delays.append(float(await watcher.read()) - committed)
    delays.sort()
    print(f"p50 {delays[rounds // 2] * 1e3:.1f} ms, p99 {delays[rounds * 99 // 100] * 1e3:.1f} ms")
    assert delays[rounds * 99 // 100] <= 0.050


async def until_orphans(store: RedisStore, number: int) -> list[str]:
    async with asyncio.timeout(30):
        while len(found := (await store.orphans()).calls) != number:
            await asyncio.sleep(HEARTBEAT)
    return [call.id for call in found]


async def test_the_calls_of_a_killed_process_become_orphans_and_its_traces_go(
    server: Valkey, store: RedisStore
) -> None:
    """Not while it lives, however often one looks; after its death when it has been silent for long enough.
    When its calls are settled nothing is left of it, and it is dead all the same."""
    async with child("hold", server.url) as other:
        call, entry = calls.claim(other.owner)
        await store.swap(call, entry, expected=0)
        alive_until = time.monotonic() + 2 * DEAD_AFTER
        while time.monotonic() < alive_until:
            assert not await store.owner_is_dead(other.owner)
            assert (await store.orphans()).calls == []
            await asyncio.sleep(HEARTBEAT / 2)
        other.process.kill()
        await other.process.wait()
    assert await until_orphans(store, 1) == [call.id]
    assert server.ask("HGET", "{semel}:beats", other.owner) == b"dead"
    await store.swap(*calls.lose(call), expected=1)
    assert (await store.orphans()).calls == []
    assert server.ask("HGET", "{semel}:beats", other.owner) is None
    assert await store.owner_is_dead(other.owner)
    assert store.owns()


async def test_a_process_that_was_killed_with_nothing_pending_leaves_no_trace(
    server: Valkey, store: RedisStore
) -> None:
    """Nobody asks for it, and it is forgotten all the same; who lives stays."""
    async with child("hold", server.url) as other:
        assert server.ask("HEXISTS", "{semel}:beats", other.owner) == 1
        other.process.kill()
        await other.process.wait()
    async with asyncio.timeout(30):
        while server.ask("HEXISTS", "{semel}:beats", other.owner):
            await store.orphans()
            await asyncio.sleep(HEARTBEAT)
    assert server.ask("HKEYS", "{semel}:beats") == [store.owner.encode()]


async def test_an_owner_that_stood_still_says_no_before_its_first_byte(
    server: Valkey, store: RedisStore
) -> None:
    """SIGSTOP for longer than it takes to be dead, its call taken over, SIGCONT: the first answer of `owns`
    is no. It may act again only under another name, so not for what it had claimed."""
    async with child("hold_on", server.url) as other:
        assert await other.read() == f"True {other.owner}"
        call, entry = calls.claim(other.owner)
        await store.swap(call, entry, expected=0)
        os.kill(other.process.pid, signal.SIGSTOP)
        try:
            assert await until_orphans(store, 1) == [call.id]
            doubt, entry = calls.lose(call)
            assert (await store.swap(doubt, entry, expected=1)).won
        finally:
            os.kill(other.process.pid, signal.SIGCONT)
        async with asyncio.timeout(30):
            while await other.read() != f"woke {other.owner}":
                pass  # on its way when it was stopped
            assert await other.read() == f"False {other.owner}"
            while (told := await other.read()) == f"False {other.owner}":
                pass
        may, name = told.split()
        assert may == "True"
        assert name != other.owner
        assert not await store.owner_is_dead(name)
        assert await store.owner_is_dead(other.owner)


async def test_an_owner_that_stood_still_and_was_not_missed_goes_on(
    server: Valkey, store: RedisStore
) -> None:
    """Nobody has buried it, so its calls are its own: after the next beat it may send again."""
    async with child("hold_on", server.url) as other:
        assert await other.read() == f"True {other.owner}"
        os.kill(other.process.pid, signal.SIGSTOP)
        time.sleep(DEAD_AFTER)  # on purpose the whole of this process: nobody watches meanwhile
        os.kill(other.process.pid, signal.SIGCONT)
        async with asyncio.timeout(30):
            while await other.read() != f"woke {other.owner}":
                pass
            while await other.read() != f"True {other.owner}":
                pass
        assert not await store.owner_is_dead(other.owner)


@pytest.mark.parametrize("after", [0, 3, 20])
async def test_killed_while_it_claims_nothing_acknowledged_is_missing(
    server: Valkey, store: RedisStore, tmp_path: Path, after: int
) -> None:
    """SIGKILL at a moment: all that it was told is there, and what it was not told is a whole row or none."""
    async with child("claim_on", server.url) as doomed:
        acknowledged = [await doomed.read() for _ in range(after + 1)]
        doomed.process.kill()
        await doomed.process.wait()
        assert doomed.process.stdout is not None
        acknowledged += (await doomed.process.stdout.read()).decode().split()
    rows = await calls.in_state(store, State.PENDING)
    assert {call.id for call in rows} >= {line for line in acknowledged if len(line) == 32}
    for call in rows:
        assert len(await store.history(call.key)) == 1
