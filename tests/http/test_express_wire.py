"""Express on the wire: requests behind one another, the same from several, clients that do not read.

What is answered is in test_express.py, what breaks in test_express_faults.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.front.connection import Connection
from tests.forward.scene import client
from tests.http.expressed import Trips, ask, asked, body, echo, express, in_the_air, landed, slow, talking
from tests.http.planned import JSON, Side
from tests.http.streaming import chunk
from tests.inside import Answer, read_answer, until
from tests.origin import READ_ALL, Wait, answer

# ---- behind one another ----


def sent(there: Side, since: int) -> list[bytes]:
    """The bodies that reached the upstream, in order."""
    return [bytes(seen.body) for seen in there.origin.requests[since:]]


@pytest.mark.usefixtures("some_store")
@pytest.mark.parametrize("count", [2, 3])
async def test_requests_in_one_go_are_answered_in_order(tmp_path: Path, trips: Trips, count: int) -> None:
    """None goes by express; each is sent once, when its turn has come, and so is the next by itself."""
    async with express(tmp_path, trips) as there, talking(there, trips) as outside:
        before = there.origin.started
        outside.writer.write(b"".join(map(ask, range(count))))
        async with asyncio.timeout(15):
            got = [await read_answer(outside.reader) for _ in range(count)]
        assert [(one.semel, one.body) for one in got] == [("executed", echo(n)) for n in range(count)]
        assert trips.out == []
        assert (await asked(outside, 9)).body == echo(9)
        assert sorted(sent(there, before)) == [body(n) for n in (*range(count), 9)]


@pytest.mark.usefixtures("some_store")
@pytest.mark.parametrize("more", [1, 2])
async def test_a_request_behind_one_under_way_waits_for_its_turn(
    tmp_path: Path, trips: Trips, more: int
) -> None:
    """Nothing of it is sent before the reply to the first is written; all come in order."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        outside.writer.write(ask(0))
        await until(lambda: there.origin.started == before + 1)
        outside.writer.write(b"".join(ask(1 + n) for n in range(more)))
        (connection,) = there.app._listener.connections
        await until(lambda: len(connection._messages) == more)
        assert sent(there, before) == [body(0)]
        go_on.set()
        async with asyncio.timeout(15):
            got = [await read_answer(outside.reader) for _ in range(1 + more)]
        assert [(one.semel, one.body) for one in got] == [("executed", echo(n)) for n in range(1 + more)]
        assert trips.out == trips.back == [body(0)]
        assert (await asked(outside, 9)).body == echo(9)
        assert sorted(sent(there, before)) == [body(n) for n in (*range(1 + more), 9)]


REQUEST = ask(1)
END = REQUEST.index(b"\r\n\r\n")


@pytest.mark.parametrize("cut", [1, 20, END, END + 2, END + 3, END + 4, END + 5, len(REQUEST) - 1])
@pytest.mark.parametrize("rest", ["meanwhile", "behind the reply"])
async def test_a_part_of_the_next_request_comes_while_one_is_under_way(
    tmp_path: Path, trips: Trips, cut: int, rest: str
) -> None:
    """Cut wherever it may be: the first is answered, then the second, and nothing of either is lost or sent
    twice."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        outside.writer.write(ask(0))
        await until(lambda: there.origin.started == before + 1)
        (connection,) = there.app._listener.connections
        assert isinstance(connection, Connection)
        whole = connection._behind_head
        outside.writer.write(REQUEST[:cut])
        await until(lambda: connection._behind_head == whole + cut)
        if rest == "meanwhile":
            outside.writer.write(REQUEST[cut:])
            await until(lambda: connection._behind_head == whole + len(REQUEST))
        go_on.set()
        async with asyncio.timeout(15):
            first = await read_answer(outside.reader)
            if rest != "meanwhile":
                outside.writer.write(REQUEST[cut:])
            second = await read_answer(outside.reader)
        assert [first.body, second.body] == [echo(0), echo(1)]
        assert (await asked(outside, 9)).body == echo(9)
        assert sorted(sent(there, before)) == [body(n) for n in (0, 1, 9)]


async def test_what_is_no_request_behind_one_under_way_is_refused_behind_its_reply(
    tmp_path: Path, trips: Trips
) -> None:
    """The first one's answer is its own, whole and first; then the connection ends."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        outside.writer.write(ask(0))
        await until(lambda: there.origin.started == before + 1)
        (connection,) = there.app._listener.connections
        outside.writer.write(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
        await until(lambda: connection._messages)
        go_on.set()
        async with asyncio.timeout(15):
            got = [await read_answer(outside.reader) for _ in range(2)]
            assert await outside.ended() == b""
        assert [one.status for one in got] == [200, 400]
        assert got[0].body == echo(0)
        assert (trips.back, sent(there, before)) == ([body(0)], [body(0)])


# ---- the same from several ----


async def both_answers(there: Side, trips: Trips, go_on: asyncio.Event, *steps: bytes) -> list[Answer]:
    """Of one that goes by express and the same from another connection, while the first is in the air."""
    script = (*READ_ALL, Wait(go_on), *steps)
    async with talking(there, trips, script) as first, client(there.port) as second:
        asking = asyncio.create_task(asked(first, 0))
        await until(lambda: trips.out == [body(0)])
        joining = asyncio.create_task(asked(second, 0))
        await until(lambda: [flight.callers for flight in in_the_air(there)] == [2])
        go_on.set()
        return [await asking, await joining]


def told(got: list[Answer]) -> list[tuple[int, str | None, bytes]]:
    return [(one.status, one.semel, one.body) for one in got]


JOINED = {
    "whole": ((answer(200, b"fine"),), (200, b"fine")),
    "in two segments": (
        (answer(200, b"fine and long")[:-5], answer(200, b"fine and long")[-5:]),
        (200, b"fine and long"),
    ),
    "in chunks": (
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"fine"), b"0\r\n\r\n"),
        (200, b"fine"),
    ),
    "without a body": ((b"HTTP/1.1 204 No Content\r\n\r\n",), (204, b"")),
    "released": ((answer(429, b"later"),), (429, b"later")),
}


@pytest.mark.usefixtures("some_store")
@pytest.mark.parametrize(("steps", "what"), JOINED.values(), ids=JOINED)
async def test_the_same_call_joins_one_that_went_by_express(
    tmp_path: Path, trips: Trips, steps: tuple[bytes, ...], what: tuple[int, bytes]
) -> None:
    """It is sent once, and both get all of its answer."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there:
        before = there.origin.started + 1
        got = await both_answers(there, trips, go_on, *steps)
        status, text = what
        assert told(got) == [(status, "executed", text), (status, "joined", text)]
        assert all(one.complete for one in got)
        assert there.origin.started == before + 1
        assert (trips.out, trips.left) == ([body(0)], [])
        await landed(there)


@pytest.mark.usefixtures("some_store")
async def test_both_are_told_of_a_doubt(tmp_path: Path, trips: Trips) -> None:
    """The upstream fails: neither caller is left waiting, and nothing is sent again."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there:
        before = there.origin.started + 1
        got = await both_answers(there, trips, go_on, answer(500, b"broken"))
        assert [(one.status, b"urn:semel:in-doubt" in one.body) for one in got] == [(409, True)] * 2
        assert there.origin.started == before + 1


async def test_parts_are_seen_by_both_as_they_come(tmp_path: Path, trips: Trips) -> None:
    """Who came first by express sees what is here, as does who joined, while the end is still to come."""
    whole, go_on = answer(200, b"first half, second half"), asyncio.Event()
    async with (
        express(tmp_path, trips) as there,
        talking(there, trips, (*READ_ALL, whole[:-11], Wait(go_on), whole[-11:])) as first,
        client(there.port) as second,
    ):
        before = there.origin.started
        async with asyncio.timeout(15):
            for one in (first, second):
                one.writer.write(ask(0))
                assert b"200" in await one.reader.readuntil(b"first half,")
            go_on.set()
            assert [await one.reader.readexactly(12) for one in (first, second)] == [
                b" second half"[-12:]
            ] * 2
        assert trips.out == trips.handed == [body(0)]
        assert there.origin.started == before + 1


@pytest.mark.usefixtures("some_store")
async def test_of_many_at_once_one_is_sent(tmp_path: Path, trips: Trips) -> None:
    """Thirty connections ask for three calls in one turn: three are sent, and everybody is answered."""
    async with express(tmp_path, trips) as there:
        before = there.origin.started
        got = await asyncio.gather(*(there.ask(ask(n % 3)) for n in range(30)))
        assert [one.body for one in got] == [echo(n % 3) for n in range(30)]
        assert [one.semel for one in got].count("executed") == 3
        assert sorted(sent(there, before)) == [body(n) for n in range(3)]
        assert set(trips.out) == {body(n) for n in range(3)}


# ---- one after another, and the end ----


async def test_many_in_a_row_on_one_connection_get_their_own_answers(tmp_path: Path, trips: Trips) -> None:
    """Two hundred, each by express and sent once, and no task for any of them."""
    async with express(tmp_path, trips) as there, talking(there, trips) as outside:
        before = there.origin.started
        for n in range(200):
            got = await asked(outside, n)
            assert (got.semel, got.body) == ("executed", echo(n))
        assert trips.out == trips.back == sent(there, before) == [body(n) for n in range(200)]
        assert len(there.app._listener.connections) == 1


async def test_many_connections_side_by_side_get_their_own_answers(tmp_path: Path, trips: Trips) -> None:
    """Twenty, each with ten calls of its own: nobody gets another's answer, none is sent twice."""
    async with express(tmp_path, trips) as there:
        before = there.origin.started

        async def one_by_one(first: int) -> None:
            async with client(there.port) as outside:
                for n in range(first, first + 10):
                    got = await asked(outside, n)
                    assert (got.semel, got.body) == ("executed", echo(n))

        await asyncio.gather(*(one_by_one(10 * n) for n in range(20)))
        assert sorted(trips.out) == sorted(sent(there, before)) == [body(n) for n in range(200)]


async def test_a_last_request_closes_its_connection(tmp_path: Path, trips: Trips) -> None:
    """`Connection: close` is not for express; behind others that were it is answered, and then it ends."""
    async with express(tmp_path, trips) as there, talking(there, trips) as outside:
        for n in range(2):
            assert (await asked(outside, n)).body == echo(n)
        async with asyncio.timeout(15):
            last = await outside.ask(ask(2, {**JSON, "Connection": "close"}))
            assert (last.body, last.get("Connection")) == (echo(2), "close")
            assert await outside.ended() == b""
        assert trips.out == [body(0), body(1)]


async def test_an_old_client_is_served_as_ever(tmp_path: Path, trips: Trips) -> None:
    """HTTP/1.0 has no connection that lasts unless it says so."""
    async with express(tmp_path, trips) as there, client(there.port) as outside:
        async with asyncio.timeout(15):
            got = await outside.ask(ask(0).replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert (got.semel, got.body) == ("executed", echo(0))
            assert await outside.ended() == b""
        assert trips.out == []


async def test_a_repeat_is_recalled_and_what_is_new_goes_by_express(tmp_path: Path, trips: Trips) -> None:
    """By turns on one connection, with answers kept in memory: each has its own, and each is sent once."""
    async with (
        express(tmp_path, trips, settings={"recall": True}) as there,
        talking(there, trips) as outside,
    ):
        before = there.origin.started
        for _ in range(4):
            got = await asked(outside, 0)
            assert got.body == echo(0)
        assert got.semel == "replayed"
        for n in range(1, 30):
            assert ((await asked(outside, n)).body, (await asked(outside, 0)).body) == (echo(n), echo(0))
        assert sent(there, before) == [body(n) for n in range(30)]


async def test_a_connection_may_be_idle_behind_a_trip_and_a_trip_may_take_its_time(
    tmp_path: Path, trips: Trips
) -> None:
    """Longer than a head may be on its way; half a head is timed as ever, and ends the connection."""
    go_on = asyncio.Event()
    limits = {"limits.header_timeout": "200ms"}
    async with (
        express(tmp_path, trips, settings=limits) as there,
        talking(there, trips, slow(go_on)) as outside,
    ):
        asking = asyncio.create_task(asked(outside, 0))
        await asyncio.sleep(0.4)  # what is shown is that nothing happens
        go_on.set()
        assert (await asking).body == echo(0)
        await asyncio.sleep(0.4)
        before = there.origin.started
        there.origin.then(slow(go_on))
        go_on.clear()
        outside.writer.write(ask(1))
        await until(lambda: there.origin.started == before + 1)
        outside.writer.write(ask(2)[:30])
        go_on.set()
        async with asyncio.timeout(15):
            assert (await read_answer(outside.reader)).body == echo(1)
            await outside.ended()
        assert trips.out == trips.back == [body(0), body(1)]
        assert there.origin.started == before + 1


# ---- who does not read ----


async def test_behind_a_reply_that_is_not_taken_nothing_is_served(tmp_path: Path, trips: Trips) -> None:
    """Requests one by one from a client that reads nothing, until a reply stands in semel's own buffer: what
    is asked then waits. When all is read every answer is there, in order, each sent once."""
    text = b"x" * 60_000
    async with (
        express(tmp_path, trips) as there,
        talking(there, trips, *[(*READ_ALL, answer(200, b"%3d" % n + text)) for n in range(300)]) as outside,
    ):
        before = there.origin.started
        (connection,) = there.app._listener.connections
        outside.writer.transport.pause_reading()  # type: ignore[attr-defined]
        asked_for = 0
        while not connection._paused:
            assert asked_for < 290, "nobody can have room for so much"
            outside.writer.write(ask(asked_for))
            asked_for += 1
            await until(lambda: len(trips.back) == asked_for)  # noqa: B023 (awaited at once)
            await asyncio.sleep(0)
        outside.writer.write(ask(asked_for))
        await until(lambda: connection._messages or len(trips.out) > asked_for)
        await landed(there)
        assert there.origin.started == before + asked_for
        outside.writer.write(ask(asked_for + 1))
        outside.writer.transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(15):
            got = [await read_answer(outside.reader) for _ in range(asked_for + 2)]
        assert [one.body[:3] for one in got] == [b"%3d" % n for n in range(asked_for + 2)]
        assert {len(one.body) for one in got} == {3 + len(text)}
        assert sent(there, before) == [body(n) for n in range(asked_for + 2)]
