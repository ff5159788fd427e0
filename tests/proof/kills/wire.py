"""The wire between two players: a relay on a port that stays, whoever answers behind it, harmed on demand.

Harm comes to all connections there are, at once, or to the next one after so many bytes. What a stalled or
half closed connection has swallowed is never passed on later: after a while it is cut.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.origin import reset_on_close
from tests.proof.kills.draw import SLICED, Harm
from tests.relay import Act

WHOLE = 65536


class Strike(NamedTuple):
    at: float
    harm: Harm


class Wire:
    """`async with Wire() as wire`: clients connect to `port`; `refuse` while nobody is there."""

    def __init__(self) -> None:
        self._target = 0
        self._door: socket.socket | None = None
        self.port = 0
        self.opened = 0  # connections that somebody took
        self.struck: list[Strike] = []  # one for each connection that harm came to
        self._next: deque[Harm] = deque()
        self._alive: dict[Passage, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        # Bound and never listened on: the port stays this wire's own, also while connections are refused.
        self._kept = _bound(0)
        self.port = self._kept.getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        alive = list(self._alive.values())
        for task in alive:
            task.cancel()
        await asyncio.gather(*alive, return_exceptions=True)
        self._kept.close()

    def lead_to(self, target: int) -> None:
        """Whoever connects from now on speaks with this port."""
        self._target = target
        if self._door is None:
            self._door = _bound(self.port)
            self._door.setblocking(False)
            self._door.listen(socket.SOMAXCONN)
            asyncio.get_running_loop().add_reader(self._door, self._accept, self._door)

    def refuse(self) -> None:
        """Nobody is there: new connections are refused; those there are end as their server ends them."""
        if self._door is not None:
            asyncio.get_running_loop().remove_reader(self._door)
            self._door.close()
            self._door = None

    @property
    def busy(self) -> int:
        return len(self._alive)

    def harm(self, harm: Harm) -> None:
        if harm.at is not None:
            self._next.append(harm)
            return
        for passage in list(self._alive):
            passage.strike(harm)

    def heal(self) -> None:
        """No harm comes to later connections."""
        self._next.clear()

    def _count(self, harm: Harm) -> None:
        self.struck.append(Strike(time.time(), harm))

    def _accept(self, door: socket.socket) -> None:
        """In one step, so that no connection is left to nobody when the door is shut.

        asyncio's own server takes two: what it has accepted when it is closed is never closed (`_attach`).
        """
        try:
            near, _ = door.accept()
        except (BlockingIOError, ConnectionAbortedError):  # it has gone again
            return
        near.setblocking(False)
        passage = Passage(near, self._next.popleft() if self._next else None, self._count)
        task = asyncio.get_running_loop().create_task(passage.run(self._target))
        self._alive[passage] = task
        self.opened += 1
        task.add_done_callback(lambda _: self._gone(passage))

    def _gone(self, passage: Passage) -> None:
        del self._alive[passage]
        passage.never_begun()


class Passage:
    """One connection. In each direction it passes on, until harm comes."""

    def __init__(self, near: socket.socket, planned: Harm | None, count: Callable[[Harm], None]) -> None:
        self._near: socket.socket | None = near  # until it is a stream's
        self._planned, self._count = planned, count
        self._over = asyncio.Event()
        self._resets = False
        self._deaf: set[bool] = set()  # directions in which nothing more is passed on
        self._piece = WHOLE
        self._slicing: Harm | None = None  # until something was sliced
        self._writers: dict[bool, asyncio.StreamWriter] = {}

    async def run(self, target: int) -> None:
        near, self._near = self._near, None
        reader, writer = await asyncio.open_connection(sock=near, limit=WHOLE)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target, limit=WHOLE)
        except OSError:
            _reset(writer)
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        self._writers = {False: far_writer, True: writer}
        if self._planned is not None and self._planned.what == SLICED:
            self.strike(self._planned)
        both = asyncio.gather(self._pass(reader, down=False), self._pass(far_reader, down=True))
        over = asyncio.ensure_future(self._over.wait())
        try:
            waiting: list[asyncio.Future[Any]] = [both, over]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            broken = both.done() and not both.cancelled() and both.exception() is not None
            both.cancel()
            over.cancel()
            far_writer.transport.abort()
            if self._resets or broken:
                _reset(writer)
            else:
                writer.close()
            await asyncio.gather(both, over, return_exceptions=True)  # last: it may be cancelled here again

    def never_begun(self) -> None:
        """A task that is cancelled before its first step runs nothing, so it closes nothing."""
        if self._near is not None:
            self._near.close()

    def strike(self, harm: Harm) -> None:
        if self._over.is_set():
            return  # it has ended already
        if harm.what == SLICED:
            self._piece, self._slicing = harm.piece, harm
            return
        self._count(harm)
        match harm.what:
            case Act.CUT | Act.RESET:
                self._deaf = {False, True}
                self._resets = harm.what == Act.RESET
                self._over.set()
            case Act.STALL:
                self._deafen(harm)
            case Act.HALF_CLOSE:
                self._deafen(harm)
                if harm.down in self._writers:
                    _end_of(self._writers[harm.down])

    def _deafen(self, harm: Harm) -> None:
        """What was swallowed is never passed on: it ends with a cut."""
        self._deaf.add(harm.down)
        asyncio.get_running_loop().call_later(harm.seconds, self._over.set)

    async def _pass(self, reader: asyncio.StreamReader, *, down: bool) -> None:
        planned = self._planned if self._planned is not None and self._planned.down is down else None
        left = planned.at if planned is not None and planned.what != SLICED else None
        while data := await reader.read(WHOLE):
            if down in self._deaf:
                continue
            passed = data if left is None else data[:left]
            await self._write(self._writers[down], passed)
            if left is not None and planned is not None:
                left -= len(passed)
                if left <= 0:
                    left = None
                    self.strike(planned)
        if down in self._deaf:
            await self._over.wait()
        else:
            _end_of(self._writers[down])

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Small pieces, each on its own; the bulk of a large body in larger ones."""
        piece = self._piece if len(data) <= 100 * self._piece else max(self._piece, len(data) // 100)
        if self._slicing is not None and len(data) > piece:
            self._count(self._slicing)
            self._slicing = None
        for start in range(0, len(data), piece):
            writer.write(data[start : start + piece])
            await writer.drain()


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made


def _end_of(writer: asyncio.StreamWriter) -> None:
    if writer.can_write_eof() and not writer.is_closing():
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    if writer.get_extra_info("socket").fileno() >= 0:  # else it is closed already
        reset_on_close(writer.get_extra_info("socket"))
    writer.transport.abort()
