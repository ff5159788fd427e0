"""How requests arrive on one connection: whole ones are begun at once, all others are parsed by aiohttp.

Beside it stands what aiohttp lacks: a timer for heads that do not come, and a bound on their size.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from proxy.errors import BadRequest, HeadersTooLarge, Refusal
from proxy.front.bodies import Bodies
from proxy.front.taken import HandsOver
from proxy.front.turns import Content, HttpRequest, Reply
from proxy.front.whole import Incomplete, Whole, WholeReader

_END_OF_HEAD = b"\r\n\r\n"
# So long a small body may be on its way before anybody else is told of its head.
GATHERED_FOR = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    connections: int = 2000
    header_timeout: float = 15.0
    headers: int = 64 * 1024


class Recalls(Protocol):
    def answer(self, data: bytes, write: Callable[[bytes], None]) -> bool:
        """Whether `data` is a request that is known, and was answered by `write`."""


class Express(Protocol):
    def takes(self, whole: Whole, connection: Any) -> bool:  # noqa: ANN401 (it has all that is asked of it)
        """Whether it sees to this request and its reply."""


class Arrives(HandsOver):
    __slots__ = (
        "_behind_head",
        "_bodies",
        "_express",
        "_from_first_byte",
        "_gathered",
        "_head_size",
        "_head_tail",
        "_head_timer",
        "_head_watched",
        "_last_bytes",
        "_reading_head",
        "_recall",
        "_whole",
        "closing",
        "limits",
    )

    def __init__(
        self,
        manager: Any,  # noqa: ANN401 (aiohttp's)
        serve: Callable[[HttpRequest], Awaitable[Reply]],
        limits: ConnectionLimits,
        whole: WholeReader,
        recall: Recalls | None,
        express: Express | None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(manager, serve, **settings)
        self.limits = limits
        self._whole = whole
        self._express = express
        self._recall = recall  # None: what comes here means something else on another connection
        self.closing = False
        self._reading_head = True
        self._from_first_byte = True  # the head that is awaited or being read, that is
        self._head_size = 0
        self._head_tail = b""
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_watched = False  # the present request's head was seen whole by `_watch_head`
        self._behind_head = 0  # how many bytes came after it
        self._last_bytes = b""
        self._bodies = Bodies()
        self._gathered = b""  # a head and a part of its body, as long as nobody else knows of them

    @abstractmethod
    def _can_write(self) -> bool:
        """Whether a short reply would go out without anybody waiting for it."""

    @abstractmethod
    def write_soon(self, data: bytes) -> None:
        """A short reply, together with those of other connections."""

    @abstractmethod
    def _refuse(self, refusal: Refusal) -> None:
        """Say so, and end the connection."""

    def data_received(self, data: bytes) -> None:
        gathering = bool(self._gathered)
        if gathering:
            data, self._gathered = self._gathered + data, b""
        if self._reading_head and self._is_between_requests() and len(data) <= self.limits.headers:
            recall = self._recall
            if recall is not None and self._can_write() and recall.answer(data, self._write_recalled):
                return
            read = self._whole.read(data)
            if isinstance(read, Whole):
                self._head_watched, self._behind_head = True, len(read.body)
                if read.known is None or self._express is None or not self._express.takes(read, self):
                    self.begin(read, b"" if recall is None else data)
                return
            if isinstance(read, Incomplete) and len(data) + read.missing <= self.limits.headers:
                if not gathering:
                    self._start_gathering()
                self._gathered = data
                return
        self._parse(data)

    def _write_recalled(self, reply: bytes) -> None:
        """A whole turn: one request has come, and this is its reply."""
        if self._head_timer is not None:
            self._stop_timer()
        self.handed_over = None
        self.write_soon(reply)
        self._await_the_next()

    def _parse(self, data: bytes) -> None:
        """By aiohttp, whatever it is."""
        if data:  # none: it goes on with what it has
            if not self._reading_head:
                self._behind_head += len(data)
            elif not self._watch_head(data):
                return
            self._last_bytes = data[-4:]
        known = len(self._messages)
        super().data_received(data)
        added = islice(self._messages, known, None)
        self._bodies.fed(data, added, stopped=self._buffer_paused or self._upgraded)

    def is_last(self, request: HttpRequest) -> bool:
        """Whether what came behind it may be another request than the one that was sent."""
        return request.stream is not None and request.stream is self._bodies.last

    def _start_gathering(self) -> None:
        """The rest of a small body is mostly here in a moment; if not, it is aiohttp's to wait for."""
        self.handed_over = None
        self._await_the_next()
        self._start_timer(min(GATHERED_FOR, self.limits.header_timeout))

    def _is_between_requests(self) -> bool:
        """Also for the parser: no byte of the next one has come."""
        return self._head_size == 0 and self._from_first_byte and self._is_waiting()

    def _watch_head(self, data: bytes) -> bool:
        """False if the head is too large and the connection is on its way out."""
        if self._head_size == 0:
            data = data.lstrip(b"\r\n")  # empty lines before a request are no part of it
            if not data:
                return True
        window = self._head_tail + data
        end = window.find(_END_OF_HEAD)
        size = self._head_size - len(self._head_tail) + (end if end >= 0 else len(window))
        if size > self.limits.headers:
            self._refuse(self._headers_too_large())
            return False
        if end >= 0:
            self._head_watched = self._from_first_byte
            self._behind_head = len(window) - end - len(_END_OF_HEAD)
            self.request_started()
            return True
        if self._head_size == 0:
            self._start_timer()
        self._head_size = size
        self._head_tail = window[-3:]
        return True

    def request_started(self) -> None:
        self._reading_head = False
        self.handed_over = None
        self._stop_timer()

    def request_ended(self, content: Content) -> None:
        """What comes next is a head, unless the body is still arriving (it is drained, then the connection
        ends) or the next head is already here and what comes is its body."""
        if self.transport is None:  # gone, or somebody else's
            return
        all_is_its_own = self._head_watched and self._behind_head == content.total_bytes
        self._head_watched, self._from_first_byte = False, True
        self._head_size, self._head_tail = 0, b""
        self._reading_head = content.is_eof() and not self._messages
        # In chunks, or behind another request, its length is not known. But half a head never ends like this.
        if self._reading_head and not all_is_its_own and self._last_bytes != _END_OF_HEAD:
            self._from_first_byte = False
            self._start_timer()

    def check_head(self, request: HttpRequest) -> None:
        """For a head that came along with the request before it, and was not seen by `_watch_head`."""
        if self._head_watched:
            return
        lines = sum([len(name) + len(value) + 3 for name, value in request.raw_headers])
        if len(request.raw_path) + lines > self.limits.headers:
            raise self._headers_too_large()

    def _headers_too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(f"The headers are over {self.limits.headers} bytes: send fewer.")

    def _start_timer(self, seconds: float | None = None) -> None:
        self._stop_timer()
        patience = self.limits.header_timeout if seconds is None else seconds
        self._head_timer = self._loop.call_later(patience, self._too_slow)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        if self._gathered:
            data, self._gathered = self._gathered, b""
            self._parse(data)
        elif self._head_size:
            self._refuse(
                BadRequest(f"The headers did not arrive within {self.limits.header_timeout:g} seconds.")
            )
        else:  # nothing was asked, so there is nothing to answer
            self.closing = True
            self.force_close()

    def has_lost(self, content: Content) -> bool:
        """Whether bytes may have come behind the present request that nobody keeps: the parser keeps those
        behind a wish for a websocket, and drops them behind any other."""
        return not self._upgraded and (not self._head_watched or self._behind_head != content.total_bytes)
