"""The store's threads in trouble: what fails costs a connection at most, and nobody waits for the dead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.errors import StoreUnavailable
from proxy.store import checkpoints
from proxy.store.embedded import EmbeddedStore
from proxy.store.worker import Job, Outcome, Worker
from tests.stores import calls


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = await EmbeddedStore.open(tmp_path / "state")
    yield store
    async with asyncio.timeout(20):
        await store.close()


def fail(*_: object) -> None:
    raise RuntimeError("can't start new thread")


async def test_trouble_after_a_batch_of_writes_costs_the_connection_and_no_more(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised there: the next write opens another connection and succeeds."""
    used: list[object] = []

    def tend(connection: object, _: int) -> None:
        used.append(connection)
        fail()

    monkeypatch.setattr(store._writer._checkpoints, "tend", tend)
    for _ in range(5):
        async with asyncio.timeout(10):
            assert (await store.swap(*calls.claim(store.owner), expected=0)).won
            await store.ping()
    assert len(used) > 5
    assert len(set(map(id, used))) == len(used)


async def test_trouble_while_looking_for_changes_costs_the_connection_and_no_more(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads are answered meanwhile, the looks go on at their pace, and a later one wakes the watcher."""
    other = await EmbeddedStore.open(store._database.path.parent)
    try:
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        failures = 0

        def failing(_: object) -> None:
            nonlocal failures
            failures += 1
            fail()

        with monkeypatch.context() as patch:
            patch.setattr(store._reader, "_look", failing)
            waiting = asyncio.create_task(store.changed(call.key, 1, 20.0))
            async with asyncio.timeout(10):
                while failures < 3:
                    assert await store.get(call.key) == call
                    await asyncio.sleep(0.002)
            before = failures
            await asyncio.sleep(0.05)
            assert failures - before <= 20  # no spinning
            assert not waiting.done()
        assert (await other.swap(*calls.settle(call), expected=1)).won
        assert await waiting
    finally:
        await other.close()


async def test_without_a_thread_to_be_had_the_log_is_emptied_by_the_writer(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No write fails, the log does not grow without end, closing does not wait for what never ran."""
    monkeypatch.setattr(checkpoints, "PAGES", 20)
    store._writer._checkpoints._due = 20
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "threading", SimpleNamespace(Thread=Unstartable))
        for _ in range(60):
            async with asyncio.timeout(10):
                assert (await store.swap(*calls.claim(store.owner), expected=0)).won
        assert store._writer._log_pages < 60
    for _ in range(60):
        assert (await store.swap(*calls.claim(store.owner), expected=0)).won
    monkeypatch.setattr(checkpoints, "threading", SimpleNamespace(Thread=Unstartable))
    store._writer._checkpoints.wait()
    store._writer._checkpoints._due = 0
    await store.ping()
    async with asyncio.timeout(10):
        await store.close()


class Unstartable(threading.Thread):
    def start(self) -> None:
        fail()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # it is meant to die
@pytest.mark.parametrize("which", ["_writer", "_reader"])
async def test_nobody_waits_for_a_thread_that_has_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Who is in its hands, who is queued, who comes later: StoreUnavailable. Closing ends, too."""
    store = await EmbeddedStore.open(tmp_path / "state")
    worker: Worker = getattr(store, which)
    reached, go_on = threading.Event(), threading.Event()

    def die(jobs: list[Job]) -> list[Outcome]:
        reached.set()
        go_on.wait(30)
        raise MemoryError

    monkeypatch.setattr(worker, "_handle", die)

    def ask() -> asyncio.Future[Any]:
        return worker.submit(lambda _: None)

    try:
        in_its_hands = ask()
        assert await asyncio.to_thread(reached.wait, 10)
        queued = ask()
        await asyncio.sleep(0.01)  # handed over
        go_on.set()
        worker._thread.join(10)
        just_now = ask()  # dead, and the loop has not heard of it
        for waiting in (in_its_hands, queued, just_now):
            with pytest.raises(StoreUnavailable, match="restart semel"):
                await asyncio.wait_for(waiting, 10)
        with pytest.raises(StoreUnavailable, match="restart semel"):
            ask()
        with pytest.raises(StoreUnavailable):
            await store.ping()
    finally:
        go_on.set()
        async with asyncio.timeout(10):
            await store.close()


async def test_what_comes_alone_is_handed_over_at_once_and_what_comes_together_together(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One caller does not wait for others; of many, all that came in a turn share a commit."""
    batches: list[int] = []
    monkeypatch.setattr(store._writer, "_batched", batches.append)

    def swaps(number: int) -> list[asyncio.Task[Any]]:
        return [asyncio.create_task(store.swap(*calls.claim(store.owner), expected=0)) for _ in range(number)]

    async def handed_over() -> bool:
        """Whether the job of this turn is out before the turn has ended."""
        (alone,) = swaps(1)
        await asyncio.sleep(0)
        is_out = not store._writer._gathered and store._writer._under_way == 1
        assert (await alone).won
        return is_out

    assert await handed_over()
    assert await handed_over()
    batches.clear()
    assert {swap.won for swap in await asyncio.gather(*swaps(20))} == {True}
    assert {swap.won for swap in await asyncio.gather(*swaps(20))} == {True}
    assert sum(batches) == 40
    assert len(batches) <= 3  # the first was taken for one of those that come alone
    assert not await handed_over()
    assert await handed_over()
