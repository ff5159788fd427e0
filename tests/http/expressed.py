"""Calls by express, and a semel beside that knows nothing of it: what the tests of plain calls share.

A call goes by express when its head is known, its body is new, and so were those of late: as many warm a
semel. `Trips` tells which calls did, so that no test is about nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from proxy.flight import Flight
from proxy.flying import Flights
from proxy.front.express import Trip
from proxy.ledger import NEW_IN_A_ROW
from tests.forward.scene import Client, client
from tests.http.planned import JSON, Pair, Side, compared, pair, planning, post, rule
from tests.inside import Answer, until
from tests.origin import ECHO, READ_ALL, Echo, Script, Wait

# Bodies that warm are none that a test asks with.
WARM = range(900_000, 900_000 + NEW_IN_A_ROW + 1)
NOBODY = 1_000_000


def body(n: int) -> bytes:
    """All of one length, so that their heads are the same."""
    return b'{"n":%7d}' % n


def ask(n: int, headers: Mapping[str, str] = JSON) -> bytes:
    return post(body(n), headers)


def echo(n: int) -> bytes:
    """What the upstream answers to it, where it says what it was asked."""
    return b"POST /base/x/ann|" + body(n)


@dataclass(slots=True)
class Trips:
    """By their bodies: what set out, whose reply was written by the trip itself, what was handed over to the
    connection's task, whose client left. `tasks`: how many flights had to be awaited after all."""

    out: list[bytes] = field(default_factory=list)
    back: list[bytes] = field(default_factory=list)
    handed: list[bytes] = field(default_factory=list)
    left: list[bytes] = field(default_factory=list)
    tasks: int = 0

    def forget(self) -> None:
        for seen in (self.out, self.back, self.handed, self.left):
            seen.clear()
        self.tasks = 0


def watched(monkeypatch: pytest.MonkeyPatch) -> Trips:
    trips = Trips()

    def note(name: str, where: list[bytes]) -> None:
        real = getattr(Trip, name)

        @wraps(real)
        def noted(trip: Trip, *given: Any) -> None:
            gone = name == "_hand_over" and trip._left
            if not gone and (name != "set_result" or trip._live.given is None):
                where.append(trip._whole.body)
            real(trip, *given)

        monkeypatch.setattr(Trip, name, noted)

    note("set_out", trips.out)
    note("set_result", trips.back)
    note("_hand_over", trips.handed)
    note("left", trips.left)
    goes_on = Flights.goes_on

    def counted(flights: Flights, flight: Flight, rest: Any) -> None:
        trips.tasks += 1
        goes_on(flights, flight, rest)

    monkeypatch.setattr(Flights, "goes_on", counted)
    return trips


async def warm(there: Side) -> None:
    """The next call of a body that is new goes by express."""
    for n in WARM:
        assert (await there.ask(ask(n))).semel == "executed"


@asynccontextmanager
async def express(
    tmp_path: Path, trips: Trips, *, more: str = "", settings: Mapping[str, object] | None = None
) -> AsyncIterator[Side]:
    """One semel, warm. `more`: further lines of the policy."""
    async with planning(tmp_path, ECHO, more=more, settings=settings) as there:
        await warm(there)
        trips.forget()
        yield there


@asynccontextmanager
async def both_ways(
    tmp_path: Path, *, rules: str = rule(), settings: Mapping[str, object] | None = None
) -> AsyncIterator[Pair]:
    """Both are warm. The other takes every head for new, serves each call by a task and sends by another."""
    async with pair(tmp_path, ECHO, rules=rules, settings=settings) as both:
        app = both.long.app
        app._listener.express, app.flights.soon = None, None
        await compared(both, *map(ask, WARM))
        yield both


@asynccontextmanager
async def talking(there: Side, trips: Trips, *scripts: Script) -> AsyncIterator[Client]:
    """A connection whose next request goes by express, over one upstream that is warm. `scripts`: what is
    answered to it and those behind it."""
    async with client(there.port) as outside:
        got = await asked(outside, NOBODY)
        assert (got.semel, got.body) == ("executed", echo(NOBODY))
        assert trips.out[-1] == body(NOBODY)
        trips.forget()
        for script in scripts:
            there.origin.then(script)
        yield outside


async def asked(outside: Client, n: int) -> Answer:
    async with asyncio.timeout(15):
        return await outside.ask(ask(n))


async def landed(there: Side) -> None:
    """Nothing is in the air, nor found by its name."""
    await until(lambda: not there.app.flights.in_flight)
    assert there.app.flights.by_key == {}


def in_the_air(there: Side) -> list[Flight]:
    return list(there.app.flights._aloft)


def slow(go_on: asyncio.Event, *steps: bytes) -> Script:
    """An upstream that answers when it is told to. `steps`: what, if it does not say what it was asked."""
    return (*READ_ALL, Wait(go_on), *(steps or (Echo(),)))


async def ends_once(there: Side, before: int, again: tuple[int, str]) -> None:
    """The call `ask(0)` has landed. It was sent once, and who asks again is told so."""
    await landed(there)
    got = await there.ask(ask(0))
    assert (got.status, got.semel) == again
    assert there.origin.started == before + 1
