"""Threads that write for others do not take the core from whoever is at work."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from proxy import giving_way
from proxy.log import LogObserver
from proxy.store.database import Database, Patience
from proxy.store.embedded import EmbeddedStore
from tests.inside import until
from tests.stores import calls

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="threads have no classes here")


def in_a_thread(do: Callable[[], int]) -> int:
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(do()))
    thread.start()
    thread.join()
    return done[0]


def test_it_is_about_the_thread_that_asks() -> None:
    """Not about the others, the event loop's least of all."""

    def ask() -> int:
        giving_way.give_way()
        return os.sched_getscheduler(0)

    assert in_a_thread(ask) == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_whoever_is_started_by_such_a_thread_may_be_as_usual() -> None:
    """Else it begins in the class of the other: the copying of the log would wait while the log grows."""

    def ask() -> int:
        giving_way.give_way()
        return in_a_thread(started)

    def started() -> int:
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
        giving_way.as_usual()
        return os.sched_getscheduler(0)

    assert in_a_thread(ask) == os.SCHED_OTHER


async def test_the_log_is_copied_by_a_thread_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the writer starts it."""
    classes: list[int] = []
    connect = Database.connect

    def connected(database: Database, patience: Patience, **more: bool) -> apsw.Connection:
        classes.append(os.sched_getscheduler(0))
        return connect(database, patience, **more)

    store = await EmbeddedStore.open(tmp_path / "state")
    try:
        monkeypatch.setattr(Database, "connect", connected)
        store._writer._checkpoints._due = 1
        while not classes:
            assert (await store.swap(*calls.claim(store.owner), expected=0)).won
        assert classes[0] == os.SCHED_OTHER
    finally:
        await store.close()


def test_where_it_is_not_permitted_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sandbox, say."""

    def refused(*_: object) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    giving_way.give_way()
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_where_there_is_no_such_class_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS."""
    usual = os.SCHED_OTHER
    for name in ("SCHED_BATCH", "SCHED_OTHER", "sched_setscheduler"):
        monkeypatch.delattr(os, name)
    giving_way.give_way()
    giving_way.as_usual()
    assert os.sched_getscheduler(0) == usual


async def test_whoever_writes_gives_way_and_the_loop_does_not(tmp_path: Path) -> None:
    """The store's threads and the log's."""
    store = await EmbeddedStore.open(tmp_path / "state")
    log = LogObserver(io.StringIO())
    try:
        log.noted("something")
        log._hand_over()
        wanted = {"semel-writer", "semel-reader", "semel-log"}

        def classes() -> dict[str, int]:
            threads = [thread for thread in threading.enumerate() if thread.name in wanted]
            return {each.name: os.sched_getscheduler(each.native_id or 0) for each in threads}

        await until(lambda: classes() == dict.fromkeys(wanted, os.SCHED_BATCH))
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
    finally:
        log.close()
        await store.close()
