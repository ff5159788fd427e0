"""Bodies as aiohttp's parser leaves them: what it does not tell of them, and what it mixes up behind them.

It does not tell the reader of a body that the rest of it is malformed, so that the reader waits for a rest
that never comes. And it keeps the last field of a trailer, and takes it for the first header of the request
that follows on the connection. So nothing is heard behind a body in chunks unless it surely had no trailer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from aiohttp import StreamReader
from aiohttp.http import RawRequestMessage

from proxy.errors import BadRequest

# A line of a trailer has a colon: no body that has one ends like this.
_WITHOUT_TRAILER = b"\r\n0\r\n\r\n"


def malformed(reason: object) -> BadRequest:
    return BadRequest(f"The request is malformed: {str(reason).splitlines()[0][:200]}")


class _Body(NamedTuple):
    content: StreamReader
    in_chunks: bool


class Bodies:
    """Those of one connection. `last`: behind this one nothing may be heard."""

    __slots__ = ("_arriving", "_tail", "last")

    def __init__(self) -> None:
        self._arriving: _Body | None = None
        self._tail = b""
        self.last: StreamReader | None = None

    def fed(self, data: bytes, added: Iterable[tuple[object, StreamReader]], *, stopped: bool) -> None:
        """The parser was given `data`, and came upon the messages in it; `stopped`: not upon all of them."""
        self._tail = (self._tail + data[-len(_WITHOUT_TRAILER) :])[-len(_WITHOUT_TRAILER) :]
        bodies = [] if self._arriving is None else [self._arriving]
        self._arriving = None
        for message, content in added:
            if isinstance(message, RawRequestMessage):
                bodies.append(_Body(content, message.chunked))
            elif bodies and not bodies[-1].content.is_eof():
                _break(bodies[-1].content, malformed(getattr(message, "message", "")))
                return
        for number, body in enumerate(bodies, start=1):
            ends_here = number == len(bodies) and data and not stopped
            if not body.content.is_eof():
                self._arriving = body
            elif body.in_chunks and not (ends_here and self._tail == _WITHOUT_TRAILER) and self.last is None:
                self.last = body.content


def _break(content: StreamReader, error: BadRequest) -> None:
    """A reader that this very piece has woken looks for bytes first, finds none, and waits again: it is told
    when it does."""
    content.set_exception(error)
    asyncio.get_running_loop().call_soon(content.set_exception, error)
