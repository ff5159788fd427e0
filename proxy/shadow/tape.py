"""What the live exchange of one request got, and an upstream that sends nothing and says the same again.

A flight of the shadow runs in a task that was started for one request, and a task inherits the context of
whoever started it: so the tape that is on air there is that request's. Sent a second time, it is answered the
same a second time: the upstream would have said the same, as far as anybody can know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar

from proxy.spool import CHUNK, Spool
from proxy.stream import CaptureLimits
from proxy.upstream.base import Headers, Lost, NotSent, Outgoing, Result, Sink

ON_AIR: ContextVar[Tape] = ContextVar("the tape of the request that is judged")

UNKNOWN = "what the upstream said could not be kept"


class Tape:
    """`over` is told when nothing more will come. `useless`: it cannot be known any more what came."""

    def __init__(self, limits: CaptureLimits, over: Callable[[], None]) -> None:
        self._limit = limits.kept
        self._spool = Spool(limits.memory, limits.directory)
        self._over = over
        self._status = 0
        self._headers: Headers = ()
        self._size = 0
        self._result: Result | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.useless = False

    # ---- hearing ----

    def onto(self, sink: Sink) -> Sink:
        return _Heard(self, sink)

    def head(self, status: int, headers: Headers) -> None:
        self._status, self._headers = status, headers
        self._wake()

    def add(self, chunk: bytes) -> None:
        """What is too long for a record is too long here: beyond the limit only its length counts."""
        if self._size + len(chunk) <= self._limit and self._spool.size == self._size:
            try:
                self._keep(chunk)
            except OSError:  # no room: nobody can know what a record would hold
                self.useless = True
        self._size += len(chunk)
        self._wake()

    def _keep(self, chunk: bytes) -> None:
        self._spool.append(chunk)

    def ended(self, result: Result) -> None:
        self._result = result
        self._over()
        self._wake()

    # ---- saying it again ----

    async def play(self, sink: Sink) -> Result:
        while not self._status and self._result is None:
            await self._changed()
        if self._status:
            sink.head(self._status, self._headers)
        told = 0
        while True:
            if self.useless:  # as if it had never been: nothing shall be held for it
                return Lost(UNKNOWN) if told else NotSent(UNKNOWN)
            if told < self._size:
                part = self._read(told)
                await sink.data(part)
                told += len(part)
            elif self._result is not None:
                return self._result
            else:
                await self._changed()

    def _read(self, offset: int) -> bytes:
        if offset < self._spool.size:
            return self._spool.read(offset, CHUNK)
        return bytes(min(CHUNK, self._size - offset))  # past the limit nothing of it is kept anyway

    async def _changed(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class _Heard:
    """The live caller's sink, with an ear at it."""

    def __init__(self, tape: Tape, sink: Sink) -> None:
        self._tape = tape
        self._sink = sink

    def head(self, status: int, headers: Headers) -> None:
        self._tape.head(status, headers)
        self._sink.head(status, headers)

    async def data(self, chunk: bytes) -> None:
        self._tape.add(chunk)
        await self._sink.data(chunk)


class Echo:
    """The shadow's upstream: nothing leaves it."""

    async def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        tape = ON_AIR.get()
        if not may_send():  # a trouble of the shadow's record, and none of the call's
            tape.useless = True
            return NotSent("the shadow's record is not available")
        return await tape.play(sink)

    async def close(self) -> None:
        """Nothing is open."""


class NobodyAsked(Echo):
    """For probes: only the upstream knows what it would say, so what is in doubt stays so."""

    async def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        return NotSent("in shadow nothing is asked")
