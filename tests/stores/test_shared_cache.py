"""The shared cache: bytes only, never unpickled, never the failure of a call."""

from __future__ import annotations

import asyncio
import os
import pickle
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import diskcache
import pytest

from proxy.store.shared_cache import MIN_FILE_SIZE, SharedCache


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[SharedCache]:
    cache = SharedCache(tmp_path / "cache", limit=1 << 30)
    yield cache
    await cache.close()


class Malicious:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("size", [0, MIN_FILE_SIZE], ids=["in the row", "in a file"])
async def test_a_pickle_written_by_somebody_else_is_a_miss_and_never_run(
    tmp_path: Path, cache: SharedCache, size: int
) -> None:
    """A real malicious pickle under a real key; diskcache itself would run it."""
    trap = tmp_path / "executed"
    key = b"k" * 16
    await cache.put(b"other", b"value", 60)  # makes the database
    with diskcache.Cache(tmp_path / "cache", disk_min_file_size=MIN_FILE_SIZE) as stranger:
        stranger.set(key, [Malicious(trap), "x" * size])
    assert await cache.get(key) is None
    assert not trap.exists()
    with diskcache.Cache(tmp_path / "cache") as victim:  # the test of the test
        victim.get(key)
    assert trap.exists()
    await cache.put(key, b"ours", 60)
    assert await cache.get(key) == b"ours"
    assert await cache.get(b"other") == b"value"


async def test_our_row_turned_into_a_pickle_is_a_miss(tmp_path: Path, cache: SharedCache) -> None:
    """Somebody changes the mode of a row that we wrote."""
    trap = tmp_path / "executed"
    await cache.put(b"k" * 16, b"value", 60)
    with closing(sqlite3.connect(tmp_path / "cache" / "cache.db")) as connection, connection:
        connection.execute("UPDATE Cache SET mode = 4, value = ?", (pickle.dumps(Malicious(trap)),))
    connection.close()
    assert await cache.get(b"k" * 16) is None
    assert not trap.exists()


async def test_a_file_name_that_leads_elsewhere_is_a_miss(tmp_path: Path, cache: SharedCache) -> None:
    """A row cannot make us read another file."""
    (tmp_path / "secret").write_bytes(b"secret")
    await cache.put(b"k" * 16, b"v" * MIN_FILE_SIZE, 60)
    with closing(sqlite3.connect(tmp_path / "cache" / "cache.db")) as connection, connection:
        connection.execute("UPDATE Cache SET filename = '../secret'")
    connection.close()
    assert await cache.get(b"k" * 16) is None


@pytest.mark.parametrize("size", [100, MIN_FILE_SIZE * 2], ids=["in the row", "in a file"])
async def test_a_damaged_value_is_a_miss(tmp_path: Path, cache: SharedCache, size: int) -> None:
    """A changed byte is noticed, wherever the value lies; so is a missing file."""
    await cache.put(b"k" * 16, b"v" * size, 60)
    files = list((tmp_path / "cache").rglob("*.val"))
    if files:
        content = bytearray(files[0].read_bytes())
        content[50] ^= 1
        files[0].write_bytes(content)
    else:
        with closing(sqlite3.connect(tmp_path / "cache" / "cache.db")) as connection, connection:
            connection.execute("UPDATE Cache SET value = CAST(replace(value, 'v', 'w') AS BLOB)")
        connection.close()
    assert await cache.get(b"k" * 16) is None
    for file in files:
        file.unlink()
    assert await cache.get(b"k" * 16) is None


@pytest.mark.parametrize("damage", ["garbage", "no tables", "bad settings"])
async def test_a_corrupted_cache_database_is_made_anew(
    tmp_path: Path, cache: SharedCache, damage: str
) -> None:
    """Found at opening or in use: a miss, and the next put works."""
    await cache.put(b"k" * 16, b"value", 60)
    await cache.close()
    path = tmp_path / "cache" / "cache.db"
    if damage == "garbage":
        path.write_bytes(b"garbage" * 5000)
    else:
        statement = (
            "DROP TABLE Cache" if damage == "no tables" else "INSERT INTO Settings VALUES ('disk_x', 1)"
        )
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)
        connection.close()
    again = SharedCache(tmp_path / "cache", limit=1 << 30)
    try:
        assert await again.get(b"k" * 16) is None
        await again.put(b"k" * 16, b"new", 60)
        assert await again.get(b"k" * 16) == b"new"
    finally:
        await again.close()


async def test_a_database_damaged_under_us_is_a_miss_and_made_anew(
    tmp_path: Path, cache: SharedCache
) -> None:
    """While it is open, not only at the start."""
    await cache.put(b"k" * 16, b"value", 60)
    with closing(sqlite3.connect(tmp_path / "cache" / "cache.db")) as connection, connection:
        connection.execute("DROP TABLE Cache")
    connection.close()
    assert await cache.get(b"k" * 16) is None
    await cache.put(b"k" * 16, b"new", 60)
    assert await cache.get(b"k" * 16) == b"new"


async def test_what_does_not_fit_is_evicted_and_counted(tmp_path: Path) -> None:
    """The limit holds, the newest stay, and the count says how many went."""
    cache = SharedCache(tmp_path / "cache", limit=2 << 20)
    try:
        for n in range(60):
            await cache.put(b"%016d" % n, bytes(100_000), 60)
        kept = [n for n in range(60) if await cache.get(b"%016d" % n) is not None]
        assert kept
        assert kept[-1] == 59
        assert len(kept) + cache.evictions == 60
        size = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.val"))
        assert size <= 2 << 20
    finally:
        await cache.close()


async def test_an_expired_value_is_not_counted_as_evicted(tmp_path: Path) -> None:
    """Eviction is for want of room."""
    cache = SharedCache(tmp_path / "cache", limit=2 << 20)
    try:
        for n in range(19):
            await cache.put(b"%016d" % n, bytes(100_000), -1)
        for n in range(3):
            await cache.put(b"new %012d" % n, bytes(100_000), 60)
        assert cache.evictions == 0
        assert await cache.get(b"new %012d" % 0) is not None
    finally:
        await cache.close()


async def test_a_cache_that_cannot_be_opened_is_a_miss(tmp_path: Path) -> None:
    """A file where the directory should be: no put, no get, no error."""
    (tmp_path / "cache").write_text("in the way")
    cache = SharedCache(tmp_path / "cache", limit=1 << 20)
    await cache.put(b"k" * 16, b"value", 60)
    assert await cache.get(b"k" * 16) is None
    await cache.close()


async def test_a_locked_cache_is_a_miss_within_its_patience(
    tmp_path: Path, cache: SharedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process holds the lock: a put is dropped, and the caller does not wait for it."""
    monkeypatch.setattr("proxy.store.shared_cache.PATIENCE", 0.1)
    await cache.put(b"k" * 16, b"value", 60)
    connection = sqlite3.connect(tmp_path / "cache" / "cache.db", isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        async with asyncio.timeout(5):
            await cache.put(b"k" * 16, b"other", 60)
    finally:
        connection.execute("ROLLBACK")
        connection.close()


async def test_a_second_cache_of_this_process_takes_no_lock_from_the_first(tmp_path: Path) -> None:
    """Locks on a file are the process's: whoever closes it gives up those of all."""
    first = SharedCache(tmp_path / "cache", 1 << 30)
    await first.put(b"k", b"v", 60.0)
    before = _locks_on(tmp_path / "cache" / "cache.db")
    assert before, "the first has none, so this shows nothing"
    second = SharedCache(tmp_path / "cache", 1 << 30)
    assert await second.get(b"k") == b"v"
    assert _locks_on(tmp_path / "cache" / "cache.db") >= before
    await second.close()
    await first.close()


def _locks_on(path: Path) -> int:
    """How many the kernel knows of, by this process."""
    inode, own = f":{path.stat().st_ino}", str(os.getpid())
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sum(words[-4] == own and words[-3].endswith(inode) for words in lines)
