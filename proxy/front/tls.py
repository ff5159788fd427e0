"""TLS with a client, spoken by semel above a connection that is already there.

Below is the client's transport, whose protocol this is; above is whoever serves what comes out of it, whose
transport this is. Bytes that came along with what was said before TLS are fed like all others: none is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any

_HANDSHAKE = 0x16  # the first byte of every TLS connection
_READ = 64 * 1024


class TlsServer(asyncio.Protocol, asyncio.Transport):
    """First `opened`, then `attach`: until then it is the business of whoever made it to watch the time."""

    def __init__(
        self,
        below: asyncio.Transport,
        context: ssl.SSLContext,
        lost: Callable[[BaseException | None], None],
    ) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._above: asyncio.Protocol | None = None
        self._lost = lost  # told of the end where nobody is above
        self._paused = False
        self._closing = False
        self._plain = False
        self.first = bytearray()  # where it is no TLS: what came so far
        self.begun = False  # a byte came
        self.gone = False  # whoever attaches now would never hear of the end
        self.opened: asyncio.Future[bool] = self._loop.create_future()  # False: it is no TLS

    # ---- what the transport below says ----

    def data_received(self, data: bytes) -> None:
        if not self.begun and data:
            self.begun = True
            if data[0] != _HANDSHAKE:
                self._plain = True
                if not self.opened.done():
                    self.opened.set_result(False)
        if self._plain:
            self.first += data
            return
        self._incoming.write(data)
        if self.opened.done():
            self._read()
        else:
            self._shake_hands()

    def eof_received(self) -> bool:
        """Without a farewell in TLS this is a break as well as an end: nothing more can be said to it."""
        if self._above is not None:
            self._above.eof_received()
        return False

    def connection_lost(self, exc: BaseException | None) -> None:
        self._closing = self.gone = True
        if not self.opened.done():
            self.opened.set_exception(ConnectionResetError("the client closed the connection"))
        above, self._above = self._above, None
        if above is not None:
            above.connection_lost(exc if isinstance(exc, Exception) else None)
        else:
            # After those who wait for `opened` have heard of it.
            self._loop.call_soon(self._lost, exc)

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    # ---- what happens in between ----

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
        except ssl.SSLError as error:
            self._send()  # the alert that says why
            self.opened.set_exception(error)
            self._closing = True
            self._below.close()
        else:
            self._send()
            self.opened.set_result(True)

    def _read(self) -> None:
        """Hand up all that is there, as long as it is wanted."""
        while self._above is not None and not self._paused and not self._closing:
            try:
                data = self._tls.read(_READ)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:  # not what this client agreed on: broken, or somebody in between
                self.abort()
                return
            if not data:
                self._above.eof_received()
                self.close()
                return
            self._above.data_received(data)
        if not self._closing:
            self._send()

    def _send(self) -> None:
        data = self._outgoing.read()
        if data:
            self._below.write(data)

    # ---- what the protocol above may ask for ----

    def attach(self, above: asyncio.Protocol) -> None:
        above.connection_made(self)
        self.set_protocol(above)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._above = protocol
        # Not from here: whoever changes the protocol is not done yet.
        self._loop.call_soon(self._read)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._above or self

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError:
            self.abort()
            return
        self._send()

    def pause_reading(self) -> None:
        self._paused = True
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        self._below.resume_reading()
        self._loop.call_soon(self._read)  # what is decrypted already makes no event below

    def is_reading(self) -> bool:
        return not self._paused

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        with contextlib.suppress(ssl.SSLError):  # it wants to read the client's farewell: we do not wait
            self._tls.unwrap()
        self._send()
        self._below.close()

    def abort(self) -> None:
        self._closing = True
        self._below.abort()

    def is_closing(self) -> bool:
        return self._closing or self._below.is_closing()

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 (asyncio's)
        return self._tls if name == "ssl_object" else self._below.get_extra_info(name, default)
