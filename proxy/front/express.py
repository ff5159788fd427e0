"""Plain calls by the shortest way: begun where they arrive, answered where their settlement is told of.

No task waits meanwhile, neither the connection's nor one of the call's. Nothing is decided here: the head's
plan says what is sent and recorded, the body names the call, the flight (nonstop.py) is that of any other
asker. Whatever is not plain (a call that is known, or may be; no plan yet; an answer in parts; a refusal) is
the handler's, which takes over where this is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from proxy import faults
from proxy.answers import BODILESS
from proxy.asking import Live
from proxy.core.headers import Headers
from proxy.core.identity import Identity
from proxy.core.policy import PolicySet
from proxy.errors import Refusal
from proxy.faults import Point
from proxy.flying import Flights
from proxy.front import status_headers as own
from proxy.front.connection import Connection
from proxy.front.plans import Boarded, Plan
from proxy.front.reply import Written, composed, tells_length
from proxy.front.turns import HttpRequest
from proxy.front.whole import AllHere, Whole
from proxy.observe import Observer, Served

# Frames of replies that are remembered: as many as there are heads of answers, mostly a few.
FRAMES, LONGEST = 256, 4096


class GoesOn(Protocol):
    def __call__(self, request: HttpRequest, boarded: Boarded | None = None) -> Awaitable[Written]: ...


class Express:
    def __init__(
        self, *, policies: Callable[[], PolicySet], flights: Flights, serve: GoesOn, observer: Observer
    ) -> None:
        self._policies = policies
        self.flights = flights
        self.serve = serve
        self.observer = observer
        self._frames: dict[tuple[int, Headers, bool], tuple[bytes, bytes]] = {}

    def takes(self, whole: Whole, connection: Connection) -> bool:
        assert whole.known is not None
        plan, flights = whole.known.plan, self.flights
        if not isinstance(plan, Plan) or plan.policies is not self._policies() or plan.capture is None:
            return False
        if flights.stopping or not flights.ledger.are_new():
            return False
        try:
            identity = plan.name(whole.body)
        except Refusal:
            return False
        if identity.key in flights.by_key or flights.ledger.answers.is_at_hand(identity.key):
            return False
        Trip(self, plan, whole, connection).set_out(identity)
        return True

    def reply(self, live: Live, call: str) -> tuple[bytes, int]:
        """What is written for an answer that is durable, and how long its body is."""
        flight = live.flight
        assert flight.whole is not None
        status, headers, body = flight.whole
        which = status, headers, bool(flight.stored)
        frame = self._frames.get(which)
        if frame is None:
            told = own.live(headers, call, how="executed", stored=which[2], in_run=False, flight=flight)
            if status in BODILESS:
                return composed(status, told, b""), 0
            if not tells_length(headers):
                return composed(status, told, body, chunked=True), len(body)
            frame = self._framed(which, composed(status, told, b""), call.encode())
        before, after = frame
        return b"".join((before, call.encode(), after, body)), len(body)

    def _framed(self, which: tuple[int, Headers, bool], head: bytes, call: bytes) -> tuple[bytes, bytes]:
        """What stands around the call's id. Remembered, if that is clear, for others with such an answer."""
        before, _, after = head.partition(call)
        if head.count(call) == 1 and len(head) <= LONGEST:
            if len(self._frames) >= FRAMES:
                self._frames.clear()
            self._frames[which] = before, after
        return before, after


class Trip:
    """One request on its way. The flight tells it as it tells a future."""

    __slots__ = ("_began", "_call", "_connection", "_express", "_left", "_live", "_plan", "_whole")

    def __init__(self, express: Express, plan: Plan, whole: Whole, connection: Connection) -> None:
        self._began = time.monotonic()
        self._express = express
        self._plan = plan
        self._whole = whole
        self._connection = connection
        self._left = False

    def set_out(self, identity: Identity) -> None:
        self._connection.request_started()
        self._connection.sets_out(self)
        self._call = identity.id
        outgoing, intent = self._plan.prepared(identity, self._whole.body)
        assert self._plan.capture is not None
        flight = self._express.flights.nonstop(intent, outgoing, self._plan.capture)
        flight.callers = 1
        self._live = Live(flight, joined=False)
        flight.tells(self._live, self)
        flight.depart()

    def done(self) -> bool:
        """Never told once it has left."""
        return False

    def set_result(self, _: None) -> None:
        """It has landed; or it is read in parts from now on, by whoever has a task."""
        live, connection = self._live, self._connection
        if live.given is not None:
            asyncio.get_running_loop().call_soon(self._hand_over)
            return
        size = 0
        try:
            reply, size = self._express.reply(live, self._call)
            faults.reach(Point.REPLY_STARTED)
            connection.write_soon(reply)
            faults.reach(Point.REPLY_ENDED)
        except Exception as error:
            self._broken(error, size)
        else:
            self._tell(size)
        finally:
            live.leave()
            connection.request_ended(AllHere(len(self._whole.body)))
            connection.comes_back()

    def _broken(self, error: Exception, size: int) -> None:
        flight, connection = self._live.flight, self._connection
        assert flight.whole is not None
        connection.abort()
        if not isinstance(error, ConnectionError):
            told = f"{type(error).__name__}: {error}"
            self._express.observer.noted("reply-broken", call=self._call, error=told)
        self._tell_undelivered(flight.whole.status, flight.seconds, size)

    def left(self) -> None:
        """The client has. Its call goes on, and if that comes in parts, nobody reads them here."""
        self._left = True
        self._live.flight.tells_nobody()
        self._live.leave()
        self._tell_undelivered(0, 0.0, 0)

    def _tell(self, size: int) -> None:
        flight, tellers = self._live.flight, self._plan.tellers
        assert flight.whole is not None
        status = flight.whole.status
        tell = tellers.get(status)
        if tell is None:
            told = Served(*self._plan.labels, "executed", status)
            tell = tellers[status] = self._express.observer.alike(told)
        tell(self._call, time.monotonic() - self._began, flight.seconds, size)

    def _tell_undelivered(self, status: int, upstream_seconds: float, size: int) -> None:
        seconds = time.monotonic() - self._began
        told = Served(*self._plan.labels, "executed", status, self._call, "", seconds, upstream_seconds, size)
        self._express.observer.served(told._replace(delivered=False))

    def _hand_over(self) -> None:
        if self._left:
            return
        request = HttpRequest(self._whole, self._connection)
        boarded = Boarded(self._plan, self._live, self._began)
        self._connection.takes_over(partial(self._express.serve, request, boarded), request)
