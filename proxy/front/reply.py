"""Replies, written by us to the transport: the upstream's header bytes as they came, our own after them.

The framing follows the recorded headers: with Content-Length the bytes as they are, without it chunks
(for HTTP/1.0: until the connection closes).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus

from proxy import faults
from proxy.asking import Delivery
from proxy.core.headers import Headers, is_event_stream
from proxy.faults import Point
from proxy.front.connection import Connection
from proxy.front.turns import HttpRequest

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus
}


class Written:
    """What aiohttp gets back: a reply that is already on its way, so there is nothing left to prepare."""

    __slots__ = ("_connection", "body_length", "keep_alive", "status")

    def __init__(self, status: int, connection: Connection, *, keep_alive: bool, body_length: int) -> None:
        self.status = status
        self._connection = connection
        self.keep_alive = keep_alive
        self.body_length = body_length

    async def prepare(self, request: HttpRequest) -> None:
        """Nothing to do."""

    async def write_eof(self) -> None:
        """The next request on this connection waits until the client has taken this reply."""
        await self._connection.drain()


def tells_length(headers: Headers) -> bool:
    return any([name.lower() == b"content-length" for name, _ in headers])  # noqa: C419 (a list is faster)


def composed(
    status: int, headers: Headers, body: bytes, *, chunked: bool = False, last: bytes = b""
) -> bytes:
    """A whole reply. `last`: what is said of the connection."""
    head = _head(status, headers, chunked=chunked, last=last)
    if not chunked:
        return head + body
    return b"%b%x\r\n%b\r\n0\r\n\r\n" % (head, len(body), body) if body else head + b"0\r\n\r\n"


def _head(status: int, headers: Headers, *, chunked: bool, last: bytes) -> bytes:
    lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    if status == 204:  # no length (RFC 9110, 8.6): a simple client would wait for such a body
        headers = tuple(pair for pair in headers if pair[0].lower() != b"content-length")
    lines += [b"%b: %b\r\n" % pair for pair in headers]
    if chunked:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    lines += (last, b"\r\n")
    return b"".join(lines)


class ReplyWriter:
    """One reply on one connection. `whole` for what is at hand, `stream` for what is still arriving."""

    def __init__(self, request: HttpRequest, connection: Connection) -> None:
        self._connection = connection
        self._request = request
        self._is_head = request.method == "HEAD"
        self._http11 = request.version >= (1, 1)
        self._wants_more = request.keep_alive
        # Unread request bytes would be taken for the next request.
        self._keep_alive = self._wants_more and not request.body_exists
        self.size = 0
        self.known_stream = False  # its reader knows the end when it sees it
        self.begun = False  # something was written: from now on nobody else's words may follow

    def is_last(self) -> None:
        """Nothing on this connection is to be read after it."""
        self._wants_more = self._keep_alive = False

    def request_is_read(self) -> None:
        self._keep_alive = self._wants_more and not self._connection.is_last(self._request)

    def whole(self, status: int, headers: Headers, body: bytes) -> Written:
        if self._has_no_body(status):
            chunked, body = False, b""
        else:
            chunked = self._is_chunked(headers)
        reply = composed(status, headers, body, chunked=chunked, last=self._last())
        faults.reach(Point.REPLY_STARTED)
        self.known_stream = is_event_stream(headers)
        self.size, self.begun = len(body), True
        if self._keep_alive:
            self._connection.write_soon(reply)
        else:
            self._connection.write(reply)
        return self._ended(status)

    async def stream(
        self, status: int, headers: Headers, parts: AsyncIterator[bytes], *, head_first: bool = False
    ) -> Written:
        """`head_first`: no part is here yet, and the caller need not wait for one to see the head."""
        chunked = not self._has_no_body(status) and self._is_chunked(headers)
        self.known_stream = is_event_stream(headers)
        pending = _head(status, headers, chunked=chunked, last=self._last())
        faults.reach(Point.REPLY_STARTED)
        if head_first:
            self.begun = True
            self._connection.write(pending)
            pending = b""
        async for part in parts:
            self.begun = True
            self._connection.write(pending + (b"%x\r\n%b\r\n" % (len(part), part) if chunked else part))
            self.size += len(part)
            pending = b""
            await self._connection.drain()
        if pending or chunked:
            self._connection.write(pending + (b"0\r\n\r\n" if chunked else b""))
        return self._ended(status)

    async def taken(self) -> None:
        """As far as can be known it is, when it was written."""

    def handed_over(self, delivery: Delivery) -> None:
        """A reset behind the last byte says that it was not read."""
        self._connection.handed_over = delivery

    def _ended(self, status: int) -> Written:
        faults.reach(Point.REPLY_ENDED)
        return Written(status, self._connection, keep_alive=self._keep_alive, body_length=self.size)

    def _has_no_body(self, status: int) -> bool:
        return self._is_head or status in (204, 304)

    def _is_chunked(self, headers: Headers) -> bool:
        if tells_length(headers):
            return False
        if not self._http11:
            self._keep_alive = False  # the end of the connection is the end of the body
            return False
        return True

    def _last(self) -> bytes:
        if not self._keep_alive:
            return b"Connection: close\r\n"
        return b"" if self._http11 else b"Connection: keep-alive\r\n"
