"""One client's connection: aiohttp's request handler, with what it lacks.

A timer for half-sent headers, a bound on their size, problems instead of HTML for what cannot be parsed,
and writes that go straight to the transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import http_parser, web_protocol
from aiohttp.web import BaseRequest, Server, StreamResponse

from proxy.core.headers import Headers
from proxy.errors import BadRequest, HeadersTooLarge, InternalError, Overloaded, Refusal
from proxy.problem import render

_END_OF_HEAD = b"\r\n\r\n"
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
        self.limits = limits
        self.refused = refused  # told of every refusal that never became a request

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
            max_headers=10_000,
        )


class Connection(web_protocol.RequestHandler):
    __slots__ = (
        "_head_size",
        "_head_tail",
        "_head_timer",
        "_limits",
        "_listener",
        "_reading_head",
        "closing",
    )

    def __init__(self, listener: Listener, **settings: Any) -> None:  # noqa: ANN401 (aiohttp's)
        super().__init__(listener, **settings)
        self._listener = listener
        self._limits = listener.limits
        self._reading_head = True
        self._head_size = 0
        self._head_tail = b""
        self._head_timer: asyncio.TimerHandle | None = None
        self.closing = False

    # ---- arriving ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._listener.connections) > self._limits.connections:
            self._refuse(
                Overloaded(f"More than {self._limits.connections} connections; try again in a moment.")
            )

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        self.closing = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._reading_head and data and not self._watch_head(data):
            return
        super().data_received(data)

    def _watch_head(self, data: bytes) -> bool:
        """False if the head is too large and the connection is on its way out."""
        window = self._head_tail + data
        end = window.find(_END_OF_HEAD)
        size = self._head_size - len(self._head_tail) + (end if end >= 0 else len(window))
        if size > self._limits.headers:
            self._refuse(self._headers_too_large())
            return False
        if end >= 0:
            self.request_started()
            return True
        self._head_size = size
        self._head_tail = window[-3:]
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self._limits.header_timeout, self._too_slow)
        return True

    def request_started(self) -> None:
        self._reading_head = False
        self._stop_timer()

    def request_ended(self, *, body_arrived: bool) -> None:
        """What comes next is a head, unless the body is still arriving (it is drained, then the connection
        ends) or the next head is already here and what comes is its body."""
        self._reading_head = body_arrived and not self._messages
        self._head_size, self._head_tail = 0, b""

    def check_head(self, request: BaseRequest) -> None:
        """A head that came along with the request before it was not seen by `_watch_head`."""
        lines = sum([len(name) + len(value) + 3 for name, value in request.raw_headers])
        if len(request.raw_path) + lines > self._limits.headers:
            raise self._headers_too_large()

    def _headers_too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(f"The headers are over {self._limits.headers} bytes: send fewer.")

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._refuse(
            BadRequest(f"The headers did not arrive within {self._limits.header_timeout:g} seconds.")
        )

    def _refuse(self, refusal: Refusal) -> None:
        status, headers, body = render(refusal)
        self._write_closing(status, headers, body)
        self._listener.refused(refusal)
        self.closing = True
        self.force_close()

    def _write_closing(self, status: int, headers: Headers, body: bytes) -> None:
        if self.transport is not None:
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
        self.transport.write(data)

    async def drain(self) -> None:
        if self._paused:
            await self._drain_helper()

    def abort(self) -> None:
        """End the connection so that the client sees a break, not an end: with RST, since to some clients,
        and to all without a length or chunks, a plain end is the end of the answer."""
        self.closing = True
        if self.transport is not None:
            with contextlib.suppress(OSError):  # the client was faster
                client = self.transport.get_extra_info("socket")
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()


class _AlreadyWritten:
    keep_alive = False
    body_length = 0

    def __init__(self, status: int) -> None:
        self.status = status

    async def prepare(self, request: BaseRequest) -> None:
        """Nothing to do."""

    async def write_eof(self) -> None:
        """Nothing to do."""
