"""Settings of a Redis server under which intents may be lost: seen at start, after a restart, and later."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ConfigurationError, StoreUnavailable
from proxy.store.base import Swap
from proxy.store.redis_safety import REQUIRED, why_unsafe
from proxy.store.redis_store import Note, RedisStore, open_redis
from tests.inside import call, semel
from tests.origin import READ_ALL, Origin, answer
from tests.servers.valkey import Valkey, valkey
from tests.stores import calls

SETTINGS = {name: wanted for name, wanted, _ in REQUIRED}
# What is set, and what the refusal must name.
UNSAFE = {
    "no-log": ({"appendonly": "no"}, "appendonly"),
    "synced-each-second": ({"appendfsync": "everysec"}, "appendfsync"),
    "never-synced": ({"appendfsync": "no"}, "appendfsync"),
    "not-synced-while-rewriting": ({"no_appendfsync_on_rewrite": "yes"}, "no-appendfsync-on-rewrite"),
    "evicts": ({"maxmemory_policy": "allkeys-lru"}, "maxmemory-policy"),
    "evicts-what-has-a-time": ({"maxmemory_policy": "volatile-ttl"}, "maxmemory-policy"),
    "unreadable": ({}, "CONFIG GET"),  # by ACL
    "replica": ({"replicaof": "127.0.0.1 1", "replica_read_only": "no"}, "replicaof"),
}


@contextmanager
def unsafe_server(tmp_path: Path, how: str) -> Iterator[Valkey]:
    options, _ = UNSAFE[how]
    with valkey(tmp_path / "server", **options) as server:
        if how == "unreadable":
            server.ask("ACL", "SETUSER", "default", "-config")
        yield server


@asynccontextmanager
async def opened(
    server: Valkey, durability: str = "strict", note: Note = lambda *_, **__: None
) -> AsyncIterator[RedisStore]:
    store = await open_redis(
        server.url, heartbeat=0.1, dead_after=10, durability=durability, patience=2, note=note
    )
    try:
        yield store
    finally:
        await store.close()


def test_the_rule_names_the_setting_and_what_to_do() -> None:
    """Each setting that is wrong or unread is named; all right is no message."""
    assert why_unsafe(SETTINGS, "master") is None
    for name, wanted in SETTINGS.items():
        for found in (None, "another"):
            message = why_unsafe({**SETTINGS, name: found}, "master")
            assert message is not None
            assert name in message
            assert "best-effort" in message
            assert (repr(wanted) in message) == (found is not None)
    assert "replica" in (why_unsafe(SETTINGS, "slave") or "")
    assert "CONFIG" in (why_unsafe({}, "master") or "")


@pytest.mark.parametrize("how", UNSAFE)
async def test_an_unsafe_server_takes_no_call_with_effects_and_says_why(tmp_path: Path, how: str) -> None:
    """Refused before anything is written, with the setting's name; safe calls go on, and so does what was
    begun: answers are settled, doubts resolved."""
    _, named = UNSAFE[how]
    with unsafe_server(tmp_path, how) as server:
        async with opened(server) as store:
            assert named in (store.unsafe or "")
            call, entry = calls.claim(store.owner)
            with pytest.raises(StoreUnavailable, match=named):
                await store.swap(call, entry, expected=0)
            assert await store.get(call.key) is None
            safe = replace(call, safe=True)
            assert await store.swap(safe, entry, expected=0) == Swap(True)
            done, entry = calls.settle(replace(safe, safe=False))
            assert (await store.swap(done, entry, expected=1)).won
            doubt, entry = calls.claim(store.owner)
            assert (await store.swap(replace(doubt, safe=True), entry, expected=0)).won
            lost, entry = calls.lose(doubt)
            assert (await store.swap(lost, entry, expected=1)).won
            with pytest.raises(StoreUnavailable, match=named):
                await store.swap(*calls.resend(lost, store.owner), expected=2)


async def test_a_replica_that_takes_no_writes_is_refused_at_start(tmp_path: Path) -> None:
    """Nothing can be kept there at all; the message says which server to name."""
    with (
        valkey(tmp_path / "server", replicaof="127.0.0.1 1") as server,
        pytest.raises(ConfigurationError, match="replica"),
    ):
        await open_redis(server.url, patience=2)


@pytest.mark.parametrize("how", ["synced-each-second", "unreadable"])
async def test_best_effort_sends_all_the_same_and_shows_it(tmp_path: Path, how: str) -> None:
    """The name, which metrics tell, and the log say what calls rest on."""
    _, named = UNSAFE[how]
    told: list[tuple[str, dict[str, Any]]] = []
    with unsafe_server(tmp_path, how) as server:
        async with opened(server, "best-effort", lambda event, **facts: told.append((event, facts))) as store:
            assert store.name == "redis-best-effort"
            assert named in (store.unsafe or "")
            assert (await store.swap(*calls.claim(store.owner), expected=0)).won
    ((event, facts),) = told
    assert (event, facts["durability"]) == ("redis-unsafe", "best-effort")
    assert named in facts["why"]


async def test_best_effort_may_stand_in_the_url(tmp_path: Path) -> None:
    """Where a URL is all that can be given."""
    with unsafe_server(tmp_path, "no-log") as server:
        store = await open_redis(f"{server.url}?durability=best-effort")
        assert store.name == "redis-best-effort"
        assert (await store.swap(*calls.claim(store.owner), expected=0)).won
        await store.close()


async def test_an_unknown_durability_is_refused() -> None:
    """Before anything is opened."""
    for url, durability in (("redis://127.0.0.1:1", "hopeful"), ("redis://127.0.0.1:1?durability=x", "")):
        with pytest.raises(ConfigurationError, match="best-effort"):
            await open_redis(url, durability=durability)


async def test_who_only_looks_makes_nothing(tmp_path: Path) -> None:
    """A server without a store stays without one, and that is said."""
    with valkey(tmp_path / "server") as server:
        with pytest.raises(ConfigurationError, match="no record"):
            await open_redis(server.url, make=False)
        assert server.ask("DBSIZE") == 0
        await (await open_redis(server.url)).close()
        await (await open_redis(server.url, make=False)).close()


async def settled_on(store: RedisStore, unsafe: bool) -> None:
    async with asyncio.timeout(20):
        while (store.unsafe is not None) != unsafe:
            await asyncio.sleep(0.02)


async def test_settings_that_change_while_it_runs_are_noticed(tmp_path: Path) -> None:
    """In both directions, with the next beat, and told each time."""
    told: list[str] = []
    with valkey(tmp_path / "server") as server:
        async with opened(server, note=lambda event, **_: told.append(event)) as store:
            assert store.unsafe is None
            assert store.name == "redis"
            server.ask("CONFIG", "SET", "appendfsync", "everysec")
            await settled_on(store, True)
            with pytest.raises(StoreUnavailable, match="appendfsync"):
                await store.swap(*calls.claim(store.owner), expected=0)
            server.ask("CONFIG", "SET", "appendfsync", "always")
            await settled_on(store, False)
            assert (await store.swap(*calls.claim(store.owner), expected=0)).won
    assert told == ["redis-unsafe", "redis-safe"]


@pytest.mark.parametrize("durability", ["strict", "best-effort"])
async def test_a_server_that_lost_the_record_takes_no_call_with_effects(
    tmp_path: Path, durability: str
) -> None:
    """Emptied by a person, or started again without its log: what was done is not known any more, so nothing
    is done again on the word of an empty record, not even by best effort. With the record it goes on."""
    with valkey(tmp_path / "server") as server:
        async with opened(server, durability) as store:
            call, entry = calls.claim(store.owner)
            assert (await store.swap(call, entry, expected=0)).won
            server.kill()
            kept = server.directory / "appendonlydir"
            kept.rename(tmp_path / "kept")
            server.start()
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await store.swap(*calls.claim(store.owner), expected=0)
            with pytest.raises(StoreUnavailable, match="no longer"):
                await store.swap(*calls.claim(store.owner), expected=0)
            assert sum((await store.census()).by_state.values()) == 0
            server.kill()
            shutil.rmtree(kept)
            (tmp_path / "kept").rename(kept)
            server.start()
            async with asyncio.timeout(20):
                while True:
                    try:
                        assert (await store.swap(*calls.settle(call), expected=1)).won
                        break
                    except StoreUnavailable:
                        await asyncio.sleep(0.02)
            assert (await store.swap(*calls.claim(store.owner), expected=0)).won
            server.ask("FLUSHALL")
            await settled_on(store, True)
            with pytest.raises(StoreUnavailable, match="no longer"):
                await store.swap(*calls.claim(store.owner), expected=0)


async def test_settings_are_read_again_from_a_server_that_was_restarted(tmp_path: Path) -> None:
    """On the new connection, before anything else is sent on it: no claim slips through before the next
    beat."""
    with valkey(tmp_path / "server") as server:
        store = await open_redis(server.url, heartbeat=60, dead_after=240, patience=2)
        try:
            assert (await store.swap(*calls.claim(store.owner), expected=0)).won
            server.options["appendfsync"] = "no"
            server.restart()
            for _ in range(5):
                with pytest.raises(StoreUnavailable):
                    await store.swap(*calls.claim(store.owner), expected=0)
            with pytest.raises(StoreUnavailable, match="appendfsync"):
                await store.swap(*calls.claim(store.owner), expected=0)
            counts = (await store.census()).by_state
            assert sum(counts.values()) == 1
        finally:
            await store.close()


async def test_a_user_needs_no_more_rights_than_the_document_says(tmp_path: Path) -> None:
    """Those that are written there are enough for everything, and nothing is unsafe with them."""
    text = (Path(__file__).parents[2] / "docs" / "why" / "redis.md").read_text()
    (rights,) = (line.split() for line in text.splitlines() if line.startswith("~{semel}*"))
    with valkey(tmp_path / "server") as server:
        assert server.ask("ACL", "SETUSER", "agent", "on", ">word", *rights) == b"OK"
        store = await open_redis(server.url.replace("127.0.0.1", "agent:word@127.0.0.1"))
        try:
            assert store.unsafe is None
            await store.open_run("default", "r", "a1", calls.NOW)
            call, entry = calls.in_run(store.owner)
            assert (await store.swap(call, entry, expected=0, served=calls.serving(call))).won
            waiting = asyncio.create_task(store.changed(call.key, 1, 20.0))
            await asyncio.sleep(0.05)
            assert (await store.swap(*calls.settle(call), expected=1)).won
            assert await waiting
            assert (await store.census()).bytes_used > 0
            blob = await store.put_blob([b"content"])
            assert [piece async for piece in store.read_blob(blob)] == [b"content"]
            await store.cache_put(b"k", b"v", 60.0)
            assert (await store.orphans()).calls == []
            store.mark_replayed(call.key, calls.NOW)
            assert await store.replays(call.key) == 1
            assert (await store.collect(calls.NOW, runs_before=calls.NOW + 9)).calls == 1
            await store.ping()
        finally:
            await store.close()


# --- through the whole of semel --------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    with valkey(tmp_path / "server") as server:
        yield server


def policy(port: int) -> str:
    return f"""
upstream: up
base_url: http://127.0.0.1:{port}
rules:
  - {{name: look, match: {{method: POST, path: /look}}, safe: true}}
  - {{name: send, match: {{method: POST, path: "/**"}}}}
"""


@asynccontextmanager
async def proxy(
    tmp_path: Path, server: Valkey, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[int]:
    async def open_store(_: object, **__: object) -> RedisStore:
        return await open_redis(server.url, heartbeat=0.2, dead_after=5, patience=2)

    monkeypatch.setattr("proxy.app.open_store", open_store)
    async with semel(tmp_path, policy(origin.port), log=io.StringIO()) as app:
        yield app.address.port


async def test_an_unsafe_server_is_a_503_that_names_the_setting_and_nothing_is_sent(
    tmp_path: Path, server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With effects, in and outside of runs; a safe call goes through and is recorded; made safe, all do."""
    server.ask("CONFIG", "SET", "appendfsync", "everysec")
    async with (
        Origin((*READ_ALL, answer(200, b"yes"))) as origin,
        proxy(tmp_path, server, origin, monkeypatch) as port,
    ):
        for target in ("/up/send", "/@r+a1/up/send"):
            refused = await call(port, "POST", target, body=b"{}")
            assert (refused.status, refused.semel) == (503, "refused")
            problem = json.loads(refused.body)
            assert problem["type"] == "urn:semel:store-unavailable"
            assert "appendfsync" in problem["detail"]
        assert origin.started == 0
        for target, kind in (("/up/look", "passed"), ("/@r+a1/up/look", "executed")):
            looked = await call(port, "POST", target, body=b"{}")
            assert (looked.status, looked.semel) == (200, kind)
        server.ask("CONFIG", "SET", "appendfsync", "always")
        for target in ("/up/send", "/@r+a1/up/send"):
            async with asyncio.timeout(20):
                while (sent := await call(port, "POST", target, body=b"{}")).status == 503:
                    await asyncio.sleep(0.05)
            assert sent.semel == "executed"
        assert origin.started == 4
        assert (await call(port, "POST", "/up/send", body=b"{}")).semel == "replayed"
        assert (await call(port, "POST", "/@r+a2/up/send", body=b"{}")).semel == "replayed"
        assert origin.started == 4


async def test_semel_on_redis_goes_on_when_the_server_was_killed_and_came_back(
    tmp_path: Path, server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is away a call with effects is a 503 and nothing is sent; then what was done is replayed, and
    new calls are made, by the same process."""
    async with (
        Origin((*READ_ALL, answer(200, b"yes"))) as origin,
        proxy(tmp_path, server, origin, monkeypatch) as port,
    ):
        assert (await call(port, "POST", "/up/one", body=b"{}")).semel == "executed"
        server.kill()
        assert (await call(port, "POST", "/up/two", body=b"{}")).status == 503
        assert origin.started == 1
        server.start()
        async with asyncio.timeout(20):
            while (sent := await call(port, "POST", "/up/two", body=b"{}")).status == 503:
                await asyncio.sleep(0.05)
        assert sent.semel == "executed"
        assert (await call(port, "POST", "/up/one", body=b"{}")).semel == "replayed"
        assert origin.started == 2
