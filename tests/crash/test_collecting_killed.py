"""A process that is killed while it collects leaves a whole record, and the next one ends what it began."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.clock import SystemClock
from proxy.collecting import PORTION, collecting
from proxy.core.intent import Answer, Call, Place, State
from proxy.faults import Point
from proxy.store.base import BlobLost, BlobRef, Collected, Store
from tests import ambient
from tests.process import ROOT, kill_at
from tests.stores import calls
from tests.stores.whole import age_all, all_calls, assert_whole

pytestmark = pytest.mark.usefixtures("any_store")

SIZE = 70_000
LAPSED, WITH_BODY = 2 * PORTION + 5, 20
DAY = 86400.0


async def done(store: Store, *, at: float, blob: str = "") -> Call:
    call, entry = calls.claim(store.owner, at=at)
    assert (await store.swap(call, entry, expected=0)).won
    settled, entry = calls.settle(call, at=at)
    if blob:
        answer = Answer(status=200, size=SIZE, recorded_at=at, place=Place.BLOB, blob=blob)
        settled = replace(settled, answer=answer)
    assert (await store.swap(settled, entry, expected=1)).won
    return settled


async def body(store: Store, n: int) -> BlobRef:
    return await store.put_blob([b"%03d" % n + b"." * (SIZE - 3)])


async def filled(state: Path) -> tuple[list[Call], list[BlobRef]]:
    """Calls that stay, and the bodies that only others name. One body is named by one of each."""
    store = await ambient.opened(state)
    try:
        going = [await body(store, n) for n in range(WITH_BODY)]
        staying = [await body(store, 100 + n) for n in range(2)]
        names = [ref.digest for ref in going] + [staying[0].digest] + [""] * (LAPSED - WITH_BODY - 1)
        past = time.time() - 3 * DAY
        await asyncio.gather(*(done(store, at=past, blob=name) for name in names))
        doubtful, entry = calls.claim(store.owner, at=past)
        doubtful = replace(doubtful, request_blob=staying[1].digest)
        assert (await store.swap(doubtful, entry, expected=0)).won
        doubtful, entry = calls.lose(doubtful)
        assert (await store.swap(doubtful, entry, expected=1)).won
        left = [doubtful, await done(store, at=time.time(), blob=staying[0].digest)]
        await age_all(store)
        return left, going
    finally:
        await store.close()


async def killed(state: Path, point: Point, after: int) -> int:
    """`semel gc`, and how it ended."""
    where = ambient.options() or ["--state-dir", str(state)]
    armed = json.dumps(kill_at(point, after))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.serve_armed", armed, "gc", *where,
        cwd=ROOT, env={**os.environ, **ambient.environment()},
    )  # fmt: skip
    async with asyncio.timeout(30):
        return await process.wait()


async def are_there(store: Store, refs: list[BlobRef]) -> int:
    number = 0
    for ref in refs:
        try:
            number += len(b"".join([part async for part in store.read_blob(ref)])) == ref.size
        except BlobLost:
            continue
    return number


@pytest.mark.parametrize(
    ("point", "after"), [(Point.CALLS_COLLECTED, 1), (Point.CALLS_COLLECTED, 2), (Point.BLOB_COLLECTED, 0)]
)
async def test_killed_while_it_collects(tmp_path: Path, point: Point, after: int) -> None:
    """Rows may be gone whose bodies are not; never the other way round. What is open, and what is not over,
    is not touched."""
    state = tmp_path / "state"
    left, going = await filled(state)
    assert await killed(state, point, after) == -signal.SIGKILL
    store = await ambient.opened(state)
    try:
        assert await assert_whole(store, request_size=SIZE) >= 2
        lapsed = [call async for call in all_calls(store) if call not in left]
        bodies = await are_there(store, going)
        if point is Point.CALLS_COLLECTED:
            assert len(lapsed) == max(0, LAPSED - (after + 1) * PORTION)
            assert bodies == WITH_BODY
        else:
            assert lapsed == []
            assert bodies < WITH_BODY
        would = await store.collect(time.time(), dry_run=True)
        assert (would.calls, would.blobs) == (len(lapsed), bodies)
        async for did in collecting(store, SystemClock(), 30 * DAY):  # noqa: B007 (the last of them)
            assert await assert_whole(store, request_size=SIZE) >= 2
        assert did == would
        assert {call.key: call async for call in all_calls(store)} == {call.key: call for call in left}
        assert await assert_whole(store, request_size=SIZE) == 2
        assert await are_there(store, going) == 0
        census = (await store.census()).by_state
        assert (census[State.IN_DOUBT], census[State.DONE]) == (1, 1)
        nothing = Collected(calls=0, blobs=0, bytes=0, more=False)
        assert await store.collect(time.time(), dry_run=True) == nothing
    finally:
        await store.close()
