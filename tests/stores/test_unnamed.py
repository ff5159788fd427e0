"""Blob files that nobody needs go, and no other: not one that is young, named, renewed or not ours."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.store.base import BlobRef
from proxy.store.blobs import Blobs
from proxy.store.unnamed import UNTOUCHED, Found, Unnamed, putting
from tests.inside import until


@pytest.fixture
async def blobs(tmp_path: Path) -> AsyncIterator[Blobs]:
    blobs = Blobs(tmp_path / "blobs")
    yield blobs
    await blobs.close()


@pytest.fixture
def unnamed(blobs: Blobs) -> Unnamed:
    return Unnamed(blobs.directory)


def path_of(blobs: Blobs, ref: BlobRef) -> Path:
    return blobs.directory / ref.digest[:2] / ref.digest


def age(path: Path, seconds: float = UNTOUCHED + 1) -> None:
    past = time.time() - seconds
    os.utime(path, (past, past))


def nobody(_: str) -> bool:
    return False


async def test_an_hour_is_an_hour(blobs: Blobs, unnamed: Unnamed) -> None:
    """A minute less, and the file stays; its time in the future, and it stays too."""
    refs = [await blobs.put([b"%d" % n]) for n in range(3)]
    for ref, seconds in zip(refs, (3540.0, 3660.0, -7200.0), strict=True):
        age(path_of(blobs, ref), seconds)
    assert unnamed.remove(100, nobody) == Found(files=1, bytes=1)
    assert [path_of(blobs, ref).exists() for ref in refs] == [True, False, True]


async def test_a_round_goes_over_every_file_in_portions(blobs: Blobs, unnamed: Unnamed) -> None:
    """No more files are looked at than asked for; named ones do not stand before the others for ever; the
    next round begins anew."""
    refs = [await blobs.put([b"%d" % n]) for n in range(10)]
    for ref in refs:
        age(path_of(blobs, ref))
    named = {ref.digest for ref in sorted(refs, key=lambda ref: ref.digest)[:5]}
    asked: list[str] = []

    def is_named(digest: str) -> bool:
        asked.append(digest)
        return digest in named

    portions = [unnamed.remove(4, is_named) for _ in range(3)]
    assert [each.more for each in portions] == [True, True, False]
    assert sum(each.files for each in portions) == 5
    assert sorted(asked) == sorted(ref.digest for ref in refs)
    assert {path.name for path in blobs.directory.glob("??/*")} == named
    named.clear()
    assert unnamed.remove(100, is_named) == Found(files=5, bytes=5)


async def test_temporary_files_of_a_crash_go_and_those_of_a_put_stay(blobs: Blobs, unnamed: Unnamed) -> None:
    """Old ones only: a young one may belong to another process."""
    old, young = blobs.directory / "tmp/old", blobs.directory / "tmp/young"
    for path in (old, young):
        path.write_bytes(b"left")
    age(old)
    assert unnamed.count(nobody) == unnamed.remove(100, nobody) == Found(files=1, bytes=4)
    assert young.exists()
    assert not old.exists()


async def test_what_is_no_blob_is_left_alone(blobs: Blobs, unnamed: Unnamed) -> None:
    """A file that somebody put there, whatever its age; a blob under another directory's name."""
    ref = await blobs.put([b"content"])
    misplaced = blobs.directory / ("00" if ref.digest[:2] != "00" else "11")
    misplaced.mkdir()
    strangers = [blobs.directory / "README", misplaced / ref.digest, path_of(blobs, ref).with_name("notes")]
    for path in strangers:
        path.write_bytes(b"mine")
        age(path)
    assert unnamed.remove(100, nobody) == Found(files=0, bytes=0)
    assert all(path.exists() for path in strangers)


async def test_counting_removes_nothing_and_disturbs_no_round(blobs: Blobs, unnamed: Unnamed) -> None:
    """A dry run in the middle of a round: the round goes on where it was."""
    for n in range(4):
        age(path_of(blobs, await blobs.put([b"%d" % n])))
    assert unnamed.remove(2, nobody) == Found(files=2, bytes=2, more=True)
    assert unnamed.count(nobody) == Found(files=2, bytes=2)
    assert unnamed.remove(3, nobody) == Found(files=2, bytes=2)


async def test_a_blob_put_again_while_it_is_judged_stays(blobs: Blobs, unnamed: Unnamed) -> None:
    """Old and named by nobody when it was looked at; renewed before it would have been removed."""
    path = path_of(blobs, await blobs.put([b"content"]))
    age(path)

    def renewed(_: str) -> bool:
        blobs._put([b"content"])
        return False

    assert unnamed.remove(100, renewed) == Found(files=0, bytes=0)
    assert path.read_bytes() == b"content"


async def test_no_blob_is_removed_while_somebody_gives_one_its_name(blobs: Blobs, unnamed: Unnamed) -> None:
    """The removal waits for the renaming, looks again, and finds the file renewed."""
    path = path_of(blobs, await blobs.put([b"content"]))
    age(path)
    asked: list[str] = []

    def is_named(digest: str) -> bool:
        asked.append(digest)
        return False

    with putting(blobs.directory):
        removing = asyncio.ensure_future(asyncio.to_thread(unnamed.remove, 100, is_named))
        await until(lambda: asked)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(removing), 0.05)
        os.utime(path)
    assert await removing == Found(files=0, bytes=0)
    assert path.exists()


async def test_a_put_waits_for_a_removal_and_is_there_after_it(blobs: Blobs) -> None:
    """The other order: what is removed is the old file, never the one that is put."""
    with putting(blobs.directory, fcntl.LOCK_EX):
        put = asyncio.ensure_future(blobs.put([b"content"]))
        await until(lambda: list((blobs.directory / "tmp").iterdir()))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(put), 0.05)
    assert path_of(blobs, await put).read_bytes() == b"content"


async def test_a_round_that_fails_is_begun_anew(blobs: Blobs, unnamed: Unnamed) -> None:
    """The store failed in the middle: nothing is forgotten."""
    for n in range(3):
        age(path_of(blobs, await blobs.put([b"%d" % n])))

    def fail(_: str) -> bool:
        raise OSError(5, "Input/output error")

    assert unnamed.remove(1, lambda _: True).more
    with pytest.raises(OSError):
        unnamed.remove(1, fail)
    assert unnamed.remove(100, nobody) == Found(files=3, bytes=3)
