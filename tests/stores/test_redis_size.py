"""The Redis store with a thousand and with a million rows: claims and settlements cost the same."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from proxy.core.intent import Call, State
from proxy.store.base import Query
from proxy.store.redis_store import RedisStore, open_redis
from tests.servers.valkey import Valkey, valkey
from tests.stores import calls

SOAK = bool(os.environ.get("SEMEL_SOAK"))
FEW, MANY = 1000, 1_000_000 if SOAK else 30_000
PORTION = 10_000
# Done rows like one that the store has written, each with its own key, in all the indexes of one.
FILL = """
local T, row, line, first, many = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local head, rest = string.match(row, '^([^\\n]*)(\\n.*)$')
local version, born, state, after = string.match(head, '^(%d+) (%S+) (%S+) %d+ (.*)$')
for i = first, first + many - 1 do
  local key = string.sub(redis.sha1hex(i), 1, 16)
  redis.call('SET', T .. ':c:' .. key, table.concat({version, born, state, i, after}, ' ') .. rest)
  redis.call('RPUSH', T .. ':e:' .. key, line, line)
  redis.call('ZADD', T .. ':all', i, key)
  redis.call('ZADD', T .. ':expiring', 4e9 + i, key)
end
redis.call('SET', T .. ':n', first + many)
return many
"""


async def fill(server: Valkey, store: RedisStore, count: int) -> None:
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    await store.swap(*calls.settle(call, b"y" * 450), expected=1)
    row = server.ask("GET", b"{semel}:c:" + call.key)
    line = server.ask("LINDEX", b"{semel}:e:" + call.key, 0)
    assert isinstance(row, bytes)
    assert isinstance(line, bytes)
    server.ask("CONFIG", "SET", "appendfsync", "no")
    server.ask("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")  # a rewrite is another measurement
    for first in range(10, count, PORTION):
        size = server.ask("EVAL", FILL, 1, "{semel}", row, line, first, min(PORTION, count - first))
        assert isinstance(size, int), size
    server.ask("CONFIG", "SET", "appendfsync", "always")
    assert (await store.census()).by_state[State.DONE] > count - 20


async def once(store: RedisStore, number: int, callers: int = 32) -> list[Call]:
    """Claims and settles so many calls."""
    made: list[Call] = []

    async def caller() -> None:
        while len(made) < number:
            call, entry = calls.claim(store.owner)
            made.append(call)
            assert (await store.swap(call, entry, expected=0)).won
            assert (await store.swap(*calls.settle(call, b"y" * 450), expected=1)).won

    await asyncio.gather(*(caller() for _ in range(callers)))
    return made


def inner_calls(server: Valkey) -> dict[str, int]:
    """How often each command was run, also by scripts."""
    told = server.ask("INFO", "commandstats")
    assert isinstance(told, bytes)
    lines = [line for line in told.decode().splitlines() if line.startswith("cmdstat_")]
    return {
        line.partition(":")[0].removeprefix("cmdstat_"): int(line.partition("calls=")[2].partition(",")[0])
        for line in lines
    }


@contextmanager
def both(tmp_path: Path) -> Iterator[list[Valkey]]:
    with valkey(tmp_path / "few") as few, valkey(tmp_path / "many") as many:
        yield [few, many]


async def test_a_claim_and_a_settlement_take_the_same_commands_however_many_rows_there_are(
    tmp_path: Path,
) -> None:
    """Nothing in them walks: each runs as many commands with many rows as with few. And what walks goes in
    portions and finds what there is."""
    spent = []
    with both(tmp_path) as servers:
        for server, count in zip(servers, (FEW, MANY), strict=True):
            store = await open_redis(server.url, heartbeat=60, dead_after=240)
            try:
                await fill(server, store, count)
                server.ask("CONFIG", "RESETSTAT")
                made = await once(store, 200, callers=1)
                used = inner_calls(server)
                for name in ("config|resetstat", "info", "ping"):
                    used.pop(name, None)
                spent.append(used)
                newest = await store.find(Query(limit=3))
                assert [call.key for call in newest.calls] == [call.key for call in made[:-4:-1]]
                assert await store.find(Query(tool="nobody's")) == await store.find(Query(run="none"))
            finally:
                await store.close()
    assert spent[0] == spent[1]


@pytest.mark.soak
async def test_a_million_rows_slow_claims_and_settlements_by_less_than_a_third(tmp_path: Path) -> None:
    """Rounds on both in turn; the median of the ratios."""
    with both(tmp_path) as servers:
        async with AsyncExitStack() as stack:
            stores = []
            for server, count in zip(servers, (FEW, MANY), strict=True):
                stores.append(await open_redis(server.url, heartbeat=5, dead_after=60))
                stack.push_async_callback(stores[-1].close)
                await fill(server, stores[-1], count)
            ratios = []
            for _ in range(7):
                took = []
                for store in stores:
                    began = time.perf_counter()
                    await once(store, 1000)
                    took.append(time.perf_counter() - began)
                ratios.append(took[1] / took[0])
            print([round(ratio, 2) for ratio in ratios])
            for server in servers:
                told = server.ask("INFO", "commandstats")
                assert isinstance(told, bytes)
                print([line for line in told.decode().splitlines() if "evalsha" in line])
            assert statistics.median(ratios) <= 1.3
