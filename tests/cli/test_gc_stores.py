"""`semel gc --dry-run` on every store: it changes nothing, and says what `semel gc` then does."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.cli.gc import SCHEMA
from proxy.clock import SystemClock
from proxy.collecting import collectable, collecting
from proxy.core.intent import Answer, Call, Entry, State
from proxy.core.intent import Place as Lies
from proxy.store.archive import Kind
from proxy.store.base import Collected, Store
from proxy.store.copying import _pages
from proxy.store.memory import MemoryStore
from proxy.store.opening import Place, open_source
from tests import ambient
from tests.cli.command import semel
from tests.stores import calls
from tests.stores.whole import age_all, assert_whole, blobs_in

DAY = 86400.0
RETENTION = 30 * DAY
SIZE = 9
TENANT = "default"


async def fill(store: Store) -> Collected:
    """What is over and what is not, of every kind. What of it will go."""
    long_ago, lately = time.time() - 40 * DAY, time.time() - 60
    bodies = [await store.put_blob([b"content %d" % n]) for n in range(7)]
    _unnamed, alone, in_run, of_two, of_doubt, of_living, _young = (body.digest for body in bodies)
    for at, blob in ((long_ago, alone), (long_ago, of_two), (long_ago, ""), (lately, of_two)):
        call, entry = calls.claim(store.owner, at=at)
        await store.swap(call, entry, expected=0)
        await store.swap(*answered(calls.settle(call, at=at), blob), expected=1)
    doubtful, entry = calls.claim(store.owner, at=long_ago)
    doubtful = replace(doubtful, request_blob=of_doubt)
    await store.swap(doubtful, entry, expected=0)
    await store.swap(*calls.lose(doubtful), expected=1)
    for name, at, blob in (("old", long_ago, in_run), ("living", lately, of_living)):
        await store.open_run(TENANT, name, "a1", at)
        call, entry = calls.in_run(store.owner, name, at=at)
        await store.swap(call, entry, expected=0, served=calls.serving(call, at=at))
        settled, entry = calls.settle(call, at=at)
        await store.swap(*answered((replace(settled, expires_at=None), entry), blob), expected=1)
    await age_all(store)
    await store.put_blob([b"content 6"])  # young again
    assert await store.run_sums(TENANT, "old")
    sizes = sum(len(part) for part in (b"sealed request", b"sealed head")) * 4 + len(b"sealed body")
    return Collected(calls=4, runs=1, blobs=3, bytes=sizes + 3 * SIZE, more=False)


def answered(step: tuple[Call, Entry], blob: str) -> tuple[Call, Entry]:
    call, entry = step
    if not blob:
        return step
    answer = Answer(status=200, size=SIZE, recorded_at=1.0, place=Lies.BLOB, blob=blob, head=b"sealed head")
    return replace(call, answer=answer), entry


async def everything(store: Store, state: Path) -> list[object]:
    """All records as a copy would read them, and all bodies."""
    place = Place(store=ambient.store(), state=state)
    source = await open_source(place)
    try:
        kinds = [kind for kind in Kind if kind is not Kind.BLOBS]
        read = [[dump.facts() async for page in _pages(source, kind) for dump in page] for kind in kinds]
        return [*read, await blobs_in(store)]
    finally:
        await source.close()


@pytest.mark.usefixtures("any_store")
async def test_a_dry_run_changes_nothing_and_says_what_gc_then_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside a process that has the store open, by `--state-dir` or by `--store`."""
    monkeypatch.chdir(tmp_path)
    state = tmp_path / "state"
    where = ambient.options() or ["--state-dir", str(state)]
    store = await ambient.opened(state)
    try:
        goes = await fill(store)
        before = await everything(store, state)
        would = await asyncio.to_thread(semel, capsys, "gc", "--dry-run", "--json", *where)
        assert await everything(store, state) == before
        figures = {"calls": goes.calls, "runs": goes.runs, "blobs": goes.blobs, "bytes": goes.bytes}
        assert would.document(SCHEMA) == {"dry_run": True, **figures}
        said = await asyncio.to_thread(semel, capsys, "gc", "--dry-run", *where)
        assert said.out == (
            f"would remove (calls: 4, runs: 1, blobs: 3, bytes: {goes.bytes})\n"
            "runs are kept for 30d after their last activity (runs.retention)\n"
        )
        did = await asyncio.to_thread(semel, capsys, "gc", "--json", *where)
        assert did.document(SCHEMA) == {"dry_run": False, **figures}
        assert await everything(store, state) != before
        assert await assert_whole(store, request_size=SIZE) == 3
        assert (await store.census()).by_state[State.IN_DOUBT] == 1
        again = await asyncio.to_thread(semel, capsys, "gc", "--dry-run", *where)
        assert again.out == "nothing to remove\n"
    finally:
        await store.close()


async def test_the_same_of_a_store_in_memory() -> None:
    """Which no command reaches."""
    store = MemoryStore()
    goes = await fill(store)
    before = repr(store.world)
    assert await collectable(store, SystemClock(), RETENTION) == goes
    assert repr(store.world) == before
    totals = [total async for total in collecting(store, SystemClock(), RETENTION)]
    assert totals[-1] == goes
    assert await collectable(store, SystemClock(), RETENTION) == Collected(
        calls=0, blobs=0, bytes=0, more=False
    )
