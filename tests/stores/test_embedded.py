"""The embedded store keeps the contract; and what is its own: threads, locks, marks, housekeeping."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from proxy.errors import StoreUnavailable
from proxy.store import checkpoints, premises, schema, statements
from proxy.store.base import BlobRef, Swap
from proxy.store.database import FILE_NAME
from proxy.store.embedded import MARKS_AFTER, EmbeddedStore
from proxy.store.unnamed import UNTOUCHED
from tests.stores import calls
from tests.stores.budget_contract import BudgetContract
from tests.stores.contract import StoreContract
from tests.stores.run_contract import RunContract


class TestEmbedded(BudgetContract, RunContract, StoreContract):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "state"

    async def open(self) -> EmbeddedStore:
        return await EmbeddedStore.open(self.directory)

    async def expire(self, key: bytes) -> None:
        execute(self.directory, "UPDATE calls SET expires_at = 1.0 WHERE key = ?", key)

    async def age(self, blob: BlobRef) -> None:
        past = time.time() - UNTOUCHED - 1
        os.utime(self.directory / "blobs" / blob.digest[:2] / blob.digest, (past, past))


def execute(directory: Path, statement: str, *bindings: object) -> None:
    """Past the store, in the file."""
    connection = apsw.Connection(str(directory / FILE_NAME))
    try:
        connection.execute(statement, bindings)
    finally:
        connection.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = await EmbeddedStore.open(tmp_path / "state")
    yield store
    await store.close()


def stored_replays(tmp_path: Path, key: bytes) -> int:
    """What is on the disk, not what the store would say."""
    connection = apsw.Connection(str(tmp_path / "state" / FILE_NAME))
    try:
        return statements.replays(connection, key)
    finally:
        connection.close()


async def claimed_keys(store: EmbeddedStore, number: int) -> list[bytes]:
    made = [calls.claim(store.owner) for _ in range(number)]
    await asyncio.gather(*(store.swap(call, entry, expected=0) for call, entry in made))
    return [call.key for call, _ in made]


async def test_reads_do_not_wait_for_a_writer_and_writes_wait_only_so_long(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    """Another process sits in a write transaction: reads are answered, a write gives up in time."""
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    store._writer._patience.bound = 0.05
    blocker = apsw.Connection(str(tmp_path / "state" / FILE_NAME))
    try:
        blocker.execute("BEGIN IMMEDIATE")
        assert await store.get(call.key) == call
        with pytest.raises(StoreUnavailable, match="another process"):
            await store.swap(*calls.settle(call), expected=1)
        assert await store.get(call.key) == call
        blocker.execute("ROLLBACK")
    finally:
        blocker.close()
    assert (await store.swap(*calls.settle(call), expected=1)).won


async def test_marks_reach_the_disk_by_themselves_within_a_second(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    """No other write carries them; many keys take several portions."""
    keys = await claimed_keys(store, 1000)
    assert MARKS_AFTER < 1.0
    for key in keys:
        store.mark_replayed(key, calls.NOW)
        store.mark_replayed(key, calls.NOW)
    async with asyncio.timeout(10):
        while stored_replays(tmp_path, keys[-1]) != 2:
            await asyncio.sleep(0.02)
    assert stored_replays(tmp_path, keys[0]) == 2


async def test_marks_are_written_at_close(tmp_path: Path) -> None:
    """All of them, however many."""
    store = await EmbeddedStore.open(tmp_path / "state")
    keys = await claimed_keys(store, 700)
    for key in keys:
        store.mark_replayed(key, calls.NOW)
    await store.close()
    assert [stored_replays(tmp_path, key) for key in (keys[0], keys[350], keys[-1])] == [1, 1, 1]


async def test_close_empties_the_log_into_the_database(tmp_path: Path) -> None:
    """What is left is one file that can be copied."""
    store = await EmbeddedStore.open(tmp_path / "state")
    await store.swap(*calls.claim(store.owner), expected=0)
    assert (tmp_path / "state" / f"{FILE_NAME}-wal").stat().st_size > 0
    await store.close()
    assert not (tmp_path / "state" / f"{FILE_NAME}-wal").exists()
    assert list((tmp_path / "state" / "owners").iterdir()) == []


async def test_the_log_does_not_grow_without_end(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is copied into the database and starts anew, also while somebody reads all the time."""
    monkeypatch.setattr(checkpoints, "PAGES", 50)
    store._writer._checkpoints._due = 50
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    reading = True

    async def read() -> None:
        while reading:
            await store.get(call.key)

    readers = [asyncio.create_task(read()) for _ in range(4)]
    lengths: list[int] = []
    try:
        for _ in range(100):
            await asyncio.gather(*(store.swap(*calls.claim(store.owner), expected=0) for _ in range(4)))
            lengths.append(store._writer._log_pages)
    finally:
        reading = False
        await asyncio.gather(*readers)
    assert 50 <= max(lengths) < 200


@pytest.mark.parametrize("trouble", ["", "a part of it", "little room"])
async def test_the_log_has_its_room_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """And is none before something is in it: whoever opens the directory next, also after a crash, reads it
    as the empty log that it is."""
    if trouble == "little room":
        disk = os.statvfs(tmp_path)
        little = SimpleNamespace(f_bavail=9 * premises.ROOM // disk.f_frsize, f_frsize=disk.f_frsize)
        monkeypatch.setattr(os, "fstatvfs", lambda _: little)
    elif trouble:

        def a_part(fd: int, *_: object) -> None:
            os.ftruncate(fd, 8_000_000)
            raise OSError(errno.ENOSPC, "no space left on device")

        monkeypatch.setattr(os, "posix_fallocate", a_part)
    first = await EmbeddedStore.open(tmp_path / "state")
    log = tmp_path / "state" / f"{FILE_NAME}-wal"
    room = log.stat().st_size
    assert room == (0 if trouble else premises.ROOM)
    left_out = shutil.ignore_patterns("*-shm", "owners")
    shutil.copytree(tmp_path / "state", tmp_path / "crashed", ignore=left_out)
    assert schema._peek_log(tmp_path / "crashed" / log.name) is None
    other = await EmbeddedStore.open(tmp_path / "state")  # beside a living one too
    call, entry = calls.claim(first.owner)
    for store in (first, other):
        await store.swap(*calls.claim(store.owner), expected=0)
    assert (await first.swap(call, entry, expected=0)).won
    assert await other.get(call.key) == call
    assert log.stat().st_size >= room
    await other.close()
    await first.close()
    after_crash = await EmbeddedStore.open(tmp_path / "crashed")
    assert await after_crash.get(call.key) is None
    assert (await after_crash.swap(*calls.claim(after_crash.owner), expected=0)).won
    await after_crash.close()


async def test_a_long_read_elsewhere_does_not_stop_writes(
    tmp_path: Path, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person's export holds an old view: the log grows, nobody waits, and it is cut back afterwards."""
    monkeypatch.setattr(checkpoints, "PAGES", 20)
    store._writer._checkpoints._due = 20
    await store.swap(*calls.claim(store.owner), expected=0)
    file = tmp_path / "state" / f"{FILE_NAME}-wal"
    export = apsw.Connection(str(tmp_path / "state" / FILE_NAME))
    try:
        export.execute("BEGIN; SELECT count(*) FROM calls").fetchall()
        for _ in range(30):
            assert (await store.swap(*calls.claim(store.owner), expected=0)).won
        assert file.stat().st_size > 30 * 4096
        assert export.execute("SELECT count(*) FROM calls").fetchall() == [(1,)]
        export.execute("COMMIT")
    finally:
        export.close()
    grown = store._writer._log_pages
    async with asyncio.timeout(10):
        while store._writer._log_pages >= grown:
            assert (await store.swap(*calls.claim(store.owner), expected=0)).won


async def test_a_commit_of_this_process_wakes_its_watchers_itself(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a look at the database: the answer to the writer is enough, even when that has left."""
    monkeypatch.setattr(store._reader, "_look", lambda _: None)
    call, entry = calls.claim(store.owner)
    waiting = asyncio.create_task(store.changed(call.key, 0, 10.0))
    await store.get(call.key)  # the watcher's own look has been answered before this one
    leaving = asyncio.create_task(store.swap(call, entry, expected=0))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await waiting


async def test_nobody_watching_means_no_looking(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader's thread sleeps until there is a job; with a watcher it looks by itself."""
    looks = 0

    def look(_: apsw.Connection) -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(store._reader, "_look", look)
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    await asyncio.sleep(0.05)
    assert looks == 0
    assert not await store.changed(call.key, 1, 0.1)
    assert looks > 3
    seen = looks
    await store.get(call.key)
    await asyncio.sleep(0.05)
    assert looks <= seen + 1  # one may have been under way


async def test_a_row_that_cannot_be_read_hurts_nobody_else(tmp_path: Path, store: EmbeddedStore) -> None:
    """A damaged row is StoreUnavailable for who asks for it; others in the same batch are answered."""
    good, entry = calls.claim(store.owner)
    await store.swap(good, entry, expected=0)
    bad, entry = calls.claim(store.owner)
    await store.swap(bad, entry, expected=0)
    execute(tmp_path / "state", "UPDATE calls SET record_version = 99 WHERE key = ?", bad.key)
    answers = await asyncio.gather(
        *(store.get(key) for key in (good.key, bad.key, good.key)), return_exceptions=True
    )
    assert answers[0] == answers[2] == good
    assert isinstance(answers[1], StoreUnavailable)
    assert "newer" in str(answers[1])


DAMAGE = (
    "UPDATE calls SET record_version = 99 WHERE key = ?",
    "UPDATE calls SET expires_at = 1.0 WHERE key = ?",
    "UPDATE calls SET tool = CAST(x'ff' AS TEXT) WHERE key = ?",
    "UPDATE calls SET owner = CAST(x'ff' AS TEXT) WHERE key = ?",
    "UPDATE calls SET owner = CAST(x'fe' AS TEXT) WHERE key = ?",
)


async def test_orphans_that_cannot_be_read_do_not_hide_the_others(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    """Of a newer version, against the rules, not even text: each is named with its reason."""
    dead = "1-1-0000000000000000"
    made = [calls.claim(dead) for _ in range(len(DAMAGE) + 2)]
    for call, entry in made:
        await store.swap(call, entry, expected=0)
    (first, _), *bad, (last, _) = made
    for (call, _), damage in zip(bad, DAMAGE, strict=True):
        execute(tmp_path / "state", damage, call.key)
    orphans = await store.orphans()
    assert orphans.calls == [first, last]
    assert orphans.unreadable.keys() == {call.id for call, _ in bad}
    assert "newer" in orphans.unreadable[bad[0][0].id]
    assert all(orphans.unreadable.values())


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_row_that_cannot_be_read_spoils_no_batch(
    tmp_path: Path, store: EmbeddedStore, damage: str
) -> None:
    """Neither of reads nor of writes, and no connection is given up for it."""
    bad, entry = calls.claim(store.owner)
    await store.swap(bad, entry, expected=0)
    execute(tmp_path / "state", damage, bad.key)
    connections = store._reader._connection, store._writer._connection
    good = [calls.claim(store.owner) for _ in range(2)]
    answers = await asyncio.gather(
        store.swap(*good[0], expected=0),
        store.swap(bad, entry, expected=0),  # loses, and would be shown the row
        store.swap(*good[1], expected=0),
        store.get(os.urandom(16)),
        store.get(bad.key),
        store.get(os.urandom(16)),
        return_exceptions=True,
    )
    assert answers[0] == answers[2] == Swap(True)
    assert answers[3] is answers[5] is None
    assert isinstance(answers[1], StoreUnavailable)
    assert isinstance(answers[4], StoreUnavailable)
    assert (store._reader._connection, store._writer._connection) == connections
