"""The directory of the embedded store: private, checked, refused with a reason."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from proxy.errors import ConfigurationError, StoreUnavailable
from proxy.store import owners
from proxy.store.embedded import EmbeddedStore
from tests.stores import calls


def modes(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory.parent)): stat.S_IMODE(path.stat().st_mode)
        for path in [directory, *directory.rglob("*")]
    }


async def test_everything_is_private(tmp_path: Path) -> None:
    """Directories 0700 and files 0600 while it runs, the cache's and the log's too, whatever the umask."""
    before = os.umask(0)
    try:
        store = await EmbeddedStore.open(tmp_path / "a" / "state")
        try:
            await store.swap(*calls.claim(store.owner), expected=0)
            await store.put_blob([b"content"])
            await store.cache_put(b"small", b"value", 60)
            await store.cache_put(b"large", b"value" * 100_000, 60)
            found = modes(tmp_path / "a" / "state")
        finally:
            await store.close()
    finally:
        os.umask(before)
    for wanted in ("ledger.sqlite", "-wal", "-shm", ".lock", ".val", "cache.db", "cache.db-wal"):
        assert any(name.endswith(wanted) for name in found), wanted
    for name, mode in found.items():
        assert mode == (0o700 if (tmp_path / "a" / name).is_dir() else 0o600), name


@pytest.mark.parametrize("used", [False, True], ids=["empty", "ours"])
async def test_an_open_directory_that_is_empty_or_ours_is_tightened(tmp_path: Path, used: bool) -> None:
    """`mkdir` makes 0755, and nobody means that."""
    directory = tmp_path / "state"
    if used:
        await (await EmbeddedStore.open(directory)).close()
        (directory / "ledger.sqlite").chmod(0o644)
    else:
        directory.mkdir()
    directory.chmod(0o755)
    await (await EmbeddedStore.open(directory)).close()
    assert set(modes(directory).values()) == {0o700, 0o600}


async def test_an_open_directory_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    """To close somebody's shared directory would break what uses it: nothing is changed."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o755)
    (directory / "letters.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"letters\.txt"):
        await EmbeddedStore.open(directory)
    assert [path.name for path in directory.iterdir()] == ["letters.txt"]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755


async def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A file where the directory should be, and a directory below one: said, with what to do."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "state", Path("/proc/semel")):
        with pytest.raises(ConfigurationError, match="--state-dir"):
            await EmbeddedStore.open(path)


async def test_a_database_that_is_none_is_refused(tmp_path: Path) -> None:
    """Not overwritten, and the message says what it means."""
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    (directory / "ledger.sqlite").write_bytes(b"not a database" * 1000)
    with pytest.raises(ConfigurationError, match="damaged"):
        await EmbeddedStore.open(directory)
    assert (directory / "ledger.sqlite").read_bytes() == b"not a database" * 1000
    assert list((directory / "owners").iterdir()) == []


@pytest.mark.parametrize("behaviour", ["refuses", "keeps nobody out"])
async def test_a_file_system_without_working_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    """Both kinds: locks that fail, and locks that succeed for everybody."""

    def flock(fd: int, operation: int) -> None:
        if behaviour == "refuses":
            raise OSError(37, "no locks available")

    monkeypatch.setattr("proxy.store.owners.fcntl.flock", flock)
    with pytest.raises(ConfigurationError):
        await EmbeddedStore.open(tmp_path / "state")


async def test_an_owner_whose_file_was_removed_may_not_act(tmp_path: Path) -> None:
    """Others take it for dead, so soon it does not send any more; and it says why it is not ready."""
    store = await EmbeddedStore.open(tmp_path / "state")
    other = await EmbeddedStore.open(tmp_path / "state")
    try:
        assert store.owns()
        await store.ping()
        (tmp_path / "state" / "owners" / f"{store.owner}.lock").unlink()
        async with asyncio.timeout(5):
            while store.owns():
                await asyncio.sleep(0.01)
        with pytest.raises(StoreUnavailable, match="restart semel: its lock in owners/ was removed"):
            await store.ping()
        assert await store.owner_is_dead(store.owner)
        assert await other.owner_is_dead(store.owner)
        assert other.owns()
        await other.ping()
    finally:
        await store.close()
        await other.close()


async def test_sends_do_not_look_at_the_lock_each_time_and_readiness_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look now and then is enough for sends; what readiness finds holds for them at once."""
    monkeypatch.setattr(owners, "LOOK_EVERY", 3600.0)
    store = await EmbeddedStore.open(tmp_path / "state")
    try:
        assert store.owns()
        (tmp_path / "state" / "owners" / f"{store.owner}.lock").unlink()
        assert all(store.owns() for _ in range(100))
        with pytest.raises(StoreUnavailable):
            await store.ping()
        assert not store.owns()
    finally:
        await store.close()
        assert not store.owns()
