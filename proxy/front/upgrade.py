"""A request for another protocol (a websocket): put to the upstream, and if it agrees, a tunnel from then on.

Never recorded. Only a GET without a body may ask: with any other method the upgrade is left out and the call
is made and recorded as it is, so that nothing with effects slips by. h2c is left out too: what came behind it
would be calls that nobody looks at.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import cast

from aiohttp.streams import EMPTY_PAYLOAD

from proxy.core.policy import Timeouts
from proxy.errors import BadRequest, UpstreamTimeout, UpstreamUnreachable
from proxy.front import status_headers as own
from proxy.front.connection import Connection
from proxy.front.incoming import Incoming
from proxy.front.interception import Dialer
from proxy.front.reply import ReplyWriter, Written
from proxy.front.through import through, tunnel_from
from proxy.front.tunnel import End
from proxy.front.turns import HttpRequest
from proxy.refusals import not_sent
from proxy.stream import CutOff
from proxy.upstream.answer import AnswerReader
from proxy.upstream.client import request_head

_SWITCHING = re.compile(rb"HTTP/1\.[01] 101[ \r]")
_INTERIM = re.compile(rb"HTTP/1\.[01] 1[0-9]{2}[ \r]")
_END_OF_HEAD = b"\r\n\r\n"
_LEFT_OUT = frozenset({"h2c", "h2", "http/2.0"})
BACKLOG = 256 * 1024


def wished_protocol(request: HttpRequest, connection: Connection, writer: ReplyWriter) -> str:
    """What the client would like to speak from now on, or nothing. Asked when the request is read whole."""
    if connection.has_lost(request.content):
        writer.is_last()  # whoever waits for an answer to more than this one asks again
        return ""
    options = [
        word.strip(" \t").lower() for word in ",".join(request.headers.getall("Connection", ())).split(",")
    ]
    if request.method != "GET" or request.body_exists or "upgrade" not in options or request.version < (1, 1):
        return ""
    words = [word.strip(" \t") for word in ",".join(request.headers.getall("Upgrade", ())).split(",")]
    return ", ".join([word for word in words if word and word.lower() not in _LEFT_OUT])


class _Answer(asyncio.Protocol):
    """The upstream's answer to the wish: `switched` with what came behind the head, or any other answer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._news = asyncio.Event()
        self._early = bytearray()
        self._held = False
        self.transport: asyncio.Transport | None = None
        self.reader: AnswerReader | None = AnswerReader(head_only=False, max_header_bytes=limit)
        self.switched = b""  # the head, once the upstream agreed
        self.behind = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._news.set()
        if self.switched:
            self.behind += data
            return
        if not self._looked_at(data):
            return
        reader = self.reader
        if reader is not None:
            early, self._early = bytes(self._early), bytearray()
            reader.feed(early)
            if reader.pending > BACKLOG and self.transport is not None:
                self._held = True
                self.transport.pause_reading()

    def _looked_at(self, data: bytes) -> bool:
        """True if it is for the reader: some other answer than 101."""
        self._early += data
        reader = self.reader
        if reader is not None and reader.status:
            return True
        end = self._early.find(_END_OF_HEAD)
        while end >= 0 and _INTERIM.match(self._early) and not _SWITCHING.match(self._early):
            del self._early[: end + 4]
            end = self._early.find(_END_OF_HEAD)
        if end < 0:
            return len(self._early) > self._limit  # the reader says what is wrong with it
        if not _SWITCHING.match(self._early):
            return True
        self.switched, self.behind = bytes(self._early[: end + 4]), bytes(self._early[end + 4 :])
        return False

    def eof_received(self) -> None:
        if self.reader is not None and not self.switched:
            self.reader.feed(bytes(self._early))
            self._early.clear()
            if not self.reader.complete and not self.reader.problem:
                self.reader.eof()
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.reader is not None and not self.reader.complete and not self.reader.problem:
            self.reader.problem = "the upstream closed the connection"
        self.transport = None
        self._news.set()

    async def change(self, patience: float) -> None:
        self._news.clear()
        async with asyncio.timeout(patience):
            await self._news.wait()

    def take(self) -> bytes:
        assert self.reader is not None
        parts, self.reader.parts, self.reader.pending = self.reader.parts, [], 0
        if self._held and self.transport is not None:
            self._held = False
            self.transport.resume_reading()
        return b"".join(parts)

    def let_go(self) -> None:
        if self.reader is not None:
            self.reader.release()
            self.reader = None


async def switch(
    protocol: str, incoming: Incoming, connection: Connection, writer: ReplyWriter, dialer: Dialer, limit: int
) -> tuple[int, Written]:
    """The status that the upstream gave, and the reply; after a 101 when the tunnel is over."""
    out = incoming.sending.outgoing()
    wish = ((b"Connection", b"Upgrade"), (b"Upgrade", protocol.encode("latin-1")))
    try:
        head = request_head(out.method, out.target, (*out.headers, *wish))
    except ValueError as error:
        raise BadRequest(f"The request cannot be forwarded as it is: {error}.") from None
    answer = _Answer(limit)
    failed = await dialer.dial(out.scheme, out.host, out.port, out.said, out.timeouts, answer)
    if failed is not None:
        raise not_sent(failed)
    if answer.transport is None:
        raise UpstreamUnreachable("The upstream closed the connection.")
    upstream = answer.transport
    try:
        upstream.write(head)
        await _headed(answer, out.timeouts)
        assert answer.reader is not None
        if answer.switched:
            if connection.has_lost(EMPTY_PAYLOAD):
                raise BadRequest(f"Bytes came before {protocol} was agreed on: wait for the answer.")
            end = End()
            end.connection_made(upstream)
            upstream.set_protocol(end)
            if answer.behind:
                end.data_received(answer.behind)
            writer.begun = True
            tunnel = tunnel_from(connection, end)
            told = answer.switched[:-2] + b"Semel-Status: passed\r\n\r\n"
            await through(tunnel, connection, told)
            return 101, Written(101, connection, keep_alive=False, body_length=tunnel.size)
        status, headers = answer.reader.status, own.passed(answer.reader.headers)
        return status, await writer.stream(status, headers, _parts(answer, out.timeouts))
    finally:
        answer.let_go()
        upstream.close()


async def _headed(answer: _Answer, timeouts: Timeouts) -> None:
    reader = answer.reader
    assert reader is not None
    try:
        while not answer.switched and not reader.status:
            if reader.problem:
                raise UpstreamUnreachable(f"No answer to the upgrade: {reader.problem}.")
            await answer.change(timeouts.idle)
    except TimeoutError:
        raise UpstreamTimeout(f"No answer to the upgrade within {timeouts.idle:g} s.") from None


async def _parts(answer: _Answer, timeouts: Timeouts) -> AsyncIterator[bytes]:
    reader = answer.reader
    assert reader is not None
    while True:
        if reader.parts:
            yield answer.take()
        elif reader.complete:
            return
        elif reader.problem:
            raise CutOff(reader.problem)
        else:
            try:
                await answer.change(timeouts.idle)
            except TimeoutError:
                raise CutOff(f"no byte for {timeouts.idle:g} s") from None
