"""Several real processes on one embedded store: races, wake-ups, deaths."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from proxy import faults
from proxy.answers import Answers
from proxy.core.intent import Call, State
from proxy.observe import Deaf
from proxy.store import statements
from proxy.store.codec import Codec
from proxy.store.database import FILE_NAME
from proxy.store.embedded import EmbeddedStore
from tests.stores import calls
from tests.stores.contract import AFTER_ALL, known_stamp
from tests.stores.process import child

ROUNDS = 20


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = await EmbeddedStore.open(tmp_path / "state")
    yield store
    await store.close()


async def test_a_waiter_in_another_process_wakes_within_50_ms_of_the_commit(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    """The 99th percentile of 200 wake-ups, from the commit itself to the waiter's next step."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pauses = random.Random(seed)
    rounds = 200
    commits: list[float] = []
    wakes: list[float] = []
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    faults.arm(faults.Point.COMMITTED, lambda: commits.append(time.monotonic()))
    try:
        async with child("watch", tmp_path / "state") as watcher:
            watcher.write(f"{call.id} 1 {rounds}")
            for _ in range(rounds):
                await asyncio.sleep(pauses.uniform(0.0, 0.015))  # anywhere between two looks
                step = calls.release(call) if call.state is State.PENDING else calls.claim_again(call, "x")
                assert (await store.swap(*step, expected=call.version)).won
                call = step[0]
                wakes.append(float(await watcher.read()))
    finally:
        faults.disarm_all()
    delays = sorted(wake - commit for wake, commit in zip(wakes, commits, strict=True))
    print(f"p50 {delays[rounds // 2] * 1e3:.1f} ms, p99 {delays[rounds * 99 // 100] * 1e3:.1f} ms")
    assert delays[rounds * 99 // 100] <= 0.050


async def test_the_calls_of_a_killed_process_are_orphans_at_once(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    """Alive: no orphans. Killed: dead as soon as it has ended; its file goes when nothing needs it."""
    async with child("hold", tmp_path / "state") as other:
        call, entry = calls.claim(other.owner)
        await store.swap(call, entry, expected=0)
        assert not await store.owner_is_dead(other.owner)
        assert (await store.orphans()).calls == []
        other.process.kill()
        await other.process.wait()
        assert await store.owner_is_dead(other.owner)
        assert (await store.orphans()).calls == [call]
    lock = tmp_path / "state" / "owners" / f"{other.owner}.lock"
    assert lock.exists()
    await store.swap(*calls.lose(call), expected=1)
    assert (await store.orphans()).calls == []
    assert not lock.exists()
    assert await store.owner_is_dead(other.owner)
    assert not await store.owner_is_dead(store.owner)


async def test_a_forked_copy_does_not_keep_a_dead_owner_alive(tmp_path: Path, store: EmbeddedStore) -> None:
    """A fork copies the lock; the copy is closed in the child, so the death of the parent lets go of it."""
    async with child("fork", tmp_path / "state") as parent:
        copy = int(await parent.read())
        try:
            assert not await store.owner_is_dead(parent.owner)
            parent.process.kill()
            await parent.process.wait()
            assert await store.owner_is_dead(parent.owner)
        finally:
            os.kill(copy, signal.SIGKILL)


@pytest.mark.parametrize("point", [faults.Point.COMMIT_BEGUN, faults.Point.COMMITTED])
@pytest.mark.parametrize("after", [0, 1, 7, 40])
async def test_killed_at_the_commit_nothing_acknowledged_is_missing(
    tmp_path: Path, store: EmbeddedStore, point: faults.Point, after: int
) -> None:
    """SIGKILL just before or just after COMMIT: acknowledged rows are there, and orphans at once."""
    async with child("claim_and_die", tmp_path / "state", point, str(after)) as doomed:
        acknowledged = []
        while line := await doomed.read():
            acknowledged.append(line)
        assert await doomed.process.wait() == -9
    orphans = (await store.orphans()).calls
    assert {call.owner for call in orphans} <= {doomed.owner}
    found = {call.id for call in orphans}
    assert found >= set(acknowledged)
    if after == 0:  # killed in its first commit: all of it is there, or nothing
        assert bool(found) == (point is faults.Point.COMMITTED)
        assert not acknowledged


async def test_processes_that_start_together_make_one_store(tmp_path: Path) -> None:
    """Four processes create the same directory at once: one secret, one schema, four epochs."""
    directory = tmp_path / "new"
    stores = await asyncio.gather(*(EmbeddedStore.open(directory) for _ in range(4)))
    async with AsyncExitStack() as stack:
        for store in stores:
            stack.push_async_callback(store.close)
        children = await asyncio.gather(
            *(stack.enter_async_context(child("hold", directory)) for _ in range(3))
        )
        assert len({store.secret for store in stores}) == 1
        assert len({*(store.owner for store in stores), *(other.owner for other in children)}) == 7


async def given_lately(store: EmbeddedStore) -> tuple[Answers, Call]:
    """A done call whose answer is at hand and was found to stand."""
    codec = Codec()
    answers = Answers(store=store, codec=codec, observer=Deaf(), inline_body=1024)
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    done, entry = calls.settle(call)
    assert done.answer is not None
    sealed = replace(done.answer, head=codec.seal_head(()), body=codec.seal_body(b"the answer"))
    done = replace(done, answer=sealed)
    await store.swap(done, entry, expected=1)
    assert await answers.produce(done, sealed) is not None
    await known_stamp(store)
    assert await answers.row(done.key) is done
    return answers, done


async def test_an_answer_at_hand_is_never_given_after_another_process_has_forgotten_it(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    """Forty rounds: while one process asks without end, another forgets. From its acknowledgement on, and
    once the new row was seen, the old one is never seen again. Before, it is seen unasked."""
    asked = []
    real = store.get

    async def counted(key: bytes, known: Call | None = None) -> Call | None:
        asked.append(key)
        return await real(key, known)

    store.get = counted  # type: ignore[method-assign]
    async with child("forget", tmp_path / "state") as forgetful:
        for _ in range(40):
            answers, done = await given_lately(store)
            questions = len(asked)
            assert [await answers.row(done.key) for _ in range(10)] == [done] * 10
            assert len(asked) == questions
            forgetful.write(done.id)
            acknowledged = asyncio.ensure_future(forgetful.read())
            newest = done.version
            while not acknowledged.done():
                row = await answers.row(done.key)
                assert row is not None
                assert row.version >= newest
                newest = row.version
                await asyncio.sleep(0)
            row = await answers.row(done.key)
            assert row is not None
            assert row.version == int(acknowledged.result()) == done.version + 1


@pytest.mark.parametrize("point", ["commit_begun", "committed"])
async def test_a_process_killed_while_it_forgets_leaves_nobody_with_a_stale_answer(
    tmp_path: Path, store: EmbeddedStore, point: str
) -> None:
    """Whether the change became durable or not: what is at hand is what is stored, at once and later."""
    for _ in range(3):
        answers, done = await given_lately(store)
        async with child("forget", tmp_path / "state", point) as forgetful:
            forgetful.write(done.id)
            await asyncio.wait_for(forgetful.process.wait(), 30)
            assert forgetful.process.returncode == -signal.SIGKILL
        expected = done.version + (point == "committed")
        for _ in range(3):
            row = await answers.row(done.key)
            assert row is not None
            assert row.version == expected
        await store.ping()  # a write of any process puts the stamp right
        await known_stamp(store)
        row = await answers.row(done.key)
        assert row is not None
        assert row.version == expected


async def test_an_answer_at_hand_is_never_given_after_another_process_has_collected_it(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    """While one process asks without end, another collects. From its acknowledgement on the answer is gone,
    and the same call made again, in the same version, is another."""
    async with child("collect", tmp_path / "state") as collector:
        for _ in range(20):
            answers, done = await given_lately(store)
            collector.write(str(AFTER_ALL))
            acknowledged = asyncio.ensure_future(collector.read())
            gone = False
            while not acknowledged.done():
                row = await answers.row(done.key)
                assert row is done or row is None
                assert not (gone and row)  # once gone, never seen again
                gone = row is None
                await asyncio.sleep(0)
            assert acknowledged.result() == "1"
            assert await answers.row(done.key) is None
            again, entry = calls.claim(store.owner, done.key, at=AFTER_ALL)
            await store.swap(again, entry, expected=0)
            settled, entry = calls.settle(again, at=2 * AFTER_ALL)
            await store.swap(settled, entry, expected=1)
            assert settled.version == done.version
            assert await answers.row(done.key) == settled


@pytest.mark.parametrize("point", ["commit_begun", "committed"])
async def test_a_process_killed_while_it_collects_leaves_everything_or_nothing(
    tmp_path: Path, store: EmbeddedStore, point: str
) -> None:
    """Rows, history, counts and marks agree, whichever it is; what is at hand is what is stored; and the next
    to collect takes what is left."""
    answers, done = await given_lately(store)
    pending, entry = calls.claim(store.owner)
    await store.swap(pending, entry, expected=0)
    for _ in range(9):
        await given_lately(store)
    store.mark_replayed(done.key, calls.NOW)
    assert await store.replays(done.key) == 1
    async with child("collect", tmp_path / "state", point) as collector:
        collector.write(str(AFTER_ALL))
        await asyncio.wait_for(collector.process.wait(), 30)
        assert collector.process.returncode == -signal.SIGKILL
    left = 10 if point == "commit_begun" else 0
    for _ in range(3):
        assert await answers.row(done.key) is (done if left else None)
    assert (await store.census()).by_state == dict.fromkeys(State, 0) | {State.DONE: left, State.PENDING: 1}
    assert figures(tmp_path) == [left + 1, left + 1, left * 2 + 1, left + 1, bool(left)]
    await store.ping()  # a write of any process puts the stamp right
    await known_stamp(store)
    assert await answers.row(done.key) is (done if left else None)
    assert (await store.collect(AFTER_ALL)).calls == left
    assert figures(tmp_path) == [1, 1, 1, 1, 0]
    assert await store.get(pending.key) == pending


def figures(tmp_path: Path) -> list[int]:
    """Calls, how many are said to be there, lines of history, calls that these belong to, marks."""
    connection = apsw.Connection(str(tmp_path / "state" / FILE_NAME))
    try:
        assert connection.pragma("integrity_check") == "ok"
        return [
            number
            for question in (
                "SELECT count(*) FROM calls",
                statements.TOTAL,
                "SELECT count(*) FROM events",
                "SELECT count(DISTINCT call) FROM events JOIN calls ON calls.id = call",
                "SELECT count(*) FROM marks",
            )
            for (number,) in connection.execute(question)
        ]
    finally:
        connection.close()
