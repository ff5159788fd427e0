"""Each store and the reference model give the same answers on any walk through the table."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from proxy.core.intent import Call, Entry, State
from proxy.store.base import Query, Store
from proxy.store.embedded import EmbeddedStore
from proxy.store.memory import MemoryStore
from proxy.store.postgres import PostgresStore
from proxy.store.redis_store import open_redis
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import valkey
from tests.stores import calls

SEEDS = 200 if os.environ.get("SEMEL_SOAK") else 12
STEPS = 150
# In neither store is this a living process, so pending rows are orphans in both.
OWNER = "walker"

Opened: TypeAlias = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Store]]


class Walk:
    """Draws the next step from a seed; the step is then taken in both stores."""

    def __init__(self, seed: int) -> None:
        self.coin = random.Random(seed)
        self.keys = [self.coin.randbytes(16) for _ in range(4)]
        self.time = calls.NOW

    async def step(self, model: Store, store: Store) -> None:
        key = self.coin.choice(self.keys)
        present = await model.get(key)
        self.time += 1
        swap = self._swap(key, present)
        for name, args, options in (
            ("swap", swap[:2], {"expected": swap[2]}),
            ("note", (key, calls.evidence(swap[0], self.coin.choice("abc"))), {}),
        )[: self.coin.choice((1, 1, 1, 2))]:
            assert await getattr(model, name)(*args, **options) == await getattr(store, name)(
                *args, **options
            )
        if self.coin.random() < 0.2 and await model.get(key) is not None:
            for either in (model, store):
                either.mark_replayed(key, self.time)
        if self.coin.random() < 0.1:
            now, limit = self.time + self.coin.choice((0, 30, 100_000)), self.coin.choice((1, 2, 100))
            for dry_run in (True, False):
                assert await model.collect(now, limit=limit, dry_run=dry_run) == await store.collect(
                    now, limit=limit, dry_run=dry_run
                )
            present = await model.get(key)
        for name, args, options in self._questions(key, present):
            assert await getattr(model, name)(*args, **options) == await getattr(store, name)(
                *args, **options
            )

    def _swap(self, key: bytes, present: Call | None) -> tuple[Call, Entry, int]:
        """A legal change of the present row; every fourth time against a version that is not there."""
        if present is None:
            call, entry = calls.claim(OWNER, key, at=self.time)
        else:
            call, entry = self.coin.choice(self._ways_on(present))
        expected = call.version - 1
        if self.coin.random() < 0.25:
            expected = max(0, expected + self.coin.choice((-1, 1, 2)))
            call = replace(call, version=expected + 1)
        return call, entry, expected

    def _ways_on(self, call: Call) -> list[tuple[Call, Entry]]:
        match call.state:
            case State.PENDING:
                return [make(call, at=self.time) for make in (calls.settle, calls.lose, calls.release)]
            case State.IN_DOUBT:
                return [calls.settle(call, at=self.time), calls.resend(call, OWNER, at=self.time)]
            case State.RELEASED:
                return [calls.settle(call, at=self.time), calls.claim_again(call, OWNER, at=self.time)]
            case _:
                # Past its time to live: as good as deleted, so a claim starts it anew.
                fresh, entry = calls.claim(OWNER, call.key, at=self.time)
                again = replace(fresh, version=call.version + 1, fence=call.fence + 1, born=call.born)
                return [(again, entry)]

    def _questions(
        self, key: bytes, present: Call | None
    ) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
        version = present.version if present else 0
        return [
            ("get", (key,), {}),
            self.coin.choice(
                [
                    ("history", (key,), {}),
                    ("replays", (key,), {}),
                    ("changed", (key, version, 0.001), {}),
                    ("find", (self._query(),), {}),
                    ("owner_is_dead", (OWNER,), {}),
                ]
            ),
        ]

    def _query(self) -> Query:
        """One page: the numbers of pages differ between stores, what is on them does not."""
        return Query(
            state=self.coin.choice((None, *State)),
            upstream=self.coin.choice(("", "mail")),
            tool=self.coin.choice(("", "", "POST /send", "another")),
        )


@asynccontextmanager
async def embedded(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    store = await EmbeddedStore.open(request.getfixturevalue("tmp_path") / "state")
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def postgres(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    server: PostgresServer = request.getfixturevalue("postgres_server")
    store = await PostgresStore.open(server.url(request.getfixturevalue("database")))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def redis(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    with valkey(request.getfixturevalue("tmp_path") / "server") as server:
        store = await open_redis(server.url)
        try:
            yield store
        finally:
            await store.close()


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("opened", [embedded, postgres, redis])
async def test_a_random_walk_looks_the_same_in_both_stores(
    request: pytest.FixtureRequest, opened: Opened, seed: int
) -> None:
    """Every answer on the way, and everything there is at the end."""
    print(f"seed {seed}")
    walk, model = Walk(seed), MemoryStore()
    async with opened(request) as store:
        for _ in range(STEPS):
            await walk.step(model, store)
        for key in walk.keys:
            assert await store.history(key) == await model.history(key)
            assert await store.replays(key) == await model.replays(key)
        expected, found = await model.census(), await store.census()
        assert found.by_state == expected.by_state
        assert found.oldest_doubt_at == expected.oldest_doubt_at
        orphans = {call.key: call for call in (await model.orphans()).calls}
        assert {call.key: call for call in (await store.orphans()).calls} == orphans
