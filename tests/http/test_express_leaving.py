"""Calls by express whose client leaves: the call is finished and kept, and sent once.

And the order that this hangs on: recorded, sent, recorded, answered.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.front.express import Trip
from tests.forward.scene import Client, client
from tests.http.expressed import (
    Trips,
    ask,
    asked,
    body,
    echo,
    ends_once,
    express,
    in_the_air,
    landed,
    slow,
    talking,
)
from tests.http.streaming import chunk, next_commit_held
from tests.inside import until
from tests.origin import READ_ALL, Wait, answer

on_some_store = pytest.mark.usefixtures("some_store")


# ---- in this order: recorded, sent, recorded, answered ----


@on_some_store
async def test_nothing_is_sent_before_the_claim_is_written(tmp_path: Path, trips: Trips) -> None:
    """While the commit of the claim is held not a byte goes upstream."""
    async with express(tmp_path, trips) as there, talking(there, trips) as outside:
        with next_commit_held() as held:
            received = there.origin.received
            asking = asyncio.create_task(asked(outside, 0))
            await held.reached()
            assert (trips.out, there.origin.received, asking.done()) == ([body(0)], received, False)
            held.let_go()
            assert (await asking).body == echo(0)
        assert trips.back == [body(0)]


@on_some_store
async def test_nothing_is_said_before_the_answer_is_written(tmp_path: Path, trips: Trips) -> None:
    """While the commit of the settlement is held the client has no byte of the reply."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        asking = asyncio.create_task(asked(outside, 0))
        await until(lambda: there.origin.started == before + 1)
        with next_commit_held() as held:
            go_on.set()
            await held.reached()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asking), 0.1)
            assert (trips.out, trips.back, trips.handed) == ([body(0)], [], [])
            held.let_go()
            assert (await asking).body == echo(0)
        assert trips.back == [body(0)]
        await ends_once(there, before, (200, "replayed"))


# ---- who leaves ----


async def leaves(outside: Client, trips: Trips) -> None:
    outside.writer.transport.abort()
    await until(lambda: trips.left == [body(0)])


LONG = b"x" * 3 * 1024 * 1024
IN_PARTS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(LONG) + b"0\r\n\r\n"
# What is said to who has left, with the limits of `LIMITS`; what the same call is told then.
SAID = {
    "whole": (answer(200, b"fine"), (200, "replayed")),
    "in parts": (answer(200, b"y" * 30_000), (200, "replayed")),
    "in chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"y" * 30_000) + b"0\r\n\r\n",
        (200, "replayed"),
    ),
    "longer than is kept": (answer(200, LONG), (410, "refused")),
    "longer than is kept, in chunks": (IN_PARTS, (410, "refused")),
    "a failure": (answer(500, b"broken"), (409, "refused")),
    "released": (answer(429, b"later"), (200, "executed")),
}
LIMITS = {"limits.response_body": "64KiB", "limits.inline_body": "1KiB"}


@on_some_store
@pytest.mark.parametrize(("said", "again"), SAID.values(), ids=SAID)
async def test_who_leaves_while_the_upstream_has_it_stops_nothing(
    tmp_path: Path, trips: Trips, said: bytes, again: tuple[int, str]
) -> None:
    """The call is finished and kept. Where more comes than is kept it is read to its end, though nobody reads
    it here."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips, settings=LIMITS) as there:
        async with talking(there, trips, slow(go_on, said)) as outside:
            before = there.origin.started
            outside.writer.write(ask(0))
            await until(lambda: there.origin.started == before + 1)
            await leaves(outside, trips)
            go_on.set()
        await until(lambda: not there.app._listener.connections)
        await landed(there)
        assert (trips.out, trips.back, trips.handed) == ([body(0)], [], [])
        await ends_once(there, before + (again[1] == "executed"), again)


@on_some_store
@pytest.mark.parametrize(("said", "again"), SAID.values(), ids=SAID)
async def test_who_leaves_while_the_claim_is_written_stops_nothing(
    tmp_path: Path, trips: Trips, said: bytes, again: tuple[int, str]
) -> None:
    """The request was complete: it is sent as soon as it may be, finished and kept."""
    async with express(tmp_path, trips, settings=LIMITS) as there:
        async with talking(there, trips, (*READ_ALL, said)) as outside:
            before = there.origin.started
            with next_commit_held() as held:
                outside.writer.write(ask(0))
                await held.reached()
                await leaves(outside, trips)
                assert there.origin.started == before
                held.let_go()
            await until(lambda: there.origin.started == before + 1)
        await ends_once(there, before + (again[1] == "executed"), again)


@on_some_store
async def test_who_leaves_while_the_answer_is_written_stops_nothing(tmp_path: Path, trips: Trips) -> None:
    """The answer is kept, and the next who asks has it."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there:
        async with talking(there, trips, slow(go_on)) as outside:
            before = there.origin.started
            outside.writer.write(ask(0))
            await until(lambda: there.origin.started == before + 1)
            with next_commit_held() as held:
                go_on.set()
                await held.reached()
                await leaves(outside, trips)
                held.let_go()
        await ends_once(there, before, (200, "replayed"))
        assert (await there.ask(ask(0))).body == echo(0)


@on_some_store
@pytest.mark.parametrize("said", [answer(200, b"fine"), IN_PARTS], ids=["whole", "longer than is kept"])
async def test_who_joined_stays_when_the_first_one_leaves(tmp_path: Path, trips: Trips, said: bytes) -> None:
    """It gets all of the answer, which was sent for once."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips, settings=LIMITS) as there, client(there.port) as second:
        async with talking(there, trips, slow(go_on, said)) as first:
            before = there.origin.started
            first.writer.write(ask(0))
            await until(lambda: there.origin.started == before + 1)
            joining = asyncio.create_task(asked(second, 0))
            await until(lambda: [flight.callers for flight in in_the_air(there)] == [2])
        await until(lambda: [flight.callers for flight in in_the_air(there)] == [1])
        go_on.set()
        got = await joining
        assert (got.status, got.semel, got.complete) == (200, "joined", True)
        assert got.body == (b"fine" if said is not IN_PARTS else LONG)
        await landed(there)
        assert there.origin.started == before + 1


async def test_who_leaves_in_the_very_turn_in_which_parts_come_is_not_served(
    tmp_path: Path, trips: Trips, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is lost before the task can go on with it: nothing is handed over, the call is kept."""
    told, go_on = Trip.set_result, asyncio.Event()

    def lost(trip: Trip, result: None) -> None:
        if trip._live.given is not None:
            trip._connection.abort()
        told(trip, result)

    async with express(tmp_path, trips) as there:
        whole = answer(200, b"first, last")
        script = (*READ_ALL, whole[:-4], Wait(go_on), whole[-4:])
        async with talking(there, trips, script) as outside:
            monkeypatch.setattr(Trip, "set_result", lost)
            before = there.origin.started
            outside.writer.write(ask(0))
            await until(lambda: trips.left == [body(0)])
            go_on.set()
        await landed(there)
        assert (trips.out, trips.handed, trips.back) == ([body(0)], [], [])
        monkeypatch.setattr(Trip, "set_result", told)
        await ends_once(there, before, (200, "replayed"))
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("closing", ["fin", "rst"])
async def test_who_leaves_is_told_of_as_by_the_long_way(tmp_path: Path, trips: Trips, closing: str) -> None:
    """One line in the log and one call counted: executed, and not delivered."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        counted = await there.counters()
        outside.writer.write(ask(0))
        await until(lambda: there.origin.started == before + 1)
        if closing == "fin":
            outside.writer.close()
            await until(lambda: trips.left == [body(0)])
        else:
            await leaves(outside, trips)
        go_on.set()
        await landed(there)
        (more,) = [
            name
            for name, value in (await there.counters()).items()
            if name.startswith("semel_calls_total") and value != counted.get(name)
        ]
        assert 'status="executed"' in more
    last = there.lines()[-1]
    assert (last["status"], last["code"]) == ("executed", 0)
