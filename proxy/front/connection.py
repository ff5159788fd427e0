"""One client's connection: aiohttp's request handler, with what it lacks.

A timer for heads that do not come, a bound on their size, problems instead of HTML for what cannot be
parsed, writes that go straight to the transport, and an end for callers who never read.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import termios
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import StreamReader, http_parser
from aiohttp.web import BaseRequest, Server, StreamResponse

from proxy.core.headers import Headers
from proxy.errors import BadRequest, HeadersTooLarge, InternalError, Overloaded, Refusal
from proxy.front.turns import HttpRequest, Turns
from proxy.problem import render

_END_OF_HEAD = b"\r\n\r\n"
# A caller who has not taken a byte of what is written for it for so long never will.
STALLED = 300.0
# Longer replies are written at once: what waits is memory.
WRITTEN_SOON = 16 * 1024
_RESET = struct.pack("ii", 1, 0)  # linger for no time: what is unsent is dropped, RST instead of FIN


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    connections: int = 2000
    header_timeout: float = 15.0
    headers: int = 64 * 1024


def require_c_parser() -> None:
    """Smuggling defects of the past sat in the pure-Python parser: do not run on it."""
    if getattr(http_parser, "HttpRequestParserC", None) is not http_parser.HttpRequestParser:
        raise RuntimeError("aiohttp's C extension is missing: install a wheel of aiohttp with extensions")


class Listener(Server):
    """Makes a Connection for every client and counts them."""

    def __init__(self, handler: Any, *, limits: ConnectionLimits, refused: Any) -> None:  # noqa: ANN401
        require_c_parser()
        super().__init__(handler, handler_cancellation=True)
        self.handler = handler
        self.limits = limits
        self.refused = refused  # told of every refusal that never became a request
        self._to_flush: list[Connection] = []

    def flush_soon(self, connection: Connection) -> None:
        if not self._to_flush:
            asyncio.get_running_loop().call_soon(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()

    def __call__(self) -> Connection:
        return Connection(
            self,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=75.0,
            lingering_time=2.0,
            # Ours is the bound that counts; aiohttp's must not come first with words of its own.
            max_line_size=self.limits.headers,
            max_field_size=self.limits.headers,
            max_headers=1000,
        )


class Connection(Turns):
    __slots__ = (
        "_behind_head",
        "_from_first_byte",
        "_head_size",
        "_head_tail",
        "_head_timer",
        "_head_watched",
        "_last_bytes",
        "_listener",
        "_reading_head",
        "_unsent",
        "_write_timer",
        "closing",
        "limits",
    )

    def __init__(self, listener: Listener, **settings: Any) -> None:  # noqa: ANN401 (aiohttp's)
        super().__init__(listener, listener.handler, **settings)
        self._listener = listener
        self.limits = listener.limits
        self._reading_head = True
        self._from_first_byte = True  # the head that is awaited or being read, that is
        self._head_size = 0
        self._head_tail = b""
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_watched = False  # the present request's head was seen whole by `_watch_head`
        self._behind_head = 0  # how many bytes came after it
        self._last_bytes = b""
        self._unsent = b""
        self._write_timer: asyncio.TimerHandle | None = None
        self.closing = False

    # ---- arriving ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._listener.connections) > self.limits.connections:
            self._refuse(
                Overloaded(f"More than {self.limits.connections} connections; try again in a moment.")
            )
        else:
            self._start_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.closing = True
        super().connection_lost(exc)
        self._stop_timer()
        self._stop_write_timer()

    def data_received(self, data: bytes) -> None:
        if data:  # none: aiohttp goes on with what it has
            if not self._reading_head:
                self._behind_head += len(data)
            elif not self._watch_head(data):
                return
            self._last_bytes = data[-4:]
        super().data_received(data)

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
        self._stop_timer()

    def request_ended(self, content: StreamReader) -> None:
        """What comes next is a head, unless the body is still arriving (it is drained, then the connection
        ends) or the next head is already here and what comes is its body."""
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

    def _start_timer(self) -> None:
        self._stop_timer()
        self._head_timer = self._loop.call_later(self.limits.header_timeout, self._too_slow)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        if self._head_size:
            self._refuse(
                BadRequest(f"The headers did not arrive within {self.limits.header_timeout:g} seconds.")
            )
        else:  # nothing was asked, so there is nothing to answer
            self.closing = True
            self.force_close()

    def _refuse(self, refusal: Refusal) -> None:
        status, headers, body = render(refusal)
        self._write_closing(status, headers, body)
        self._listener.refused(refusal)
        self.closing = True
        self.force_close()

    def _write_closing(self, status: int, headers: Headers, body: bytes) -> None:
        if self.transport is not None:
            self.flush()  # the reply before this one goes out before it
            lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
            self.transport.write(
                b"HTTP/1.1 %d Refused\r\n%bConnection: close\r\n\r\n%b" % (status, lines, body)
            )

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """What aiohttp could not parse, and what we did not foresee."""
        refusal: Refusal
        if isinstance(exc, ConnectionError):  # the client has left, or was cut off: nobody to tell
            return cast("StreamResponse", _AlreadyWritten(status))
        if status == 400:
            refusal = BadRequest(f"The request is malformed: {str(message or exc).splitlines()[0][:200]}")
        else:
            self.log_exception("unforeseen error", exc_info=exc)
            refusal = InternalError("semel failed on this request. The log says more; please report it.")
        rendered, headers, body = render(refusal)
        self._write_closing(rendered, headers, body)
        self._listener.refused(refusal)
        return cast("StreamResponse", _AlreadyWritten(rendered))

    # ---- leaving ----

    def write(self, data: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the client has left")
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        self.transport.write(data)

    def write_soon(self, data: bytes) -> None:
        """A short reply, written together with those of other connections when this turn of the loop is over.
        Every write may wake a client that sleeps, and by then our own work has left the processor's caches:
        one after another they cost a third less. Not for a connection that is about to be closed."""
        if self._close or self._unsent or len(data) > WRITTEN_SOON:
            self.write(data)
            return
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the client has left")
        self._unsent = data
        self._listener.flush_soon(self)

    def flush(self) -> None:
        data, self._unsent = self._unsent, b""
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    async def drain(self) -> None:
        if self._paused:
            await self._drain_helper()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    async def start(self) -> None:
        await super().start()
        self._watch_writing(self.transport)

    def force_close(self) -> None:
        self.flush()
        transport = self.transport
        super().force_close()
        self._watch_writing(transport)

    def _watch_writing(self, transport: asyncio.Transport | None) -> None:
        """We, or a transport that closes, wait until the client has taken what is written for it."""
        if transport is None:
            return
        self._stop_write_timer()
        if transport.get_write_buffer_size():
            self._write_timer = self._loop.call_later(
                STALLED, self._look_again, transport, _not_taken(transport)
            )

    def _look_again(self, transport: asyncio.Transport, not_taken: int) -> None:
        if _not_taken(transport) < not_taken:
            self._watch_writing(transport)
        else:
            self.closing = True
            _reset(transport)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def abort(self) -> None:
        """End the connection so that the client sees a break, not an end: with RST, since to some clients,
        and to all without a length or chunks, a plain end is the end of the answer."""
        self.closing = True
        if self.transport is not None:
            _reset(self.transport)


def _not_taken(transport: asyncio.Transport) -> int:
    """Bytes that wait here or in the kernel: it takes more from us only when much of its buffer is free."""
    waiting = bytearray(4)
    with contextlib.suppress(OSError, ValueError):  # a system that does not tell, a socket that is gone
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, waiting)
    return transport.get_write_buffer_size() + int.from_bytes(waiting, sys.byteorder)


def _reset(transport: asyncio.Transport) -> None:
    with contextlib.suppress(OSError):  # the client was faster
        client = transport.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


class _AlreadyWritten:
    keep_alive = False
    body_length = 0

    def __init__(self, status: int) -> None:
        self.status = status

    async def prepare(self, request: BaseRequest) -> None:
        """Nothing to do."""

    async def write_eof(self) -> None:
        """Nothing to do."""
