"""What a reading of the shortest way found: each is as the long way has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import StoreUnavailable
from proxy.flight import Flight
from proxy.front.connection import Connection
from proxy.front.express import Express
from proxy.nonstop import Nonstop
from proxy.store.embedded import EmbeddedStore
from proxy.store.worker import Outcome
from tests.forward.scene import Client, client
from tests.http.expressed import (
    Trips,
    ask,
    asked,
    body,
    both_ways,
    echo,
    ends_once,
    express,
    landed,
    slow,
    talking,
)
from tests.http.planned import JSON, Side, compared, planning, post, rule
from tests.inside import read_answer, request_bytes, until
from tests.origin import READ_ALL, Script, Wait

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n"
ON_DISK = {"store": "embedded"}
Told = Sequence[Outcome]


class Held:
    """The ends of the store's writes, from now on: told when the test says so, and how it says."""

    def __init__(self, there: Side, monkeypatch: pytest.MonkeyPatch) -> None:
        store = there.app.store
        assert isinstance(store, EmbeddedStore)
        self._tell = store._writer._resolve
        self._let_go = False
        self.ends: list[Told] = []
        monkeypatch.setattr(store._writer, "_resolve", self._told)

    def _told(self, end: Told) -> None:
        if self._let_go:
            self._tell(end)
        else:
            self.ends.append(end)

    def let_go(self) -> list[Callable[[], None]]:
        self._let_go = True
        return [partial(self._tell, end) for end in self.ends]

    def lost(self) -> list[Callable[[], None]]:
        """They landed, and the store does not say so."""
        self._let_go = True
        error = StoreUnavailable("the reply was lost")
        return [partial(self._tell, [(job, None, error) for job, _, _ in end]) for end in self.ends]


def of(there: Side, outside: Client) -> Connection:
    """The connection as semel has it."""
    own = outside.writer.get_extra_info("sockname")
    (found,) = [
        each
        for each in there.app._listener.connections
        if isinstance(each, Connection)
        and each.transport is not None
        and each.transport.get_extra_info("peername") == own
    ]
    return found


async def behind(there: Side, outside: Client, n: int) -> None:
    """Another request has come behind the one that is on its way."""
    connection = of(there, outside)
    assert connection._trip is not None
    outside.writer.write(ask(n))
    await until(lambda: connection._messages)


async def test_what_waits_behind_a_refused_claim_is_served(
    tmp_path: Path, trips: Trips, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether the claim stands, so nothing is sent; the connection goes on."""
    async with express(tmp_path, trips, settings=ON_DISK) as there, talking(there, trips) as outside:
        held = Held(there, monkeypatch)
        outside.writer.write(ask(1))
        await until(lambda: held.ends)
        await behind(there, outside, 2)
        for tell in held.lost():
            tell()
        async with asyncio.timeout(15):
            assert (await read_answer(outside.reader)).status == 503
            assert (await read_answer(outside.reader)).body == echo(2)
        assert trips.handed == [body(1)]
        await landed(there)


async def test_what_waits_behind_a_call_that_is_joined_at_its_end_is_served(
    tmp_path: Path, trips: Trips, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody joins in the very turn of the loop in which the settlement is told."""
    async with (
        express(tmp_path, trips, settings=ON_DISK) as there,
        client(there.port) as other,
        talking(there, trips) as outside,
    ):
        await until(lambda: len(there.app._listener.connections) > 1)
        before, go_on = there.origin.started, asyncio.Event()
        there.origin.then(slow(go_on))
        outside.writer.write(ask(1))
        await until(lambda: there.origin.started == before + 1)
        await behind(there, outside, 2)
        held = Held(there, monkeypatch)
        go_on.set()
        await until(lambda: held.ends)
        loop = asyncio.get_running_loop()
        loop.call_soon(of(there, other).data_received, ask(1))
        for tell in held.let_go():
            loop.call_soon(tell)
        async with asyncio.timeout(15):
            got = [await read_answer(each.reader) for each in (outside, other, outside)]
        assert [(each.semel, each.body) for each in got] == [
            ("executed", echo(1)),
            ("joined", echo(1)),
            ("executed", echo(2)),
        ]
        assert trips.handed == [body(1)]
        assert there.origin.started == before + 2


async def test_a_settlement_whose_reply_is_lost_is_known_as_ours(
    tmp_path: Path, trips: Trips, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It landed, with this answer: the call was executed, and nothing is noted as evidence."""
    async with express(tmp_path, trips, settings=ON_DISK) as there, talking(there, trips) as outside:
        before, go_on = there.origin.started, asyncio.Event()
        there.origin.then(slow(go_on))
        outside.writer.write(ask(1))
        await until(lambda: there.origin.started == before + 1)
        held = Held(there, monkeypatch)
        go_on.set()
        await until(lambda: held.ends)
        for tell in held.lost():
            tell()
        async with asyncio.timeout(15):
            got = await read_answer(outside.reader)
        assert (got.semel, got.get("Age"), got.body) == ("executed", None, echo(1))
        key = bytes.fromhex(got.get("Semel-Call") or "")
        assert [entry.event for entry in await there.app.store.history(key)] == ["claim", "answered"]
    assert there.log.getvalue().count('"store-trouble"') == 1
    assert "late" not in there.log.getvalue()


async def test_a_defect_does_not_say_what_the_rule_hides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error's message may repeat what it stumbled over."""
    hides = rule("redact: {args: [pw]}")

    def secret(n: int) -> bytes:
        return post(b'{"n":%d,"pw":"hunter-%d"}' % (n, n))

    flown: list[Nonstop] = []
    depart = Nonstop.depart

    def departs(flight: Nonstop) -> None:
        flown.append(flight)
        depart(flight)

    monkeypatch.setattr(Nonstop, "depart", departs)
    async with planning(tmp_path, rules=hides) as there:
        for n in range(10, 25):
            await there.ask(secret(n))
        flown.clear()

        def take(_: Flight, __: int, ___: object, answer: bytes) -> None:
            raise RuntimeError(f"stumbled over {answer!r}")

        monkeypatch.setattr(Flight, "take", take)
        assert (await there.ask(secret(99))).status == 409
    assert flown
    assert '"defect"' in there.log.getvalue()
    assert "hunter-99" not in there.log.getvalue()


async def test_a_long_body_lies_where_long_bodies_lie(tmp_path: Path, trips: Trips) -> None:
    """`limits.inline_body`, whichever way it goes."""
    long = b"x" * 2000
    async with both_ways(tmp_path, settings={"limits.inline_body": "1KiB"}) as both:
        trips.forget()
        told = await compared(both, *(post(b'{"n":%d,"x":"%b"}' % (n, long)) for n in range(10, 14)))
        assert all(each.row is not None and each.row.request_blob for each in told)
        assert trips.out == []


async def test_a_head_has_no_body_behind_its_answer(tmp_path: Path) -> None:
    """Also where the upstream does not say how long it would be: the next reply would begin in the middle."""

    def head(n: int) -> bytes:
        return request_bytes("HEAD", "/up/x/ann", JSON, body(n), host="127.0.0.1")

    answers: list[Script] = [(*READ_ALL, CHUNKED)] * 12
    async with planning(tmp_path, *answers, rules=rule("safe: false")) as there:
        async with client(there.port) as outside, asyncio.timeout(15):
            for n in range(12):
                got = await outside.ask(head(n), is_head=True)
                assert (got.status, got.semel) == (200, "executed")
        assert there.origin.started == 12


async def test_a_reply_that_cannot_be_made_breaks_the_connection(
    tmp_path: Path, trips: Trips, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller sees that; its call is recorded, and told."""
    async with express(tmp_path, trips, settings=ON_DISK) as there:
        with monkeypatch.context() as broken:

            def fails(*_: object) -> tuple[bytes, int]:
                raise RuntimeError("cannot be composed")

            broken.setattr(Express, "reply", fails)
            async with client(there.port) as outside, asyncio.timeout(15):
                outside.writer.write(ask(1))
                assert await outside.ended() == b""
        await landed(there)
        assert trips.back == [body(1)]
        async with asyncio.timeout(15):
            assert (await there.ask(ask(1))).semel == "replayed"
    assert "cannot be composed" in there.log.getvalue()
    assert there.lines()[-2]["delivered"] is False


async def test_a_stop_between_connection_and_task_ends_the_send(
    tmp_path: Path, trips: Trips, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer has begun, and its task has not: the send ends all the same, and the call is in doubt."""
    never = asyncio.Event()
    begun = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"
    goes_on = Nonstop.goes_on

    def stopped(flight: Nonstop, rest: Any) -> None:
        goes_on(flight, rest)
        flight.stop()

    monkeypatch.setattr(Nonstop, "goes_on", stopped)
    async with express(tmp_path, trips) as there:
        async with talking(there, trips, (*READ_ALL, begun, Wait(never))) as outside:
            before = there.origin.started
            assert not (await asked(outside, 0)).complete
            assert trips.tasks == 1
            await ends_once(there, before, (409, "refused"))
        never.set()


async def test_whoever_has_left_is_not_held_by_the_connection(tmp_path: Path, trips: Trips) -> None:
    """Trip and connection lead to each other: what is in a circle is freed late."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there:
        async with talking(there, trips, slow(go_on)) as outside:
            before = there.origin.started
            outside.writer.write(ask(1))
            await until(lambda: there.origin.started == before + 1)
            connection = of(there, outside)
            assert connection._trip is not None
        await until(lambda: trips.left == [body(1)])
        still: object = connection._trip
        assert still is None
        go_on.set()
        await landed(there)
