"""Requests of one connection, one after another: aiohttp parses them, we take turns serving them.

aiohttp's own loop makes a task, a writer and a rich request for each; what is served here needs none of
them, and a fifth of the time of a replay went there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from aiohttp import StreamReader, web_protocol
from aiohttp.http import HttpVersion, RawRequestMessage
from aiohttp.streams import EmptyStreamReader
from aiohttp.web import BaseRequest, StreamResponse
from multidict import CIMultiDictProxy

from proxy.core.headers import Headers


class Reply(Protocol):
    """A reply that is on its way."""

    keep_alive: bool

    async def write_eof(self) -> None: ...


class HttpRequest:
    """A parsed head and the body as it arrives."""

    __slots__ = (
        "body_exists",
        "content",
        "headers",
        "keep_alive",
        "method",
        "protocol",
        "raw_headers",
        "raw_path",
        "version",
    )

    def __init__(self, message: RawRequestMessage, content: StreamReader, protocol: Turns) -> None:
        self.method: str = message.method
        self.raw_path: str = message.path
        self.version: HttpVersion = message.version
        self.headers: CIMultiDictProxy[str] = message.headers
        self.raw_headers: Headers = message.raw_headers
        self.keep_alive: bool = not message.should_close
        self.content = content
        self.body_exists: bool = type(content) is not EmptyStreamReader
        self.protocol = protocol

    def _finish(self) -> None:
        """aiohttp's word for the end of a request; nothing is left to do."""


class Turns(web_protocol.RequestHandler):
    __slots__ = ("_serve",)

    def __init__(
        self,
        manager: Any,  # noqa: ANN401 (aiohttp's)
        serve: Callable[[HttpRequest], Awaitable[Reply]],
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(manager, **settings)
        self._serve = serve

    async def start(self) -> None:
        while not self._force_close:
            if not self._messages:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            message, payload = self._messages.popleft()
            self._took_a_message()
            if not isinstance(message, RawRequestMessage):  # what could not be parsed
                self.handle_error(cast("BaseRequest", None), message.status, message.exc, message.message)
                break
            try:
                if not await self._turn(HttpRequest(message, payload, self)):
                    break
            except ConnectionError:  # the client has left
                break
            except BaseException:
                self.force_close()
                raise
            self._await_the_next()
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self._leave(self.transport)

    def _leave(self, transport: asyncio.Transport) -> None:
        """The last reply is written."""
        transport.close()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp says so after every part of a body. Where nothing was paused there is nothing to go on
        with, and it costs a tenth of a replay."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def _took_a_message(self) -> None:
        """Room for one more; where reading stopped because many were waiting, it goes on."""
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()

    async def _turn(self, request: HttpRequest) -> bool:
        """True if the connection is good for another request."""
        self._request_in_progress = True
        try:
            try:
                reply = await self._serve(request)
            except (asyncio.CancelledError, ConnectionError):
                raise
            except Exception as error:
                reply = cast("Reply", self.handle_error(cast("BaseRequest", request), 500, error))
            if self._upgraded:  # nothing is: what came behind the head are requests after all
                await self.finish_response(cast("BaseRequest", request), cast("StreamResponse", reply), None)
            else:
                await reply.write_eof()
        finally:
            self._request_in_progress = False
            if self._handler_waiter is not None and not self._handler_waiter.done():
                self._handler_waiter.set_result(None)
        self._keepalive = reply.keep_alive
        if not request.content.is_eof() and not self._force_close:
            await self._linger(request.content)
        return self._keepalive and not self._close and not self._force_close

    async def _linger(self, content: StreamReader) -> None:
        """A client that is still sending would not read our reply: take the rest, for a while."""
        try:
            async with asyncio.timeout(self._lingering_time):
                while not content.is_eof():
                    await content.readany()
        except TimeoutError:
            self.close()

    def _await_the_next(self) -> None:
        closing_at = self._loop.time() + self._keepalive_timeout
        self._next_keepalive_close_time = closing_at
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(closing_at, self._process_keepalive)


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
