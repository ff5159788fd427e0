"""Bytes that grow out of memory into a file, and what becomes of that file."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import threading
from pathlib import Path
from threading import Thread

import pytest

from proxy import spool
from proxy.spool import Spool
from tests.inside import until


def _open_files(directory: Path) -> int:
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed by another thread since it was listed
            found += str(link.readlink()).startswith(str(directory))
    return found


@pytest.fixture(autouse=True)
async def _nobody_closes() -> None:
    """What an earlier test has left is given back by the same thread."""
    gc.collect()
    await until(lambda: not _closing())


async def test_a_file_is_given_back_bit_by_bit_when_nobody_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all at once, and not by whoever lets go of it: a large one takes milliseconds."""
    sizes: list[int] = []
    real = os.ftruncate

    def truncate(fd: int, size: int) -> None:
        sizes.append(size)
        real(fd, size)

    monkeypatch.setattr(os, "ftruncate", truncate)
    held = Spool(1000, tmp_path)
    held.append(b"x" * (3 * spool.STEP + 5))
    assert held.on_disk
    assert _open_files(tmp_path) == 1
    del held
    gc.collect()
    await until(lambda: _open_files(tmp_path) == 0)
    assert sizes == [2 * spool.STEP + 5, spool.STEP + 5, 5]


async def test_what_cannot_be_shortened_is_closed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so are those that come after it: one disk in trouble must not use up all descriptors."""

    def truncate(fd: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "ftruncate", truncate)
    for _ in range(2):
        _let_go_of(5, tmp_path)
        await until(lambda: _open_files(tmp_path) == 0)
        await until(lambda: not _closing())


async def test_where_no_thread_is_to_be_had_it_is_closed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unstartable(Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(spool, "Thread", Unstartable)
    held = Spool(10, tmp_path)
    held.append(b"x" * 100)
    assert _open_files(tmp_path) == 1
    del held
    gc.collect()
    assert _open_files(tmp_path) == 0


async def test_many_are_given_back_by_one_thread_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread for each would take more memory than what is given back."""
    all_let_go = threading.Event()
    real = os.ftruncate

    def truncate(fd: int, size: int) -> None:
        assert all_let_go.wait(30)
        real(fd, size)

    monkeypatch.setattr(os, "ftruncate", truncate)
    _let_go_of(40, tmp_path)
    assert len(_closing()) == 1
    assert _open_files(tmp_path) == 40
    all_let_go.set()
    await until(lambda: _open_files(tmp_path) == 0)
    await until(lambda: not _closing())


def _let_go_of(many: int, directory: Path) -> None:
    """Files of more than one step each."""
    held = [Spool(10, directory) for _ in range(many)]
    for one in held:
        one.append(b"x" * (spool.STEP + 1))
    assert _open_files(directory) == many
    del one
    held.clear()
    gc.collect()


def _closing() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "semel-spool"]
