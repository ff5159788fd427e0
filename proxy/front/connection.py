"""One client's connection: aiohttp's request handler, with what it lacks.

A timer for heads that do not come, a bound on their size, problems instead of HTML for what cannot be
parsed, writes that go straight to the transport, and an end for callers who never read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from aiohttp.web import BaseRequest, StreamResponse

from proxy.core.headers import Headers
from proxy.errors import BadRequest, InternalError, Overloaded, Refusal
from proxy.front.arriving import Arrives
from proxy.front.bodies import malformed
from proxy.front.forwarded import Inside
from proxy.front.sockets import not_taken, reset
from proxy.front.tunnel import Tunnel
from proxy.problem import render

if TYPE_CHECKING:
    from proxy.front.listener import Listener

# A caller who has not taken a byte of what is written for it for so long never will.
STALLED = 300.0
# Longer replies are written at once: what waits is memory.
WRITTEN_SOON = 16 * 1024


class Connection(Arrives):
    __slots__ = (
        "_listener",
        "_write_timer",
        "inside",
        "tunnel",
    )

    def __init__(
        self,
        listener: Listener,
        inside: Inside | None,
        **settings: Any,  # noqa: ANN401 (aiohttp's)
    ) -> None:
        recall = listener.recall if inside is None else None
        express = listener.express if inside is None else None
        super().__init__(
            listener, listener.handler, listener.limits, listener.whole, recall, express, **settings
        )
        self._listener = listener
        self.inside = inside  # what the CONNECT said that it came through
        self.tunnel: Tunnel | None = None  # what it has become
        self._write_timer: asyncio.TimerHandle | None = None

    # ---- arriving ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.inside is None and len(self._listener.connections) > self.limits.connections:
            self._refuse(
                Overloaded(f"More than {self.limits.connections} connections; try again in a moment.")
            )
        else:
            self._start_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.closing = True
        try:
            self._ends_trip()
        finally:
            super().connection_lost(exc)
        self._stop_timer()
        self._stop_write_timer()

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
            return cast("StreamResponse", AlreadyWritten(status))
        if status == 400:
            refusal = malformed(message or exc)
        else:
            self.log_exception("unforeseen error", exc_info=exc)
            refusal = InternalError("semel failed on this request. The log says more; please report it.")
        rendered, headers, body = render(refusal)
        self._write_closing(rendered, headers, body)
        if isinstance(refusal, BadRequest):  # the other came from a request, which is told already
            self._listener.refused(refusal)
        return cast("StreamResponse", AlreadyWritten(rendered))

    # ---- becoming something else ----

    def hand_over(self, protocol: asyncio.Protocol) -> bytes:
        """What comes from now on is for another protocol. Returns what came behind the last head."""
        assert self.transport is not None
        self.flush()
        self._stop_timer()
        behind, self._message_tail, self._upgraded = self._message_tail, b"", False
        self.transport.set_protocol(protocol)
        if self._buffer_paused:
            self._resume_reading_for_buffer()
        return behind

    def succeeded_by(self, inside: Inside) -> Connection:
        """Another one takes this one's place, and counts instead of it."""
        self._listener.forget(self)
        if self._keepalive_handle is not None:
            self._keepalive_handle.cancel()
        self.transport, self._force_close = None, True
        return self._listener.connection(inside)

    def reached_at(self) -> tuple[str, int] | None:
        """The address at which this client found us."""
        name = None if self.transport is None else self.transport.get_extra_info("sockname")
        return (name[0], name[1]) if isinstance(name, tuple) else None

    def close(self) -> None:
        """Who is in the middle of a request may finish it. Who is not has nothing to wait for: whatever it
        would say now nobody would hear."""
        idle = self._waiter is not None and not self._waiter.done()
        super().close()
        if idle and self.transport is not None:
            self.flush()
            self._leave(self.transport)
        if self.tunnel is not None:
            self.tunnel.end()

    # ---- leaving ----

    def _can_write(self) -> bool:
        return not self._paused and self.transport is not None and not self.transport.is_closing()

    def write(self, data: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the client has left")
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        self.transport.write(data)

    def write_soon(self, data: bytes) -> None:
        """A short reply, written together with those of other connections when this turn of the loop is over.
        Every write may wake a client that sleeps, and by then our own work has left the processor's caches:
        one after another they cost a third less. Not for a connection that is about to be closed, nor for one
        that is alone."""
        if self._close or self._unsent or len(data) > WRITTEN_SOON or self._listener.is_alone:
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
                STALLED, self._look_again, transport, not_taken(transport)
            )

    def _look_again(self, transport: asyncio.Transport, before: int) -> None:
        if not_taken(transport) < before:
            self._watch_writing(transport)
        else:
            self.closing = True
            reset(transport)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def abort(self) -> None:
        """End the connection so that the client sees a break, not an end: with RST, since to some clients,
        and to all without a length or chunks, a plain end is the end of the answer."""
        self.closing = True
        if self.transport is not None:
            reset(self.transport)


class AlreadyWritten:
    """What aiohttp gets back where there is nothing left to do."""

    keep_alive = False
    body_length = 0

    def __init__(self, status: int) -> None:
        self.status = status

    async def prepare(self, request: BaseRequest) -> None:
        """Nothing to do."""

    async def write_eof(self) -> None:
        """Nothing to do."""
