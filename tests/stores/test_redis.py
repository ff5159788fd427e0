"""The Redis store keeps the contract, on a real Valkey; and on one that is a cluster of a single node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from proxy.store.base import BlobRef, Store
from proxy.store.redis_store import RedisStore, open_redis
from proxy.store.unnamed import UNTOUCHED
from tests.servers.valkey import Valkey, valkey
from tests.stores import contract
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


class TestRedis(RunContract, StoreContract):
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


def test_the_scripts_are_in_the_wheel() -> None:
    """They are read from beside the modules."""
    root = Path(__file__).parents[2]
    shipped = {each.distribution_path for each in WheelBuilder(str(root)).recurse_included_files()}
    scripts = {path.relative_to(root).as_posix() for path in (root / "proxy/store/lua").glob("*.lua")}
    assert len(scripts) > 20
    assert scripts <= shipped
