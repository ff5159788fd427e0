"""Plain calls by express: whatever is answered, they end as by the long way, to the last byte.

Sent, written down, answered, told and counted. What comes in between is in the files beside this one.
"""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy.flight import Flight
from proxy.front.connection import Connection
from proxy.front.express import FRAMES, Trip
from proxy.nonstop import Nonstop
from proxy.upstream.soon import Soon
from tests.forward.scene import client
from tests.http.expressed import (
    Trips,
    ask,
    asked,
    body,
    both_ways,
    echo,
    express,
    in_the_air,
    landed,
    talking,
)
from tests.http.planned import Pair, Side, Told, compared, ended_alike, post
from tests.http.streaming import chunk
from tests.http.test_circles import kept
from tests.inside import read_answer, until
from tests.origin import READ_ALL, Close, Reset, Script, Step, Wait, answer


async def test_a_call_by_express_is_what_it_is_by_the_long_way(tmp_path: Path, trips: Trips) -> None:
    """No task waits for it, and every byte, line, row and figure is the same. So are replays: the first sets
    out, loses its claim and is given what stands there; before the next ones set out, it is looked."""
    async with both_ways(tmp_path) as both:
        trips.forget()
        told = await compared(both, *map(ask, range(3)))
        assert trips.out == trips.back == [body(n) for n in range(3)]
        assert (trips.handed, trips.left, trips.tasks) == ([], [], 0)
        for n, one in enumerate(told):
            assert (one.answer[0], one.answer[2]) == (200, echo(n))
            assert [sent for _, sent in one.sent] == [body(n)]
            assert one.row is not None
            assert (one.row.state, one.row.version, len(one.history)) == ("done", 2, 2)
        again = await compared(both, *map(ask, range(3)))
        assert [(one.sent, one.row) for one in again] == [([], one.row) for one in told]
        assert (trips.out[3:], trips.handed, trips.back[3:]) == ([body(0)], [body(0)], [])
        await ended_alike(both)
    assert both.planned.lines() == both.long.lines()
    assert len(both.planned.lines()) >= 6


class Kind(NamedTuple):
    """What the upstream says. `PAUSE`: it goes on when what it said has come. `awaited`: by express too."""

    steps: tuple[Step | None, ...]
    status: int = 200
    state: str = "done"
    again: str = "replayed"
    awaited: bool = True


PAUSE = None
TEXT = b"a few words that are said at once"
HEAD = answer(200, TEXT).removesuffix(TEXT)
MANY = (
    (b"Set-Cookie", b"a=1"),
    (b"set-cookie", b"b=2"),
    (b"X-Odd", b"\xe9 \t,"),
    (b"Semel-Status", b"forged"),
)
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DOUBT = ("in_doubt", "in-doubt")
KINDS = {
    "whole": Kind((HEAD + TEXT,), awaited=False),
    "nothing but a head": Kind((answer(201, b""),), 201, awaited=False),
    "many headers": Kind((answer(202, TEXT, *MANY),), 202, awaited=False),
    "a header like the id that stands for one": Kind(
        (answer(200, TEXT, (b"X-Id", b"0123456789abcdef" * 2)),), awaited=False
    ),
    "a long head": Kind((answer(200, TEXT, (b"X-Long", b"x" * 5000)),), awaited=False),
    "more than it said": Kind((HEAD + TEXT + b"and more", Close()), awaited=False),
    "two segments": Kind((HEAD + TEXT[:9], PAUSE, TEXT[9:])),
    "head and body apart": Kind((HEAD, PAUSE, TEXT)),
    "half a head": Kind((HEAD[:25], PAUSE, HEAD[25:] + TEXT), awaited=False),
    "chunks at once": Kind((CHUNKS + chunk(TEXT[:9]) + chunk(TEXT[9:]) + b"0\r\n\r\n",), awaited=False),
    "chunks": Kind((CHUNKS + chunk(TEXT[:9]), PAUSE, chunk(TEXT[9:]) + b"0\r\n\r\n")),
    "an empty chunk": Kind((CHUNKS + b"0\r\n\r\n",), awaited=False),
    "204": Kind((b"HTTP/1.1 204 No Content\r\n\r\n",), 204, awaited=False),
    "304": Kind((b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n',), 304, awaited=False),
    "304 with the length of another": Kind(
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n",), 304, awaited=False
    ),
    "longer than a row holds": Kind((answer(200, b"x" * 1025),)),
    "as long as a row holds": Kind((answer(200, b"x" * 1024),), awaited=False),
    "events": Kind((EVENTS + chunk(b"data: 1\n\n") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n",)),
    "events, one after another": Kind(
        (EVENTS + chunk(b"data: 1\n\n"), PAUSE, chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    ),
    "Connection: close": Kind((answer(200, TEXT, (b"Connection", b"close")), Close()), awaited=False),
    "until the end": Kind((b"HTTP/1.1 200 OK\r\n\r\n" + TEXT, Close())),
    "early hints before": Kind(
        (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + HEAD + TEXT,), awaited=False
    ),
    "early hints, then a pause": Kind(
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", PAUSE, HEAD + TEXT), awaited=False
    ),
    "continue, then a pause": Kind((b"HTTP/1.1 100 Continue\r\n\r\n", PAUSE, HEAD + TEXT), awaited=False),
    "302": Kind((answer(302, b"", (b"Location", b"/elsewhere")),), 302, awaited=False),
    "404": Kind((answer(404, TEXT),), 404, awaited=False),
    "409": Kind((answer(409, TEXT),), 409, awaited=False),
    "401": Kind((answer(401, TEXT),), 401, "released", "executed", awaited=False),
    "429": Kind((answer(429, TEXT, (b"Retry-After", b"1")),), 429, "released", "executed", awaited=False),
    "408": Kind((answer(408, TEXT),), 409, *DOUBT),
    "500": Kind((answer(500, b'{"said": "Bearer geheim is no good"}'),), 409, *DOUBT),
    "503 in two segments": Kind((answer(503, TEXT)[:-9], PAUSE, TEXT[-9:]), 409, *DOUBT),
    "not a word": Kind((Close(),), 409, *DOUBT),
    "a reset": Kind((Reset(),), 409, *DOUBT),
    "half a head, and no more": Kind((HEAD[:25], Close()), 409, *DOUBT),
    "no HTTP": Kind((b"what?\r\n\r\n", Close()), 409, *DOUBT),
    "two lengths": Kind(
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",), 409, *DOUBT
    ),
    "half a body": Kind((HEAD + TEXT[:9], Close()), 200, *DOUBT),
}


def scripted(side: Side, kind: Kind) -> tuple[Script, asyncio.Task[None] | None]:
    if PAUSE not in kind.steps:
        return (*READ_ALL, *(step for step in kind.steps if step is not None)), None
    go_on = asyncio.Event()
    steps = [Wait(go_on) if step is None else step for step in kind.steps]
    return (*READ_ALL, *steps), asyncio.create_task(_let_go(side, go_on))


async def _let_go(side: Side, go_on: asyncio.Event) -> None:
    await until(lambda: any(map(_waits_for_the_rest, in_the_air(side))))
    go_on.set()


def _waits_for_the_rest(flight: Flight) -> bool:
    """Where that is done by a task from the start, the rest may as well come at once."""
    if flight.task is not None:
        return True
    way = flight._way if isinstance(flight, Nonstop) else None
    return isinstance(way, Soon) and way._connection._answer is not None


async def told_alike(both: Pair, kind: Kind, request: bytes) -> Told:
    """Of an upstream that says it once more."""
    told = []
    for side in both:
        script, letting_go = scripted(side, kind)
        side.origin.then(script)
        told.append(await side.told(request))
        if letting_go is not None:
            await letting_go
    assert told[0] == told[1]
    return told[0]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_every_answer_ends_as_by_the_long_way(tmp_path: Path, trips: Trips, kind: Kind) -> None:
    """The first of its head and the second, each over a connection upstream that is warm; each is sent once,
    and asked for again both ways make the same of it, and nothing more."""
    async with both_ways(tmp_path, settings={"limits.inline_body": "1KiB"}) as both:
        for n in range(2):
            await compared(both, ask(10 + n))
            trips.forget()
            one = await told_alike(both, kind, ask(n))
            assert trips.out == [body(n)]
            assert len(trips.back) + len(trips.handed) == 1
            assert trips.tasks == kind.awaited
            assert [sent for _, sent in one.sent] == [body(n)]
            assert one.row is not None
            assert (one.answer[0], one.row.state) == (kind.status, kind.state)
        for n in range(2):
            (again,) = await compared(both, ask(n))
            assert (again.sent != []) is (kind.again == "executed")
            assert kind.again in repr(again.answer)
        await ended_alike(both)
    assert both.planned.lines() == both.long.lines()
    assert "geheim" not in both.planned.log.getvalue()


async def test_every_reply_has_the_head_of_its_own_answer(tmp_path: Path, trips: Trips) -> None:
    """Of more heads than are remembered, each twice: with its own id, headers and body."""
    async with express(tmp_path, trips) as there, talking(there, trips) as outside:
        ids = set()
        for n in range(2 * (FRAMES + 10)):
            which = b"%d" % (n // 2)
            there.origin.then((*READ_ALL, answer(200 + n // 2 % 2, which * 2, (b"X-Which", which))))
            got = await asked(outside, n)
            assert (got.status, got.get("X-Which"), got.body) == (200 + n // 2 % 2, which.decode(), which * 2)
            ids.add(got.get("Semel-Call"))
        assert len(trips.out) == len(trips.back) == len(ids) == 2 * (FRAMES + 10)


@pytest.mark.parametrize("pieces", [1, 7])
async def test_a_long_body_goes_by_express_too(tmp_path: Path, trips: Trips, pieces: int) -> None:
    """However it is cut up as it comes: sent as it is, written down as by the long way."""
    bodies = [b'"%s"' % (b"%06d" % n * 10_000) for n in range(4)]
    async with both_ways(tmp_path) as both:
        await compared(both, *map(post, bodies[:2]))
        trips.forget()
        (one,) = await compared(both, post(bodies[2]))
        assert [sent for _, sent in one.sent] == [bodies[2]]
        async with client(both.planned.port) as outside:
            whole = post(bodies[3])
            size = -(-len(whole) // pieces)
            for at in range(0, len(whole), size):
                outside.writer.write(whole[at : at + size])
                await outside.writer.drain()
            async with asyncio.timeout(15):
                assert (await read_answer(outside.reader)).body.endswith(bodies[3])
        assert trips.out == bodies[2:]


async def test_of_five_hundred_calls_nothing_stays(tmp_path: Path, trips: Trips) -> None:
    """On one connection and on others, answered whole and in parts: no flight, no trip, no name; and nothing
    that only the collector would find, least of all a body."""
    parts = HEAD + TEXT[:9], TEXT[9:]
    async with express(tmp_path, trips) as there, talking(there, trips) as outside:
        with kept(b'{"n":') as found:
            for n in range(500):
                if n % 50 == 49:
                    go_on = asyncio.Event()
                    there.origin.then((*READ_ALL, parts[0], Wait(go_on), parts[1]))
                    letting_go = asyncio.create_task(_let_go(there, go_on))
                    assert (await asked(outside, n)).body == TEXT
                    await letting_go
                else:
                    got = await (there.ask(ask(n)) if n % 10 == 0 else asked(outside, n))
                    assert got.body == echo(n)
            await landed(there)
        assert found == []
        assert len(trips.out) == len(trips.back) + len(trips.handed) == 500
        assert len(trips.handed) == 10
        await until(lambda: len(there.app._listener.connections) == 1)
        (connection,) = there.app._listener.connections
        assert isinstance(connection, Connection)
        assert (connection._trip, connection._parked, connection._begun) == (None, None, None)
        assert there.app.flights._aloft == {}
        assert not gathered(Trip, Nonstop)


def gathered(*kinds: type) -> list[object]:
    """All there are of these kinds."""
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, kinds)]
