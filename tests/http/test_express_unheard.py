"""A settlement that landed while nobody was told so: what stands there is the call's own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.faults import Point
from tests.crash.scene import store_failing
from tests.http.expressed import Trips, ask, body, both_ways
from tests.http.planned import compared
from tests.inside import until
from tests.origin import READ_ALL, Wait, answer

SAID = {"final": answer(200, b"fine"), "refused": answer(404, b"none"), "released": answer(429, b"later")}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
async def test_a_settlement_that_landed_unheard_is_its_own(tmp_path: Path, trips: Trips, said: bytes) -> None:
    """As by the long way: the caller is told that it was executed, and nothing more is put on record."""
    async with both_ways(tmp_path) as both:
        await compared(both, ask(10))
        trips.forget()
        told = []
        for side in both:
            go_on, failed = asyncio.Event(), asyncio.Event()
            side.origin.then((*READ_ALL, Wait(go_on), said))
            before = side.origin.started
            asking = asyncio.create_task(side.told(ask(0)))
            await until(lambda: side.origin.started == before + 1)  # noqa: B023 (awaited at once)
            async with store_failing(Point.COMMITTED, failed=failed):
                go_on.set()
                await failed.wait()
            told.append(await asking)
        assert trips.out == [body(0)]
        by_express, by_the_long_way = told
        assert [len(one.sent) for one in told] == [1, 1]
        assert len(by_the_long_way.history) == 2
        assert by_express.history == by_the_long_way.history
        assert by_express == by_the_long_way
