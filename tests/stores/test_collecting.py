"""Listing and collecting in the embedded store: beside the others' work, past damage, in portions."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from proxy.clock import SystemClock
from proxy.core.intent import Answer, Place, State
from proxy.errors import StoreUnavailable
from proxy.ledger import Ledger
from proxy.observe import Deaf
from proxy.recovery import sweep_once
from proxy.store import statements
from proxy.store.base import Collected, Page, Query
from proxy.store.codec import Codec
from proxy.store.embedded import EmbeddedStore
from tests.inside import until
from tests.stores import calls
from tests.stores.contract import AFTER_ALL
from tests.stores.test_embedded import DAMAGE, execute
from tests.stores.test_unnamed import age


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = await EmbeddedStore.open(tmp_path / "state")
    yield store
    await store.close()


async def done(store: EmbeddedStore, body: bytes = b"sealed body") -> bytes:
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    await store.swap(*calls.settle(call, body), expected=1)
    return call.key


async def test_rows_that_cannot_be_read_do_not_hide_the_others(tmp_path: Path, store: EmbeddedStore) -> None:
    """Each is named with its reason, on the page where it belongs; the pages go on behind it."""
    made = [calls.claim(store.owner) for _ in range(len(DAMAGE) + 2)]
    for call, entry in made:
        await store.swap(call, entry, expected=0)
    (first, _), *bad, (last, _) = made
    for (call, _), damage in zip(bad, DAMAGE, strict=True):
        execute(tmp_path / "state", damage, call.key)
    whole = await store.find(Query())
    assert whole.calls == [last, first]
    assert whole.unreadable.keys() == {call.id for call, _ in bad}
    assert "newer" in whole.unreadable[bad[0][0].id]
    page = await store.find(Query(limit=2))
    assert page == Page(calls=[last], next=page.next, unreadable=page.unreadable)
    assert page.unreadable.keys() == {bad[-1][0].id}
    rest = await store.find(Query(after=page.next))
    assert rest.calls == [first]
    assert len(rest.unreadable) == len(bad) - 1


@pytest.mark.parametrize("damage", [DAMAGE[0], DAMAGE[2]], ids=["newer", "no text"])
async def test_a_sweep_passes_over_what_cannot_be_read(
    tmp_path: Path, store: EmbeddedStore, damage: str
) -> None:
    """A question past its time lapses, and a doubt is known from now on, whatever lies beside them."""
    questions, doubtful = [calls.ask() for _ in range(3)], []
    for question, entry in questions:
        await store.swap(question, entry, expected=0)
    for call, entry in [calls.claim(store.owner) for _ in range(3)]:
        await store.swap(call, entry, expected=0)
        lost, entry = calls.lose(call)
        await store.swap(lost, entry, expected=1)
        doubtful.append(lost)
    for key in (questions[1][0].key, doubtful[1].key):
        execute(tmp_path / "state", damage, key)
    clock = SystemClock()
    ledger = Ledger(store=store, codec=Codec(), clock=clock, observer=Deaf(), inline_body=1024)
    await sweep_once(store, ledger, Deaf())
    swept = clock.monotonic()
    for n in (0, 2):
        question = await store.get(questions[n][0].key)  # type: ignore[assignment]
        assert question.state is State.RELEASED
        assert ledger.known_doubts.since(doubtful[n]) <= swept
    assert ledger.known_doubts.since(doubtful[1]) > swept
    waiting = await store.find(Query(state=State.AWAITING_APPROVAL))
    assert waiting.unreadable.keys() == {questions[1][0].id}


@pytest.mark.parametrize("question", ["find", "expired_in_all"])
async def test_a_long_walk_keeps_nobody_waiting(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """While a page is found, or a dry run counts, others read, write and wait as ever."""
    walking, end = threading.Event(), threading.Event()
    real = getattr(statements, question)

    def walk(*args: Any) -> Any:
        walking.set()
        assert end.wait(30)
        return real(*args)

    monkeypatch.setattr(statements, question, walk)
    task: asyncio.Future[Page | Collected] = asyncio.ensure_future(
        store.find(Query()) if question == "find" else store.collect(AFTER_ALL, dry_run=True)
    )
    try:
        await until(walking.is_set)
        key = await done(store)
        row = await store.get(key)
        assert row is not None
        assert row.state is State.DONE
        assert await store.changed(key, 0, 10.0)
        assert (await store.census()).by_state[State.DONE] == 1
        assert not task.done()
    finally:
        end.set()
    found = await task
    assert (len(found.calls) if isinstance(found, Page) else found.calls) == 1


async def test_a_question_that_cannot_be_asked_is_the_stores_trouble(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores raise StoreUnavailable and nothing else."""

    def broken(*_: object) -> None:
        raise apsw.IOError("disk I/O error")

    monkeypatch.setattr(statements, "find", broken)
    with pytest.raises(StoreUnavailable, match="the disk reports an error"):
        await store.find(Query())


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_settled_row_that_cannot_be_read_is_collected_all_the_same(
    tmp_path: Path, store: EmbeddedStore, damage: str
) -> None:
    """Its time is over, whatever the rest of it says."""
    key = await done(store)
    execute(tmp_path / "state", damage, key)
    assert (await store.collect(AFTER_ALL)).calls == 1
    assert (await store.census()).by_state == dict.fromkeys(State, 0)


async def test_a_portion_is_small_also_in_bytes(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large rows go a few at a time, but always at least one; small ones up to the limit."""
    monkeypatch.setattr(statements, "MOST_BYTES", 250_000)
    for size in (400_000, 100_000, 100_000, 10, 10, 10, 10):
        await done(store, os.urandom(size))
    portions = [await store.collect(AFTER_ALL, limit=3) for _ in range(3)]
    assert [(each.calls, each.more) for each in portions] == [(1, True), (3, True), (3, False)]


async def test_who_watches_is_woken_by_the_removal_itself(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process without a look at the database."""
    key = await done(store)
    monkeypatch.setattr(store._reader, "_look", lambda _: None)
    waiting = asyncio.create_task(store.changed(key, 2, 10.0))
    await store.get(key)  # the watcher's own look has been answered before this one
    await store.collect(AFTER_ALL)
    assert await waiting


async def test_marks_that_come_late_have_no_place(tmp_path: Path, store: EmbeddedStore) -> None:
    """Of this process or another: what was counted for a call that is gone is not the next one's."""
    other = await EmbeddedStore.open(tmp_path / "state")
    try:
        key = await done(store)
        store.mark_replayed(key, calls.NOW)
        collected, swapped = await asyncio.gather(  # in one transaction, the marks come after it
            store.collect(AFTER_ALL), store.swap(*calls.claim(store.owner, key, at=AFTER_ALL), expected=0)
        )
        assert collected.calls == 1
        assert swapped.won
        assert await store.replays(key) == 0
        key = await done(store)
        other.mark_replayed(key, calls.NOW)
        assert (await store.collect(AFTER_ALL)).calls == 1
        assert await other.replays(key) == 0
    finally:
        await other.close()
    connection = apsw.Connection(str(tmp_path / "state" / "ledger.sqlite"))
    try:
        assert connection.execute("SELECT count(*) FROM marks").fetchall() == [(0,)]
    finally:
        connection.close()


async def test_blobs_wait_until_no_call_is_left_to_go(tmp_path: Path, store: EmbeddedStore) -> None:
    """So that one round over them meets everything; the census knows that they are gone."""
    for n in range(3):
        blob = await store.put_blob([b"%d" % n * 1000])
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        settled, entry = calls.settle(call)
        answer = Answer(status=200, size=1000, recorded_at=1.0, place=Place.BLOB, blob=blob.digest)
        await store.swap(replace(settled, answer=answer), entry, expected=1)
        age(tmp_path / "state" / "blobs" / blob.digest[:2] / blob.digest)
    assert store._blobs._bytes == 3000  # read without asking: asking begins a new count
    portions = [await store.collect(AFTER_ALL, limit=2) for _ in range(3)]
    assert [(each.calls, each.blobs, each.more) for each in portions] == [
        (2, 0, True), (1, 2, True), (0, 1, False),
    ]  # fmt: skip
    assert store._blobs._bytes == 0
    assert list((tmp_path / "state" / "blobs").glob("??/*")) == []
