"""An answer while it arrives: one writer, any number of readers, each from the first byte.

Parts are handed on as they come; the end is held back until the answer is durable (`seal`). Nothing is
spliced: once a reader has seen a byte, a break can only end in an aborted connection.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from proxy import faults
from proxy.core.encoding import codings
from proxy.core.headers import is_event_stream
from proxy.core.sse import CodedEventStream, EventStream
from proxy.faults import Point
from proxy.spool import CHUNK, Spool
from proxy.upstream.base import Headers

# How many bytes of an answer are held back until it is clear whom it is for.
NOTHING, ALL = -1, sys.maxsize
# How far the upstream may run ahead of the slowest reader once an answer is no longer kept.
WINDOW = 1024 * 1024


class Phase(Enum):
    OPEN = auto()  # parts may still come
    COMPLETE = auto()  # all parts are here, not yet durable: the end is held back
    SEALED = auto()  # durable: readers may see the end
    REFUSED = auto()  # readers get semel's own word, or are cut off if they have seen a part


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureLimits:
    kept: int = 256 * 1024 * 1024
    memory: int = 1024 * 1024
    directory: Path | None = None


class CutOff(Exception):
    """A part was handed on and the rest will not come: abort the caller's connection."""


class Whole(NamedTuple):
    """An answer that came in one piece."""

    status: int
    headers: Headers
    body: bytes


def content_length(headers: Headers) -> int | None:
    for name, value in headers:
        if name.lower() == b"content-length":
            return int(value)
    return None


class Capture:
    """`limit`: how many bytes are kept. Beyond it parts only pass through, as fast as readers take them;
    with 0 nothing is kept at all (calls that are not recorded)."""

    def __init__(
        self,
        *,
        limit: int,
        memory: int = 1024 * 1024,
        directory: Path | None = None,
        hold_end: bool = True,
        withholds: Callable[[int, Headers, bool], int] = lambda status, headers, unresolved: NOTHING,
    ) -> None:
        self._limit = limit
        self._memory = memory
        self._directory = directory
        self._hold_end = hold_end
        self._withholds = withholds
        self.unresolved = False  # an earlier send is: an answer must speak for that one too
        self._waiters: list[asyncio.Future[None]] = []
        self.readers: list[Reader] = []
        self.handed_on = False
        self.stored: bool | None = None  # whether the answer was kept; None while that is open
        self.refusal: Exception | None = None
        self.why_unkept = ""  # it is not to be given again, though it could be
        self.phase = Phase.OPEN
        self._reset()

    def withhold(self) -> None:
        """Whatever its status, nothing of the answer is handed on before its end is recorded; but for one
        that is too long for the record."""
        self._withholds = lambda _status, _headers, _unresolved: self._limit

    def _reset(self) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.received = 0
        self.overflowed = self._limit == 0
        self._spool = Spool(self._memory, self._directory)
        self._tail: deque[bytes] = deque()  # after the overflow: parts that some reader has not taken yet
        self._tail_start = 0
        self._length: int | None = None
        self._events: EventStream | CodedEventStream | None = None
        self.visible = 0
        self._held_back = NOTHING

    @property
    def withheld(self) -> bool:
        """The caller may not get this answer: its status says so, or nobody has read yet what it means. What
        is too long to be kept nobody will read."""
        return self.received <= self._held_back and (self._held_back == ALL or not self.overflowed)

    # ---- the writer's side ----

    def head(self, status: int, headers: Headers) -> None:
        faults.reach(Point.ANSWER_HEAD)
        self.status, self.headers = status, headers
        self._held_back = self._withholds(status, headers, self.unresolved)
        self._length = content_length(headers)
        if self._hold_end and is_event_stream(headers):
            applied = codings(headers)
            self._events = CodedEventStream(applied) if applied else EventStream()
        if not self._hold_end:
            self.wake()

    async def data(self, chunk: bytes) -> None:
        self.add(chunk)
        while self.overflowed and self._trim() > WINDOW:
            await self.changed()

    def add(self, chunk: bytes) -> None:
        """For what is known to fit, or comes from somebody who waits by himself."""
        self.received += len(chunk)
        if not self.overflowed and not self._keep(chunk):
            self.overflowed = True
            self._tail_start = self._spool.size
        if self.overflowed:
            self._tail.append(chunk)
        self.visible = self._visible_now(chunk)
        if self.overflowed:  # what is held back is held in memory: never more than the window
            self.visible = max(self.visible, self.received - WINDOW)
        self.wake()

    def _keep(self, chunk: bytes) -> bool:
        """No room in the limit or on the disk costs the record of the answer, not the answer."""
        if self.received > self._limit:
            return False
        try:
            self._spool.append(chunk)
        except OSError:
            return False
        return True

    def _visible_now(self, chunk: bytes) -> int:
        if not self._hold_end:
            return self.received
        visible = self.received if self._events is None else self._events.feed(chunk)
        return visible if self._length is None else min(visible, self._length - 1)

    def complete(self) -> None:
        """All parts are here. Readers who have seen nothing yet may as well wait for the seal."""
        self.phase = Phase.COMPLETE

    def seal(self, *, stored: bool) -> None:
        self.phase, self.stored = Phase.SEALED, stored
        self.visible = self.received
        self.wake()

    def refuse(self, refusal: Exception) -> None:
        self.phase, self.refusal = Phase.REFUSED, refusal
        self.wake()

    def restart(self) -> None:
        """Forget an answer that broke off before anybody saw a part of it."""
        assert not self.handed_on
        self._reset()

    @property
    def is_over(self) -> bool:
        return self.phase in (Phase.SEALED, Phase.REFUSED)

    def keep_nothing(self, why: str) -> None:
        """Whoever reads it now gets it all the same."""
        self.why_unkept = why

    @property
    def kept(self) -> Spool | None:
        """The whole body, unless it was too long to keep, or is good for its first reader alone."""
        return None if self.overflowed or self.why_unkept else self._spool

    @property
    def has_its_end(self) -> bool:
        """Of a known event stream: the event by which it ends is here."""
        return self._events is None or self._events.ended

    @property
    def expected(self) -> int:
        """How long the body is or, while it arrives, will be: what it says, or what has come of it."""
        return self.received if self._length is None or self.phase is not Phase.OPEN else self._length

    @property
    def is_too_long(self) -> bool:
        """Too long to keep, as far as can be known by now."""
        return self.overflowed or self.expected > self._limit

    # ---- the readers' side ----

    def reader(self) -> Reader:
        reader = Reader(self)
        self.readers.append(reader)
        return reader

    @property
    def can_begin(self) -> bool:
        """Whether a new reader has something to see: a part, or how it ended. Where nothing is held back
        the head is enough: a stream may be silent for long before its first part."""
        if self.is_over:
            return True
        something = self.visible > 0 or (self.status > 0 and not self._hold_end)
        return self.phase is Phase.OPEN and something and not self.withheld

    def read(self, offset: int) -> bytes:
        if offset < self._spool.size:
            return self._spool.read(offset, min(CHUNK, self.visible - offset))
        position = self._tail_start
        for part in self._tail:
            if offset < position + len(part):
                return part[offset - position : max(0, self.visible - position)]
            position += len(part)
        return b""

    def _trim(self) -> int:
        """Drop what every reader has taken; how much is left. What is withheld nobody will ever take."""
        waiting = () if self.withheld else self.readers
        slowest = min((reader.offset for reader in waiting), default=self.received)
        while self._tail and self._tail_start + len(self._tail[0]) <= slowest:
            self._tail_start += len(self._tail.popleft())
        return self.received - self._tail_start if self._tail else 0

    async def changed(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Reader:
    """One caller's view. `begin`, then `parts`; `close` in any case."""

    __slots__ = ("_capture", "offset")

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.offset = 0

    async def begin(self) -> None:
        """Returns when the head may be handed on. Raises the refusal if there is nothing to hand on."""
        capture = self._capture
        while not capture.can_begin:
            await capture.changed()
        if capture.phase is Phase.REFUSED:
            assert capture.refusal is not None
            raise capture.refusal.with_traceback(None)  # shared: each raise would add its frames for good
        capture.handed_on = True

    def whole(self) -> bytes | None:
        """The rest at once, where it is sealed and small; saves the loop for the common answer."""
        capture = self._capture
        if capture.phase is Phase.SEALED and capture.received <= CHUNK and not capture.overflowed:
            return capture.read(0) if self.offset == 0 else None
        return None

    async def parts(self) -> AsyncIterator[bytes]:
        """Ends only after the seal. Raises CutOff where the rest will not come."""
        capture = self._capture
        while True:
            if capture.phase is Phase.REFUSED:
                raise CutOff
            if self.offset < capture.visible:
                part = capture.read(self.offset)
                yield part
                self.offset += len(part)
                if capture.overflowed:
                    capture.wake()
            elif capture.phase is Phase.SEALED:
                return
            else:
                await capture.changed()

    def close(self) -> None:
        if self in self._capture.readers:
            self._capture.readers.remove(self)
            self._capture.wake()
