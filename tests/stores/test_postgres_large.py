"""A large ledger: claims and settles are as fast as in a small one, and every listing has its index."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from proxy.core.intent import State
from proxy.store import postgres_calls, postgres_owners, postgres_runs
from proxy.store.base import Query
from proxy.store.postgres import PostgresStore
from tests.servers.postgres import PostgresServer
from tests.stores import calls

SOAK = bool(os.environ.get("SEMEL_SOAK"))
SMALL, LARGE = 1000, 1_000_000 if SOAK else 50_000
RATIO = 1.3

# Settled calls of the past, as a ledger is full of them.
FILL = """
INSERT INTO semel.calls (key, fingerprint, named_by, tenant, run, attempt, seq, occurrence, upstream, rule,
  tool, safe, state, version, fence, owner, created_at, sent_at, settled_at, expires_at, sends, unresolved,
  request_blob, answer_status, answer_size, answer_recorded_at, answer_place, answer_blob, answer_why_nowhere,
  record_version, request, answer_head, answer_body, born, in_run, pulse)
SELECT decode(md5('{database}' || n), 'hex'), decode(md5(n::text), 'hex'), '', 'tenant-' || n % 50,
  CASE WHEN n % 4 = 0 THEN 'run-' || n / 400 ELSE '' END, 'a1', n % 100, 1, 'upstream-' || n % 20, 'rule',
  'tool-' || n % 300, false, 'done', 2, 1, 'gone', n, n, n, CASE WHEN n % 4 = 0 THEN NULL ELSE 2e9 + n END,
  1, false, '', 200, 450, n, 'inline', '', '', 1, convert_to(repeat('q', 200), 'UTF8'),
  convert_to('head', 'UTF8'), convert_to(repeat('a', 450), 'UTF8'), n,
  CASE WHEN n % 4 = 0 THEN '{{"family":"00","group":["rule"]}}' END, n % 100
FROM generate_series({first}, {last}) AS n
"""


@pytest.fixture
async def store(postgres_server: PostgresServer, database: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(postgres_server.url(database))
    yield store
    await store.close()


def fill(server: PostgresServer, database: str, first: int, last: int) -> None:
    for start in range(first, last + 1, 100_000):
        end = min(last, start + 99_999)
        server.execute(FILL.format(database=database, first=start, last=end), database=database)
    server.execute("VACUUM (ANALYZE) semel.calls", database=database)
    server.execute("CHECKPOINT", database=database)


async def once(store: PostgresStore) -> float:
    """Seconds for a claim and a settlement, thirty-two at a time: the median of some rounds."""
    rounds = []
    for _ in range(15):
        began = time.perf_counter()
        made = [calls.claim(store.owner) for _ in range(32)]
        await asyncio.gather(*(store.swap(call, entry, expected=0) for call, entry in made))
        await asyncio.gather(*(store.swap(*calls.settle(call), expected=1) for call, _ in made))
        rounds.append(time.perf_counter() - began)
    return statistics.median(rounds)


@pytest.mark.soak
async def test_claims_and_settles_do_not_slow_down_as_the_ledger_grows(
    store: PostgresStore, postgres_server: PostgresServer, database: str
) -> None:
    """The better of a few measurements on each size: a busy machine is not the ledger's fault."""
    fill(postgres_server, database, 1, SMALL)
    await once(store)
    small = min([await once(store) for _ in range(3)])
    fill(postgres_server, database, SMALL + 1, LARGE)
    await once(store)
    large = min([await once(store) for _ in range(3)])
    for _ in range(5):
        if large <= RATIO * small:
            break
        large = min(large, await once(store))
    print(f"{SMALL}: {small * 1e3:.2f} ms, {LARGE}: {large * 1e3:.2f} ms, ratio {large / small:.2f}")
    assert large <= RATIO * small


QUERIES = {
    "all": Query(limit=50),
    "later": Query(limit=50, after=5000),
    "tool": Query(tool="tool-7", limit=50),
    "upstream": Query(upstream="upstream-3", limit=50),
    "tenant": Query(tenant="tenant-9", limit=50),
    "run": Query(run="run-1", limit=50),
    **{f"in {state}": Query(state=state, limit=50) for state in State},
}
STATEMENTS: dict[str, tuple[str, Sequence[object]]] = {
    "get": (postgres_calls.GET, ([b"k" * 16],)),
    "version": (postgres_calls.VERSIONS, ([b"k" * 16],)),
    "history": (postgres_calls.HISTORY, (b"k" * 16,)),
    "pending of": (postgres_calls.PENDING_OF, (["a"],)),
    "pending owners": (postgres_calls.PENDING_OWNERS, ()),
    "oldest doubt": (postgres_calls.OLDEST_DOUBT, ()),
    "live calls": (postgres_calls.LIVE_CALLS, ("upstream-3", "rule", 1.0)),
    "steps": (postgres_runs.STEPS, ("tenant-0", "run-1", 3)),
    "exchanges": (postgres_runs.EXCHANGES, ("tenant-0", "run-1", "a1", 3)),
    "run history": (postgres_runs.RUN_HISTORY, ("tenant-0", "run-1")),
    "tenants of": (postgres_runs.TENANTS_OF, ("run-1",)),
    "beat": (postgres_owners.BEAT, ("x", 1.0)),
    **{f"find {name}": postgres_calls.find(query) for name, query in QUERIES.items()},
}


async def test_no_listing_walks_the_whole_ledger(
    store: PostgresStore, postgres_server: PostgresServer, database: str
) -> None:
    """Every statement that reads calls uses an index, and reads about as many rows as it gives."""
    fill(postgres_server, database, 1, 20_000)
    for name, (text, values) in STATEMENTS.items():
        plan = "\n".join(
            str(line) for (line,) in await store._lines.ask(f"EXPLAIN (COSTS OFF) {text}", values)
        )
        print(f"--- {name}\n{plan}")
        assert not re.search(r"Seq Scan on (calls|events|exchanges|runs|run_events)", plan), f"{name}\n{plan}"
