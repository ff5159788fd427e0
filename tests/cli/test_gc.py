"""`semel gc`: what is past its time is removed and counted; what is open stays; looking makes nothing."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from proxy import collecting
from proxy.cli import gc
from proxy.cli.gc import SCHEMA
from proxy.core.intent import State
from proxy.errors import StoreUnavailable
from proxy.store.base import Census
from proxy.store.embedded import EmbeddedStore
from proxy.store.unnamed import UNTOUCHED
from tests.cli.command import semel
from tests.stores import calls

T = TypeVar("T")
DONE, BLOB = 5, b"no row names this one"


def on_store(state: Path, work: Callable[[EmbeddedStore], Coroutine[Any, Any, T]]) -> T:
    async def opened() -> T:
        store = await EmbeddedStore.open(state)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(opened())


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five calls past their time, one that is not, one in doubt; one old blob that no row names."""
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "state"

    async def fill(store: EmbeddedStore) -> None:
        for at in [time.time() - 2 * 86400] * DONE + [time.time()]:
            call, entry = calls.claim(store.owner, at=at)
            await store.swap(call, entry, expected=0)
            await store.swap(*calls.settle(call, at=at), expected=1)
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        await store.swap(*calls.lose(call), expected=1)
        ref = await store.put_blob([BLOB])
        past = time.time() - UNTOUCHED - 60
        os.utime(directory / "blobs" / ref.digest[:2] / ref.digest, (past, past))

    on_store(directory, fill)
    return directory


def census(state: Path) -> dict[State, int]:
    async def ask(store: EmbeddedStore) -> Census:
        return await store.census()

    return {state: n for state, n in on_store(state, ask).by_state.items() if n}


def test_it_says_what_it_removed_and_then_that_nothing_is_left(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The call in doubt and the one that is not over stay."""
    ran = semel(capsys, "gc", "--state-dir", state)
    assert (ran.status, ran.err) == (0, "")
    size = DONE * len(b"sealed request" + b"sealed head" + b"sealed body") + len(BLOB)
    assert ran.out == f"removed (calls: 5, blobs: 1, bytes: {size})\n"
    assert census(state) == {State.DONE: 1, State.IN_DOUBT: 1}
    assert list((state / "blobs").glob("??/*")) == []
    ran = semel(capsys, "gc", "--state-dir", state)
    assert (ran.status, ran.out, ran.err) == (0, "nothing to remove\n", "")


def test_a_dry_run_says_the_same_and_removes_nothing(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people and for programs."""
    ran = semel(capsys, "gc", "--dry-run", "--state-dir", state)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("would remove (calls: 5, blobs: 1, bytes: ")
    would = semel(capsys, "gc", "--dry-run", "--json", "--state-dir", state).document(SCHEMA)
    assert would["dry_run"] is True
    assert census(state) == {State.DONE: 6, State.IN_DOUBT: 1}
    assert len(list((state / "blobs").glob("??/*"))) == 1
    did = semel(capsys, "gc", "--json", "--state-dir", state).document(SCHEMA)
    assert did == would | {"dry_run": False}
    nothing = {"dry_run": False, "calls": 0, "runs": 0, "blobs": 0, "bytes": 0}
    assert semel(capsys, "gc", "--json", "--state-dir", state).document(SCHEMA) == nothing


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "no terminal"])
def test_a_person_who_waits_sees_it_go_on(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """One line, after a second, on a terminal only; it is gone at the end, and stdout has only the result."""
    monkeypatch.setattr(collecting, "PORTION", 2)
    monkeypatch.setattr(gc, "LONG", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    ran = semel(capsys, "gc", "--state-dir", state)
    assert ran.status == 0
    assert ran.out.startswith("removed (calls: 5, blobs: 1,")
    first, *lines = ran.err.split("\r\x1b[K")
    assert first == ""
    assert "\n" not in ran.err
    if terminal:
        assert lines[0].startswith("removed so far (calls: 2, blobs: 0,")
        assert lines[1].startswith("removed so far (calls: 4, blobs: 0,")
        assert lines[-1] == ""
    else:
        assert lines == []


def test_within_a_second_no_progress_is_shown(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a terminal."""
    monkeypatch.setattr(gc, "LONG", 1000.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert semel(capsys, "gc", "--state-dir", state).err == ""


def test_it_collects_beside_a_proxy_that_runs(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One more process on the same store; the other one sees what is gone."""

    async def beside(store: EmbeddedStore) -> dict[State, int]:
        ran = await asyncio.to_thread(semel, capsys, "gc", "--state-dir", state)
        assert ran.out.startswith("removed (calls: 5, blobs: 1,")
        return (await store.census()).by_state

    assert on_store(state, beside)[State.DONE] == 1


def test_a_directory_without_a_record_is_an_error_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, what to do, and nothing is made."""
    ran = semel(capsys, "gc", "--state-dir", tmp_path / "nowhere")
    assert (ran.status, ran.out) == (2, "")
    assert f"There is no record in {tmp_path / 'nowhere'}." in ran.err
    assert "--state-dir DIR" in ran.err
    assert not (tmp_path / "nowhere").exists()


def test_a_memory_store_collects_in_its_own_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2: there is nothing here that could be reached."""
    monkeypatch.chdir(tmp_path)
    ran = semel(capsys, "gc", "--store", "memory")
    assert (ran.status, ran.out) == (2, "")
    assert "collects by itself" in ran.err


def test_a_store_in_trouble_is_told_with_its_reason(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 1; what was removed before stays removed."""
    real = EmbeddedStore.collect
    portions = 0

    async def failing(self: EmbeddedStore, now: float, **options: Any) -> Any:
        nonlocal portions
        portions += 1
        if portions == 2:
            raise StoreUnavailable("the store is not available: the disk is full")
        return await real(self, now, **options)

    monkeypatch.setattr(collecting, "PORTION", 2)
    monkeypatch.setattr(EmbeddedStore, "collect", failing)
    ran = semel(capsys, "gc", "--state-dir", state)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == "the store is not available: the disk is full\n"
    assert census(state)[State.DONE] == 4


def test_a_bad_setting_is_told_with_its_place(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, before anything is opened."""
    settings = state.parent / "bad.yaml"
    settings.write_text("gc: {every: soon}\n")
    ran = semel(capsys, "gc", "--config", settings, "--state-dir", state)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"{settings}:1:13: ")
    assert semel(capsys, "gc", "--sooner").status == 2
    assert census(state)[State.DONE] == 6
