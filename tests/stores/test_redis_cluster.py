"""A cluster of three nodes: the store lies in one slot, on the node that has it, wherever one asks first."""

from __future__ import annotations

import asyncio
import binascii
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from proxy.core.intent import State
from proxy.errors import StoreUnavailable
from proxy.store.base import Query, Swap
from proxy.store.redis_store import open_redis
from tests.servers.valkey import Valkey, valkey
from tests.stores import calls

SLOTS = 16384
SHARES = ((0, 5460), (5461, 10922), (10923, SLOTS - 1))


def slot_of(tag: str) -> int:
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Valkey]]:
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("cluster")
        nodes = [
            stack.enter_context(
                valkey(directory / str(n), cluster_enabled="yes", cluster_node_timeout="2000")
            )
            for n in range(3)
        ]
        for node, share in zip(nodes, SHARES, strict=True):
            assert node.ask("CLUSTER", "ADDSLOTSRANGE", *share) == b"OK"
            for other in nodes:
                node.ask("CLUSTER", "MEET", "127.0.0.1", other.port, other.options["cluster-port"])
        until = time.monotonic() + 60
        while not all(is_whole(node) for node in nodes):
            assert time.monotonic() < until, "the cluster does not come together"
            time.sleep(0.05)
        yield nodes


def is_whole(node: Valkey) -> bool:
    told = node.ask("CLUSTER", "INFO")
    assert isinstance(told, bytes)
    return b"cluster_state:ok" in told and b"cluster_known_nodes:3" in told


def rows_at(node: Valkey) -> int:
    found = node.ask("KEYS", "{semel}:c:*")
    assert isinstance(found, list)
    return len(found)


async def test_a_store_is_found_from_every_node(nodes: list[Valkey]) -> None:
    """Three processes, each told of another node: one store, on the node that has the slot, and they wake
    each other."""
    (home,) = (n for n, (first, last) in enumerate(SHARES) if first <= slot_of("semel") <= last)
    stores = [await open_redis(node.url) for node in nodes]
    try:
        assert len({store.secret for store in stores}) == 1
        key = calls.NOW.hex()[:16].encode()
        made = [calls.claim(store.owner, key) for store in stores]
        swaps = await asyncio.gather(
            *(store.swap(call, entry, expected=0) for store, (call, entry) in zip(stores, made, strict=True))
        )
        (won,) = (call for (call, _), swap in zip(made, swaps, strict=True) if swap.won)
        assert [swap for swap in swaps if not swap.won] == [Swap(False, won)] * 2
        waiting = [asyncio.create_task(store.changed(key, 1, 30.0)) for store in stores]
        await asyncio.sleep(0.2)
        assert not any(wait.done() for wait in waiting)
        await stores[0].swap(*calls.settle(won), expected=1)
        assert await asyncio.gather(*waiting) == [True] * 3
        blob = await stores[1].put_blob([b"content" * 100_000])
        assert sum([len(piece) async for piece in stores[2].read_blob(blob)]) == blob.size
        await stores[0].cache_put(b"k", b"v", 60.0)
        assert await stores[2].cache_get(b"k") == b"v"
        assert [len((await store.find(Query())).calls) for store in stores] == [1, 1, 1]
        assert [rows_at(node) for node in nodes] == [int(n == home) for n in range(3)]
    finally:
        for store in stores:
            await store.close()


async def test_stores_of_other_names_lie_in_other_slots(nodes: list[Valkey]) -> None:
    """A prefix is a store of its own: another secret, other rows, perhaps another node."""
    one, two = await open_redis(nodes[0].url), await open_redis(f"{nodes[0].url}?prefix=other")
    try:
        assert one.secret != two.secret
        assert slot_of("semel") != slot_of("other")
        call, entry = calls.claim(two.owner)
        assert (await two.swap(call, entry, expected=0)).won
        assert await one.get(call.key) is None
        assert (await two.census()).by_state[State.PENDING] == 1
    finally:
        await one.close()
        await two.close()


async def test_a_slot_that_moves_to_another_node_is_followed(nodes: list[Valkey]) -> None:
    """An empty one, given to its neighbour: what is asked next goes there, and nothing is sent twice. While
    neither or both think they have it the store is not available, which passes."""
    tag = "moving"
    home = next(n for n, (first, last) in enumerate(SHARES) if first <= slot_of(tag) <= last)
    target = nodes[(home + 1) % 3]
    store = await open_redis(f"{nodes[home].url}?prefix={tag}", patience=2)
    try:
        call, entry = calls.claim(store.owner)
        assert (await store.swap(call, entry, expected=0)).won
        keys = nodes[home].ask("KEYS", f"{{{tag}}}*")
        assert isinstance(keys, list)
        here, there = nodes[home].ask("CLUSTER", "MYID"), target.ask("CLUSTER", "MYID")
        assert isinstance(here, bytes)
        assert isinstance(there, bytes)
        target.ask("CLUSTER", "SETSLOT", slot_of(tag), "IMPORTING", here)
        nodes[home].ask("CLUSTER", "SETSLOT", slot_of(tag), "MIGRATING", there)
        with pytest.raises(StoreUnavailable):
            await store.swap(*calls.claim(store.owner), expected=0)
        moved = nodes[home].ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        assert moved == b"OK"
        for node in (target, nodes[home], nodes[(home + 2) % 3]):
            node.ask("CLUSTER", "SETSLOT", slot_of(tag), "NODE", there)
        async with asyncio.timeout(30):
            while True:
                try:
                    assert await store.get(call.key) == call
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.05)
        assert (await store.swap(*calls.settle(call), expected=1)).won
        assert await store.history(call.key) != []
        assert sum((await store.census()).by_state.values()) == 1
    finally:
        await store.close()
