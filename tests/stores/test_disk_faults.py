"""A full disk and a failing sync: nothing is acknowledged that is not there, and all works again."""

from __future__ import annotations

import asyncio
import random
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from proxy import faults
from proxy.core.intent import Call
from proxy.errors import StoreUnavailable
from proxy.store import checkpoints
from proxy.store.embedded import EmbeddedStore
from tests.stores import calls
from tests.stores.power_loss_vfs import Disk, faulty_disk


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Disk]:
    with faulty_disk(tmp_path.name) as disk:
        yield disk


@pytest.fixture
async def store(disk: Disk, tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = await EmbeddedStore.open(tmp_path / "state", vfs=tmp_path.name)
    yield store
    disk.full = disk.sync_fails = False
    await store.close()


async def claims(store: EmbeddedStore, number: int) -> list[Call]:
    """So many claims at once; those that were acknowledged."""
    made = [calls.claim(store.owner) for _ in range(number)]
    swaps = await asyncio.gather(
        *(store.swap(call, entry, expected=0) for call, entry in made), return_exceptions=True
    )
    for swap in swaps:
        assert not isinstance(swap, BaseException) or isinstance(swap, StoreUnavailable)
    return [
        call
        for (call, _), swap in zip(made, swaps, strict=True)
        if not isinstance(swap, BaseException) and swap.won
    ]


async def lose_the_readers_connection(store: EmbeddedStore) -> None:
    """So that the writer's is the last one and SQLite must recover the log from the file."""
    with pytest.raises(StoreUnavailable):
        await store._reader.submit(lambda connection: connection.close(True))


async def test_a_full_disk_refuses_writes_lets_reads_through_and_recovers(
    store: EmbeddedStore, disk: Disk
) -> None:
    """Every write says StoreUnavailable, reads go on, and with space everything works again."""
    before = await claims(store, 5)
    disk.full = True
    for _ in range(3):
        assert await claims(store, 5) == []
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await store.ping()
        assert await store.get(before[0].key) == before[0]
    disk.full = False
    after = await claims(store, 5)
    assert len(after) == 5
    await store.ping()
    for call in before + after:
        assert await store.get(call.key) == call


@pytest.mark.parametrize("which", ["-wal", ".sqlite", ""])
async def test_a_failing_sync_acknowledges_nothing_and_recovers(
    store: EmbeddedStore, disk: Disk, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the log, of the database while the log is copied, or of both; afterwards writes work again."""
    monkeypatch.setattr(checkpoints, "PAGES", 10)
    store._writer._checkpoints._due = 10
    acknowledged = await claims(store, 5)
    disk.sync_fails, disk.sync_fails_for = True, which
    for _ in range(5):
        fresh = await claims(store, 5)
        assert not fresh or which == ".sqlite"  # the log alone makes a commit durable
        acknowledged += fresh
    disk.sync_fails = False
    acknowledged += await claims(store, 5)
    assert len(acknowledged) >= 10
    for call in acknowledged:
        assert await store.get(call.key) == call


@pytest.mark.parametrize("seed", range(10))
async def test_what_is_acknowledged_after_a_failed_sync_survives_a_power_loss(
    tmp_path: Path, seed: int
) -> None:
    """The page cache lies after a failed sync: what follows must not stand behind a hole in the log."""
    print(f"seed {seed}")
    coin = random.Random(seed)
    left = tmp_path / "left"
    left.mkdir(mode=0o700)
    with faulty_disk(f"hole-{seed}") as disk:
        store = await EmbeddedStore.open(tmp_path / "state", vfs=f"hole-{seed}")
        acknowledged = await claims(store, coin.randrange(1, 10))
        await lose_the_readers_connection(store)
        disk.sync_fails = True
        assert await claims(store, coin.randrange(1, 10)) == []
        disk.sync_fails = False
        acknowledged += await claims(store, coin.randrange(1, 10))
        for name, content in disk.after_power_loss(coin).items():
            (left / name).write_bytes(content)
        await store.close()
    store = await EmbeddedStore.open(left)
    try:
        for call in acknowledged:
            assert await store.get(call.key) == call
    finally:
        await store.close()


async def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path) -> None:
    """The kernel's own refusal, through the ordinary file system: writes fail, reads work, then both do."""
    store = await EmbeddedStore.open(tmp_path / "state")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        before = await claims(store, 5)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            assert await claims(store, 5) == []
            with pytest.raises(StoreUnavailable):
                await store.put_blob([b"x" * 100_000])
            assert await store.get(before[0].key) == before[0]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        after = await claims(store, 5)
        assert len(after) == 5
        ref = await store.put_blob([b"x" * 100_000])
        assert sum([len(chunk) async for chunk in store.read_blob(ref)]) == 100_000
        assert list((tmp_path / "state/blobs/tmp").iterdir()) == []
    finally:
        await store.close()


async def test_marks_wait_for_the_disk_to_come_back(store: EmbeddedStore, disk: Disk) -> None:
    """A count that could not be written is not lost while the process lives."""
    (call,) = await claims(store, 1)
    disk.full = True
    for _ in range(3):
        store.mark_replayed(call.key, calls.NOW)
    assert await store.replays(call.key) == 0
    disk.full = False
    assert await store.replays(call.key) == 3


async def test_one_record_that_cannot_be_stored_spoils_no_other(store: EmbeddedStore) -> None:
    """A lone surrogate is not text to SQLite: that claim is refused, those beside it are not."""
    bad, entry = calls.claim("owner \ud800")
    made = [calls.claim(store.owner) for _ in range(10)]
    swaps = await asyncio.gather(
        *(store.swap(call, e, expected=0) for call, e in made[:5]),
        store.swap(bad, entry, expected=0),
        *(store.swap(call, e, expected=0) for call, e in made[5:]),
        return_exceptions=True,
    )
    assert isinstance(swaps.pop(5), StoreUnavailable)
    assert all(not isinstance(swap, BaseException) and swap.won for swap in swaps)
    assert await store.get(bad.key) is None
    assert [await store.get(call.key) for call, _ in made] == [call for call, _ in made]


async def test_an_error_after_the_commit_is_told_though_the_row_is_there(store: EmbeddedStore) -> None:
    """The ambiguous case: StoreUnavailable, and whoever looks finds the fence."""
    call, entry = calls.claim(store.owner)

    def break_off() -> None:
        raise apsw.IOError("after the commit")

    faults.arm(faults.Point.COMMITTED, break_off, times=1)
    try:
        with pytest.raises(StoreUnavailable):
            await store.swap(call, entry, expected=0)
    finally:
        faults.disarm_all()
    assert await store.get(call.key) == call
    assert (await store.swap(*calls.settle(call), expected=1)).won


async def test_a_damaged_database_is_unavailable_and_not_an_exception_of_sqlite(tmp_path: Path) -> None:
    """Whatever SQLite finds in the file, callers see StoreUnavailable."""
    store = await EmbeddedStore.open(tmp_path / "state")
    made = await claims(store, 50)
    await store.close()
    path = tmp_path / "state/ledger.sqlite"
    content = bytearray(path.read_bytes())
    content[8192:] = random.Random(1).randbytes(len(content) - 8192)
    path.write_bytes(content)
    store = None  # type: ignore[assignment]
    try:
        store = await EmbeddedStore.open(tmp_path / "state")
    except Exception as error:
        assert type(error).__name__ == "ConfigurationError"  # noqa: PT017 (either place is right)
        return
    try:
        with pytest.raises(StoreUnavailable):
            await store.get(made[0].key)
        with pytest.raises(StoreUnavailable):
            await store.swap(*calls.claim(store.owner), expected=0)
    finally:
        await store.close()
