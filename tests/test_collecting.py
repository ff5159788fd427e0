"""Collecting goes on by itself: soon after the start, then every so often, past a store in trouble."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from proxy import collecting as module
from proxy.collecting import (
    GRACE,
    PAUSE,
    PORTION,
    SOON,
    collect_forever,
    collect_once,
    collectable,
    collecting,
)
from proxy.core.intent import State
from proxy.errors import StoreUnavailable
from proxy.store.base import Collected
from proxy.store.embedded import EmbeddedStore
from proxy.store.memory import MemoryStore
from proxy.store.memory_world import World
from tests.exchange.stage import Notebook
from tests.exchange.virtual_time import EPOCH, VirtualClock, in_virtual_time
from tests.inside import semel
from tests.stores import calls

MONTH = 30 * 86400.0
HOUR = 3600.0
POLICY = "upstream: mail\nbase_url: http://127.0.0.1:9\n"


class Asked(MemoryStore):
    """Remembers when it was asked to collect, and answers as the test says before it collects."""

    def __init__(self, *answers: Collected | Exception) -> None:
        super().__init__(World(clock=VirtualClock().now))
        self.answers = list(answers)
        self.asked: list[float] = []

    async def collect(
        self, now: float, *, limit: int = 500, dry_run: bool = False, runs_before: float = 0.0
    ) -> Collected:
        self.asked.append(asyncio.get_running_loop().time())
        match self.answers.pop(0) if self.answers else None:
            case Exception() as error:
                raise error
            case Collected() as collected:
                return collected
            case None:
                return await super().collect(now, limit=limit, dry_run=dry_run, runs_before=runs_before)


def removed(calls: int, *, more: bool = False) -> Collected:
    return Collected(calls=calls, blobs=1, bytes=10, more=more)


async def settled(store: MemoryStore | EmbeddedStore, *, at: float) -> bytes:
    """A call that is done, and over a day after `at`."""
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    await store.swap(*calls.settle(call, at=at), expected=1)
    return call.key


@in_virtual_time
async def test_portions_follow_each_other_until_nothing_is_left() -> None:
    """With a pause after each, so that calls come between; the sums grow."""
    store = Asked(removed(PORTION, more=True), removed(PORTION, more=True), removed(7))
    totals = [total async for total in collecting(store, VirtualClock(), MONTH)]
    assert [(total.calls, total.blobs, total.bytes, total.more) for total in totals] == [
        (PORTION, 1, 10, True), (2 * PORTION, 2, 20, True), (2 * PORTION + 7, 3, 30, False),
    ]  # fmt: skip
    assert store.asked == pytest.approx([0.0, PAUSE, 2 * PAUSE])


@in_virtual_time
async def test_what_is_over_for_less_than_a_minute_stays() -> None:
    """Somebody may just be handing it on. A dry run says the same, and changes nothing."""
    store, clock, notebook = MemoryStore(), VirtualClock(), Notebook()
    over = EPOCH - 86400
    old = await settled(store, at=over - GRACE - 1)
    fresh = await settled(store, at=over - GRACE + 1)
    assert (await collectable(store, clock, MONTH)).calls == 1
    assert store.world.calls.keys() == {old, fresh}
    await collect_once(store, notebook, clock, MONTH)
    assert store.world.calls.keys() == {fresh}
    ((event, fields),) = notebook.notes
    assert event == "collected"
    assert (fields["calls"], fields["blobs"]) == (1, 0)
    await collect_once(store, notebook, clock, MONTH)
    assert len(notebook.notes) == 1, "nothing removed, nothing told"


@in_virtual_time
async def test_it_collects_soon_after_the_start_and_then_every_so_often() -> None:
    """Also when the proxy never lives for as long as the interval."""
    for every, moments in ((HOUR, [SOON, SOON + HOUR, SOON + 2 * HOUR]), (10.0, [10.0, 20.0, 30.0])):
        store = Asked()
        began = asyncio.get_running_loop().time()
        chore = asyncio.create_task(
            collect_forever(store, Notebook(), VirtualClock(), every=every, retention=MONTH)
        )
        await asyncio.sleep(moments[-1] + 1)
        chore.cancel()
        await asyncio.gather(chore, return_exceptions=True)
        assert [at - began for at in store.asked] == pytest.approx(moments)


@in_virtual_time
async def test_no_failure_ends_the_collecting() -> None:
    """A store in trouble, in the middle of it too, and a defect of ours: noted, and tried again next time."""
    store, notebook = (
        Asked(
            StoreUnavailable("the disk is full"),
            removed(5, more=True),
            StoreUnavailable("another process has held the database for too long"),
            KeyError("a defect"),
        ),
        Notebook(),
    )
    await settled(store, at=EPOCH - 2 * 86400)
    chore = asyncio.create_task(collect_forever(store, notebook, VirtualClock(), every=HOUR, retention=MONTH))
    await asyncio.sleep(SOON + 3 * HOUR + 1)
    assert not chore.done()
    chore.cancel()
    await asyncio.gather(chore, return_exceptions=True)
    assert [event for event, _ in notebook.notes] == [
        "store-trouble", "collected", "store-trouble", "collecting-failed", "collected",
    ]  # fmt: skip
    assert notebook.notes[0][1] == {"doing": "collecting", "error": "the disk is full"}
    assert notebook.notes[1][1] == {"calls": 5, "runs": 0, "blobs": 1, "bytes": 10}
    assert notebook.notes[3][1] == {"error": "KeyError: 'a defect'"}
    assert notebook.notes[4][1]["calls"] == 1
    assert store.world.calls == {}


class SetForward(VirtualClock):
    """A clock that somebody sets."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@in_virtual_time
async def test_a_clock_that_was_just_set_forward_collects_nothing() -> None:
    """Set back before the next time, it has cost nothing; one that stays is believed then. A correction of
    seconds is no reason to wait."""
    store, clock, notebook = Asked(), SetForward(), Notebook()
    key = await settled(store, at=EPOCH)  # for a day
    chore = asyncio.create_task(collect_forever(store, notebook, clock, every=HOUR, retention=MONTH))
    await asyncio.sleep(1)
    for ahead, rounds in ((5 * 86400.0, 0), (0.0, 1), (2.0, 2), (5 * 86400.0, 2)):
        clock.ahead = ahead
        await asyncio.sleep(HOUR)
        assert len(store.asked) == rounds
        assert key in store.world.calls
    await asyncio.sleep(HOUR)
    assert store.world.calls == {}
    chore.cancel()
    await asyncio.gather(chore, return_exceptions=True)
    waited = [fields["seconds"] for event, fields in notebook.notes if event == "clock-set-forward"]
    assert waited == [5 * 86400, 5 * 86400 - 2]


@in_virtual_time
async def test_who_keeps_the_store_in_mind_looks_again_after_a_half_round_too() -> None:
    """Runs may be over of which the rest was not removed."""
    told = 0

    def look_again() -> None:
        nonlocal told
        told += 1

    store = Asked(removed(5, more=True), StoreUnavailable("the disk is full"))
    chore = asyncio.create_task(
        collect_forever(store, Notebook(), VirtualClock(), every=HOUR, retention=MONTH, after=look_again)
    )
    await asyncio.sleep(SOON + 1)
    assert told == 1
    chore.cancel()
    await asyncio.gather(chore, return_exceptions=True)


async def test_serve_collects_by_itself_and_stops_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as the settings say: what is over goes, what is open stays."""
    monkeypatch.setattr(module, "PORTION", 1)
    before = await EmbeddedStore.open(tmp_path / "state")
    try:
        for _ in range(3):
            await settled(before, at=time.time() - 2 * 86400)
        pending, entry = calls.claim(before.owner)
        await before.swap(pending, entry, expected=0)
        async with semel(tmp_path, POLICY, settings={"gc.every": "1ms"}) as app:
            async with asyncio.timeout(15):
                while (await before.census()).by_state[State.DONE]:
                    await asyncio.sleep(0.01)
        assert app._collector.cancelled()
        assert await before.get(pending.key) == pending
    finally:
        await before.close()
