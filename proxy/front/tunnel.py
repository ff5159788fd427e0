"""Bytes both ways between a client and an upstream, unread, until one of them ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from proxy.front.sockets import not_taken

# How long it may stand still once one side has said its last word, or does not take what is there for it.
LINGER, STALLED = 60.0, 300.0


class End(asyncio.Protocol):
    """One of two. What comes in here goes out there; who cannot take more slows the other down."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.tunnel: Tunnel | None = None
        self.other: End | None = None
        self.size = 0  # of what came in here
        self.at_end = False
        self._tls = False
        self._early = bytearray()  # what came before there was a tunnel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.stand_at(cast("asyncio.Transport", transport)).pause_reading()

    def stand_at(self, transport: asyncio.Transport) -> asyncio.Transport:
        self.transport = transport
        self._tls = transport.get_extra_info("ssl_object") is not None
        return transport

    def data_received(self, data: bytes) -> None:
        self.size += len(data)
        if self.other is None:
            self._early += data
        else:
            self.other.write(data)

    def eof_received(self) -> bool:
        self.at_end = True
        if self.tunnel is not None and self.other is not None:
            self.tunnel.half_over(self.other)
        return not self._tls  # TLS has no half of a connection

    def connection_lost(self, exc: Exception | None) -> None:
        self.at_end, self.transport = True, None
        if self.tunnel is not None:
            self.tunnel.lost(self, exc)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()
        if self.tunnel is not None:
            self.tunnel.watch(STALLED)

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()
        if self.tunnel is not None:
            self.tunnel.flows()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def join(self, tunnel: Tunnel, other: End) -> None:
        self.tunnel, self.other = tunnel, other
        if self._early:
            other.write(bytes(self._early))
            self._early.clear()

    def not_taken(self) -> int:
        try:
            return 0 if self.transport is None else not_taken(self.transport)
        except AttributeError:  # asyncio's TLS forgets what is below it as soon as it closes
            return 0

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Tunnel:
    """Both ends, from the moment on when there are both. `over` when the client is gone: what is left to do
    at the other end needs nobody to wait for it."""

    def __init__(
        self, client: End, upstream: End, client_left: Callable[[BaseException | None], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.client = client
        self._ends = (client, upstream)
        self._client_left = client_left
        self._timer: asyncio.TimerHandle | None = None
        self._ending = False
        self.over: asyncio.Future[None] = self._loop.create_future()

    @property
    def size(self) -> int:
        return sum([end.size for end in self._ends])

    def open(self) -> None:
        client, upstream = self._ends
        client.join(self, upstream)
        upstream.join(self, client)
        for end in self._ends:
            if end.transport is None:
                self.lost(end, None)
            elif end.at_end and end.other is not None:
                self.half_over(end.other)
            else:
                end.transport.resume_reading()

    def half_over(self, end: End) -> None:
        """Nothing more will be written to this end."""
        if end.at_end or end.transport is None or not end.transport.can_write_eof():
            self.end()
            return
        end.transport.write_eof()
        self._ending = True
        self.watch(LINGER)

    def lost(self, end: End, exc: BaseException | None) -> None:
        self.end()
        if end is self._ends[0] and not self.over.done():
            self.over.set_result(None)
            # After whoever waits for that.
            self._loop.call_soon(self._client_left, exc)
        if all(each.transport is None for each in self._ends):
            self._stop_timer()

    def end(self) -> None:
        """Both are closed, what was written is still sent, as long as it is taken."""
        self._ending = True
        if any(end.transport is not None for end in self._ends):
            self.watch(LINGER)
        for end in self._ends:
            end.close()

    # ---- who stands still is let go ----

    def watch(self, patience: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(patience, self._look_again, patience, self._flow())

    def flows(self) -> None:
        """Everything written was taken: nobody need be watched, unless it comes to an end."""
        if not self._ending:
            self._stop_timer()

    def _look_again(self, patience: float, before: tuple[int, ...]) -> None:
        if self._flow() != before:
            self.watch(patience)
        else:
            for end in self._ends:
                end.abort()

    def _flow(self) -> tuple[int, ...]:
        return (self.size, *[end.not_taken() for end in self._ends])

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
