"""Blobs: durable before they are named, replaced when damaged, never given out half or wrong."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy import faults
from proxy.errors import StoreUnavailable
from proxy.store import blobs as module
from proxy.store.base import BlobLost, BlobRef
from proxy.store.blobs import CHUNK, Blobs
from tests import ambient
from tests.inside import until
from tests.mishaps import Damage, damage_blob


@pytest.fixture
async def blobs(tmp_path: Path) -> AsyncIterator[Blobs]:
    blobs = Blobs(tmp_path / "blobs")
    yield blobs
    faults.disarm_all()
    await blobs.close()


def path_of(tmp_path: Path, ref: BlobRef) -> Path:
    return tmp_path / "blobs" / ref.digest[:2] / ref.digest


async def read(blobs: Blobs, ref: BlobRef) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(ref)])


async def test_everything_is_synced_in_order(
    tmp_path: Path, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content, rename, then the directories: a name that is there after a power loss has its content."""
    steps: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        steps.append(Path(f"/proc/self/fd/{fd}").resolve().relative_to(tmp_path).as_posix())
        real(fd)

    monkeypatch.setattr("proxy.store.blobs.os.fsync", fsync)
    faults.arm(faults.Point.BLOB_WRITTEN, lambda: steps.append("written"))
    faults.arm(faults.Point.BLOB_RENAMED, lambda: steps.append("renamed"))
    ref = await blobs.put([b"content"])
    assert steps[0].startswith("blobs/tmp/")
    assert steps[1:] == ["written", "blobs", "renamed", f"blobs/{ref.digest[:2]}"]


@pytest.mark.parametrize("point", [faults.Point.BLOB_WRITTEN, faults.Point.BLOB_RENAMED])
async def test_a_put_that_fails_leaves_no_half_blob(
    tmp_path: Path, blobs: Blobs, point: faults.Point
) -> None:
    """The error is StoreUnavailable; no temporary file stays; the next put succeeds."""

    def fail() -> None:
        raise OSError(28, "No space left on device")

    faults.arm(point, fail, times=1)
    with pytest.raises(StoreUnavailable, match="No space"):
        await blobs.put([b"content"])
    assert list((tmp_path / "blobs" / "tmp").iterdir()) == []
    assert await read(blobs, await blobs.put([b"content"])) == b"content"


@pytest.mark.parametrize("where", [0, CHUNK + 5, 3 * CHUNK - 1], ids=["first", "middle", "last"])
async def test_a_flipped_byte_withholds_the_last_chunk(tmp_path: Path, blobs: Blobs, where: int) -> None:
    """Whichever byte it is, the body never ends as if it were whole."""
    content = os.urandom(3 * CHUNK)
    ref = await blobs.put([content])
    damaged = bytearray(content)
    damaged[where] ^= 1
    path_of(tmp_path, ref).write_bytes(damaged)
    got = b""
    with pytest.raises(BlobLost):
        async for chunk in blobs.read(ref):
            got += chunk
    assert len(got) <= 2 * CHUNK


@pytest.mark.parametrize("content", [b"short", b"same size!", b""])
async def test_a_damaged_blob_is_replaced_when_it_is_put_again(
    tmp_path: Path, blobs: Blobs, content: bytes
) -> None:
    """Whether its size shows the damage or not."""
    ref = await blobs.put([b"ten bytes!"])
    path_of(tmp_path, ref).write_bytes(content)
    with pytest.raises(BlobLost):
        await read(blobs, ref)
    assert await blobs.put([b"ten bytes!"]) == ref
    assert await read(blobs, ref) == b"ten bytes!"


@pytest.mark.usefixtures("any_store")
async def test_in_every_store_a_damaged_blob_is_replaced_when_it_is_put_again(tmp_path: Path) -> None:
    """Also if nobody has read it since: whoever puts it names a whole one."""
    store = await ambient.opened(tmp_path)
    try:
        content = [b"a" * 300_000, b"b" * 300_000]
        ref = await store.put_blob(content)
        for damage in Damage:
            damage_blob(ambient.store(), tmp_path, damage)
            assert await store.put_blob(content) == ref
            assert b"".join([part async for part in store.read_blob(ref)]) == b"".join(content), damage
    finally:
        await store.close()


async def test_reuse_makes_a_blob_young_again(tmp_path: Path, blobs: Blobs) -> None:
    """So that it is not collected between the put and the row that names it."""
    ref = await blobs.put([b"content"])
    os.utime(path_of(tmp_path, ref), (1, 1))
    await blobs.put([b"content"])
    assert path_of(tmp_path, ref).stat().st_mtime > time.time() - 60


async def test_many_at_once_with_the_same_content_make_one_blob(tmp_path: Path, blobs: Blobs) -> None:
    """Each has a temporary file of its own; the last rename wins and changes nothing."""
    content = os.urandom(100_000)
    refs = await asyncio.gather(*(blobs.put([content]) for _ in range(20)))
    assert len(set(refs)) == 1
    assert await read(blobs, refs[0]) == content
    assert len(list((tmp_path / "blobs" / refs[0].digest[:2]).iterdir())) == 1


async def test_a_cancelled_put_is_finished(tmp_path: Path, blobs: Blobs) -> None:
    """The waiter leaves; the blob is whole or not there at all."""
    content = os.urandom(1_000_000)

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(content), 1000):
            yield content[start : start + 1000]

    task = asyncio.create_task(blobs.put(chunks()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await blobs.close()  # waits for what is under way
    ref = BlobRef(hashlib.blake2b(content, digest_size=32).hexdigest(), len(content))
    assert path_of(tmp_path, ref).read_bytes() == content


async def test_the_bytes_are_counted_without_walking_the_files_each_time(
    tmp_path: Path, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running figure; another process's files are found by a count in the background."""
    monkeypatch.setattr(module, "RECOUNT", float("inf"))  # none is due: what is added is told by the figure
    assert blobs.bytes_used() == 0
    await blobs.put([b"x" * 1000])
    await blobs.put([b"x" * 1000])
    await blobs.put([b"y" * 500])
    assert blobs.bytes_used() == 1500
    other = Blobs(tmp_path / "blobs")
    await other.put([b"z" * 100])
    other.bytes_used()  # begins a count
    await other.close()  # which ends before this does, or is broken off
    monkeypatch.setattr(module, "RECOUNT", -1.0)
    async with asyncio.timeout(5):
        while blobs.bytes_used() != 1600:
            await asyncio.sleep(0.005)


def descriptors_of(path: Path) -> list[str]:
    """Of this process, by number. One may be closed while we look."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if entry.readlink() == path:
                found.append(entry.name)
    return found


class HeldThread:
    """A thread stands where a test lets it stand, until `let_go`."""

    def __init__(self) -> None:
        self._reached, self._go_on = threading.Event(), threading.Event()

    def stand(self) -> None:
        self._reached.set()
        assert self._go_on.wait(30)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 10)

    def let_go(self) -> None:
        self._go_on.set()


@pytest.mark.parametrize("job", ["open", "read"])
async def test_a_reader_who_leaves_costs_no_descriptor_and_takes_none_away(
    tmp_path: Path, blobs: Blobs, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    """The job in the thread goes on with the file open, and the file is closed when it ends."""
    ref = await blobs.put([b"content"])
    held = HeldThread()
    if job == "open":
        real_open = blobs._open

        def opening(ref: BlobRef) -> object:
            file = real_open(ref)
            held.stand()
            return file

        monkeypatch.setattr(blobs, "_open", opening)
    else:
        real_read = module._read

        def reading(*args: Any) -> bytes:
            held.stand()
            return real_read(*args)

        monkeypatch.setattr(module, "_read", reading)
    leaving = asyncio.create_task(read(blobs, ref))
    try:
        await held.reached()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert leaving.cancelled()
        assert len(descriptors_of(path_of(tmp_path, ref))) == 1
    finally:
        held.let_go()
    del leaving
    await until(lambda: not descriptors_of(path_of(tmp_path, ref)))


async def test_whoever_reads_to_the_end_or_meets_damage_leaves_nothing_open(
    tmp_path: Path, blobs: Blobs
) -> None:
    """Also while the error, and with it the reader's frame, is still in somebody's hands."""
    ref = await blobs.put([b"content"])
    path = path_of(tmp_path, ref)
    assert await read(blobs, ref) == b"content"
    await until(lambda: not descriptors_of(path))
    path.write_bytes(b"damaged")
    with pytest.raises(BlobLost) as kept:
        await read(blobs, ref)
    await until(lambda: not descriptors_of(path))
    assert "damaged" in str(kept.value)


async def test_without_a_thread_to_be_had_the_store_is_unavailable(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store raises nothing else, whatever the system refuses."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(blobs._threads, "submit", refuse)
    with pytest.raises(StoreUnavailable, match="new thread"):
        await blobs.put([b"content"])
    with pytest.raises(StoreUnavailable, match="new thread"):
        await read(blobs, BlobRef("0" * 64, 1))
