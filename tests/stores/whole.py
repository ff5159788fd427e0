"""Whether a record is whole: every body that a row names is there and has its digest. And bodies made old."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator

from proxy.core.intent import Call
from proxy.store.base import BlobLost, BlobRef, Query, Store
from proxy.store.embedded import EmbeddedStore
from proxy.store.memory import MemoryStore
from proxy.store.postgres import PostgresStore
from proxy.store.redis_store import RedisStore
from proxy.store.unnamed import UNTOUCHED

OLD = UNTOUCHED + 60


async def all_calls(store: Store) -> AsyncIterator[Call]:
    query: Query | None = Query(limit=500)
    while query is not None:
        page = await store.find(query)
        assert not page.unreadable
        for call in page.calls:
            yield call
        query = None if page.next is None else Query(limit=500, after=page.next)


async def assert_whole(store: Store, *, request_size: int) -> int:
    """How many bodies were looked at. Others may collect meanwhile: what a row named that is gone by now may
    be gone too."""
    looked = 0
    async for call in all_calls(store):
        named = [BlobRef(call.request_blob, request_size)] if call.request_blob else []
        if call.answer is not None and call.answer.blob:
            named.append(BlobRef(call.answer.blob, call.answer.size))
        for ref in named:
            looked += 1
            if (lost := await _why_lost(store, ref)) is not None:
                present = await store.get(call.key)
                stands = present is not None and (present.born, present.version) == (call.born, call.version)
                assert not stands, f"{call.id}, {call.state}, names a body that cannot be read: {lost}"
    return looked


async def _why_lost(store: Store, ref: BlobRef) -> BlobLost | None:
    try:
        async for _ in store.read_blob(ref):  # compares the digest
            pass
    except BlobLost as error:
        return error
    return None


async def age_all(store: Store) -> None:
    """Nobody has touched any of the bodies for more than an hour."""
    past = time.time() - OLD
    if isinstance(store, EmbeddedStore):
        for path in store._blobs.directory.glob("??/*"):
            try:
                os.utime(path, (past, past))
            except FileNotFoundError:
                continue  # collected meanwhile
    elif isinstance(store, PostgresStore):
        await store._lines.ask(f"UPDATE semel.blobs SET touched_at = to_timestamp({past})")
    elif isinstance(store, RedisStore):
        tag = store._tag
        for digest in await store._pipe.ask("HKEYS", f"{tag}:touched"):
            await store._pipe.ask("HSET", f"{tag}:touched", digest, repr(past))
            await store._pipe.ask("ZADD", f"{tag}:unnamed", "XX", repr(past), digest)
    else:
        assert isinstance(store, MemoryStore)
        store.world.touched = dict.fromkeys(store.world.touched, past)


async def blobs_in(store: Store) -> object:
    """All bodies, named or not, and when they were last touched."""
    if isinstance(store, EmbeddedStore):
        files = store._blobs.directory.glob("*/*")
        return sorted((path.name, path.stat().st_mtime_ns, path.read_bytes()) for path in files)
    if isinstance(store, PostgresStore):
        return [
            await store._lines.ask(f"SELECT * FROM semel.{table} ORDER BY 1, 2")
            for table in ("blobs", "uploads", "parts")
        ]
    assert isinstance(store, RedisStore)
    names = sorted(await store._pipe.ask("KEYS", f"{store._tag}:b:*"))
    hashes = [
        await store._pipe.ask("HGETALL", f"{store._tag}:{name}") for name in ("blob", "touched", "named")
    ]
    unnamed = await store._pipe.ask("ZRANGE", f"{store._tag}:unnamed", 0, -1, "WITHSCORES")
    return [names, *hashes, unnamed]
