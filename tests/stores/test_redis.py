"""The Redis store keeps the contract, on a real Valkey; and on one that is a cluster of a single node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from proxy.core.intent import State
from proxy.errors import StoreUnavailable
from proxy.store.base import BlobRef, Query, Store, Swap
from proxy.store.redis_store import RedisStore, open_redis
from proxy.store.unnamed import UNTOUCHED
from tests.servers.valkey import Valkey, valkey
from tests.stores import calls, contract
from tests.stores.budget_contract import BudgetContract
from tests.stores.contract import StoreContract
from tests.stores.run_contract import RunContract


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """One node that has all slots: a script that crosses them is refused all the same."""
    with valkey(tmp_path_factory.mktemp("cluster"), cluster_enabled="yes") as server:
        server.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        while b"cluster_state:ok" not in server.ask("CLUSTER", "INFO"):  # type: ignore[operator]
            pass
        yield server


class TestRedis(BudgetContract, RunContract, StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, server: Valkey) -> None:
        self.server = server
        server.ask("FLUSHALL")

    async def open(self) -> RedisStore:
        return await open_redis(self.server.url)

    async def expire(self, key: bytes) -> None:
        self.server.ask("ZADD", b"{semel}:expiring", 1.0, key)

    async def age(self, blob: BlobRef) -> None:
        touched = self.server.ask("HGET", "{semel}:touched", blob.digest)
        assert isinstance(touched, bytes)
        past = float(touched) - UNTOUCHED - 1
        self.server.ask("HSET", "{semel}:touched", blob.digest, past)
        self.server.ask("ZADD", "{semel}:unnamed", "XX", past, blob.digest)

    async def test_what_was_read_as_done_stands_while_the_stamp_does(
        self, store: Store, other: Store
    ) -> None:
        """There is none: who changes a row on another machine cannot be heard of before it is told so."""
        await self._done(store)
        assert store.settled_stamp() is store.runs_stamp() is other.settled_stamp() is None

    async def test_a_lost_swap_leaves_the_stamp_alone(self, store: Store, other: Store) -> None:
        """There is none."""
        assert store.settled_stamp() is None

    async def test_the_stamp_changes_when_a_done_call_is_collected(self, store: Store, other: Store) -> None:
        """There is none; what was at hand as done is asked for again, and gone."""
        done = await self._done(store)
        assert (await other.collect(contract.AFTER_ALL)).calls == 1
        assert store.settled_stamp() is None
        assert await store.get(done.key, done) is None


class TestRedisCluster(TestRedis):
    @pytest.fixture(autouse=True)
    def _server(self, cluster: Valkey) -> None:
        self.server = cluster
        cluster.ask("FLUSHALL")


def damaged(row: bytes, how: str) -> bytes:
    return {
        "garbage": b"\xff\x00 garbage",
        "cut off": row[:-3],
        "newer": row.replace(b",1,14,", b",99,14,"),  # the record's version, before the length of the request
        "torn text": row.replace(b'"mail"', b'"m\xff\xfel"'),
    }[how]


async def test_figures_are_shown_past_a_question_that_cannot_be_read(server: Valkey) -> None:
    """The oldest question is that of those that can be read."""
    server.ask("FLUSHALL")
    store = await open_redis(server.url)
    try:
        for n in range(3):
            question, entry = calls.ask(bytes([n]) * 16, at=calls.NOW + n)
            await store.swap(question, entry, expected=0)
        server.ask("SET", b"{semel}:c:" + bytes(16), b"garbage")
        census = await store.census()
        assert census.oldest_question_at == calls.NOW + 1
        assert census.by_state[State.AWAITING_APPROVAL] == 3
    finally:
        await store.close()


@pytest.mark.parametrize("how", ["garbage", "cut off", "newer", "torn text"])
async def test_a_row_that_cannot_be_read_hurts_nobody_else(server: Valkey, how: str) -> None:
    """Who asks for it is told; who is in the same batch wins or loses on his own; lists name it."""
    server.ask("FLUSHALL")
    store = await open_redis(server.url)
    try:
        dead = "1-1-0000000000000000"
        bad, entry = calls.claim(dead)
        await store.swap(bad, entry, expected=0)
        name = b"{semel}:c:" + bad.key
        row = server.ask("GET", name)
        assert isinstance(row, bytes)
        assert damaged(row, how) != row
        server.ask("SET", name, damaged(row, how))
        good = [calls.claim(dead) for _ in range(2)]
        swaps = await asyncio.gather(
            store.swap(*good[0], expected=0),
            store.swap(bad, entry, expected=0),
            store.swap(*good[1], expected=0),
            return_exceptions=True,
        )
        assert swaps[0] == swaps[2] == Swap(True)
        assert isinstance(swaps[1], StoreUnavailable)
        with pytest.raises(StoreUnavailable):
            await store.get(bad.key)
        page = await store.find(Query())
        assert [call.key for call in page.calls] == [call.key for call, _ in reversed(good)]
        assert page.unreadable.keys() == {bad.id}
        orphans = await store.orphans()
        assert [call.key for call in orphans.calls] == [call.key for call, _ in good]
        assert orphans.unreadable.keys() == {bad.id}
        assert [call.key for call in await store.get_many([bad.key, good[0][0].key])] == [good[0][0].key]
    finally:
        await store.close()


async def test_a_key_of_another_kind_spoils_no_batch(server: Valkey) -> None:
    """Somebody else's hand has put a list where a row should be."""
    server.ask("FLUSHALL")
    store = await open_redis(server.url)
    try:
        bad, entry = calls.claim(store.owner)
        server.ask("RPUSH", b"{semel}:c:" + bad.key, "x")
        good = [calls.claim(store.owner) for _ in range(2)]
        swaps = await asyncio.gather(
            store.swap(*good[0], expected=0),
            store.swap(bad, entry, expected=0),
            store.swap(*good[1], expected=0),
            return_exceptions=True,
        )
        assert swaps[0] == swaps[2] == Swap(True)
        assert isinstance(swaps[1], StoreUnavailable)
        assert "WRONGTYPE" in str(swaps[1])
    finally:
        await store.close()


async def test_a_server_whose_clock_was_set_is_understood_with_the_next_beat(server: Valkey) -> None:
    """Swaps would be taken for late, or begun too late, for as long as the difference is believed."""
    server.ask("FLUSHALL")
    store = await open_redis(server.url, heartbeat=60, dead_after=240)
    try:
        store._pipe._ahead -= 3600
        with pytest.raises(StoreUnavailable, match="too late"):
            await store.swap(*calls.claim(store.owner), expected=0)
        await store.ping()
        async with asyncio.timeout(10):
            while True:
                try:
                    assert (await store.swap(*calls.claim(store.owner), expected=0)).won
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.01)
    finally:
        await store.close()


def test_the_scripts_are_in_the_wheel() -> None:
    """They are read from beside the modules."""
    root = Path(__file__).parents[2]
    shipped = {each.distribution_path for each in WheelBuilder(str(root)).recurse_included_files()}
    scripts = {path.relative_to(root).as_posix() for path in (root / "proxy/store/lua").glob("*.lua")}
    assert len(scripts) > 20
    assert scripts <= shipped
