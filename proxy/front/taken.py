"""Whether a client has taken its last answer: in a run that is part of the record.

The kernel acknowledges bytes that the client never reads, so it cannot be seen for sure. But a client that
closes with something unread sends a reset, and its end acknowledges all that it had received before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from proxy.asking import Delivery
from proxy.front.sockets import has_failed, not_taken
from proxy.front.turns import HttpRequest, Reply, Turns

# So long a client may take to close after our last word; then it is closed for it.
LINGERS = 5.0


class HandsOver(Turns):
    """`handed_over`: the last answer, until the next request says that it was taken."""

    __slots__ = ("_unsent", "handed_over")

    def __init__(
        self,
        manager: Any,  # noqa: ANN401 (aiohttp's)
        serve: Callable[[HttpRequest], Awaitable[Reply]],
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(manager, serve, **settings)
        self.handed_over: Delivery | None = None
        self._unsent = b""  # of a reply that goes out at the end of this turn of the loop

    def eof_received(self) -> None:
        transport = self.transport
        if self.handed_over is not None and transport is not None:
            unread = self._unsent or not_taken(transport) or has_failed(transport)
            if unread:
                self.handed_over.abandoned()
        super().eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        if exc is not None and self.handed_over is not None:
            self.handed_over.abandoned()
        super().connection_lost(exc)

    def _leave(self, transport: asyncio.Transport) -> None:
        """Stay until the client has closed too, or a reset behind the last byte would go unseen."""
        if self.handed_over is None or not transport.can_write_eof():
            super()._leave(transport)
            return
        self._close = True  # whatever else it says is not listened to
        transport.write_eof()
        self._loop.call_later(LINGERS, transport.close)
