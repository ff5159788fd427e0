"""Requests of one connection, one after another: aiohttp parses them, we take turns serving them.

aiohttp's own loop makes a task, a writer and a rich request for each; what is served here needs none of
them, and a fifth of the time of a replay went there. A request that is here whole is begun where it arrives:
what need not wait for anything is answered before anybody else has his turn.
"""

from __future__ import annotations

import asyncio
from asyncio import _enter_task as enter_task  # asyncio's manual has them, in "Extending"
from asyncio import _leave_task as leave_task
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import coroutine
from typing import Any, NamedTuple, Protocol, cast

from aiohttp import StreamReader, web_protocol
from aiohttp.http import RawRequestMessage
from aiohttp.http_parser import HttpParser
from aiohttp.streams import EmptyStreamReader
from aiohttp.web import BaseRequest
from multidict import CIMultiDict, CIMultiDictProxy

from proxy.errors import BadRequest
from proxy.front.whole import VERSION, AllHere, Whole


class Reply(Protocol):
    """A reply that is on its way."""

    keep_alive: bool

    async def write_eof(self) -> None: ...


class Trip(Protocol):
    """A turn that is taken by others than the connection's task."""

    def left(self) -> None:
        """The client has, before its reply was written."""


class Content(Protocol):
    """What is known of a body as it arrives."""

    total_bytes: int

    def is_eof(self) -> bool: ...


class HttpRequest:
    """A parsed head and its body: `whole` where it is here, `stream` as it arrives. `plain`: it was here from
    the start, and is nothing but a head and so many bytes. `raw`: these, where the same would mean the same
    again on any connection. `known`: its head, where that came before and means the same too."""

    __slots__ = (
        "_headers",
        "content",
        "keep_alive",
        "known",
        "method",
        "plain",
        "protocol",
        "raw",
        "raw_headers",
        "raw_path",
        "stream",
        "version",
        "whole",
    )

    def __init__(self, request: Whole, protocol: Turns, raw: bytes = b"") -> None:
        self.raw = raw
        self.method, self.raw_path, self.raw_headers, self.whole, self.known = request
        self.protocol = protocol
        self.version = VERSION
        self.keep_alive = self.plain = True
        self.content: Content = AllHere(len(self.whole))
        self.stream: StreamReader | None = None
        self._headers: CIMultiDictProxy[str] | None = None

    @classmethod
    def parsed(cls, message: RawRequestMessage, content: StreamReader, protocol: Turns) -> HttpRequest:
        request = cls(Whole(message.method, message.path, message.raw_headers, b""), protocol)
        request.version, request.keep_alive = message.version, not message.should_close
        request.plain, request._headers = False, message.headers
        request.content = content
        request.stream = None if type(content) is EmptyStreamReader else content
        return request

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        if self._headers is None:
            decoded = [
                (name.decode(), value.decode("utf-8", "surrogateescape")) for name, value in self.raw_headers
            ]
            self._headers = CIMultiDictProxy(CIMultiDict(decoded))
        return self._headers

    @property
    def body_exists(self) -> bool:
        return self.stream is not None or self.whole != b""

    def _finish(self) -> None:
        """aiohttp's word for the end of a request; nothing is left to do."""


class Turns(web_protocol.RequestHandler):
    __slots__ = ("_begun", "_parked", "_serve", "_trip")

    def __init__(
        self,
        manager: Any,  # noqa: ANN401 (aiohttp's)
        serve: Callable[[HttpRequest], Awaitable[Reply]],
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(manager, **settings)
        self._serve = serve
        self._begun: _Begun | None = None
        self._trip: Trip | None = None  # a turn that is on its way without the task
        self._parked: asyncio.Future[None] | None = None  # what the task waits for meanwhile

    async def start(self) -> None:
        while not self._force_close:
            turn = await self._next_turn()
            if turn is None:
                break
            try:
                if not await turn:
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

    async def _next_turn(self) -> Awaitable[bool] | None:
        """None: what came could not be parsed, and it was said so."""
        if not self._messages:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError as cancelled:
                begun, self._begun = self._begun, None
                if begun is None:
                    raise
                return _go_on(begun, cancelled)  # it hears of it as if it had been awaited all along
            finally:
                self._waiter = None
            if self._begun is not None:
                begun, self._begun = self._begun, None
                return _go_on(begun)
        message, payload = self._messages.popleft()
        self._took_a_message()
        if isinstance(message, RawRequestMessage):
            return self._turn(HttpRequest.parsed(message, payload, self))
        self.handle_error(cast("BaseRequest", None), message.status, message.exc, message.message)
        return None

    # ---- at once ----

    def _is_waiting(self) -> bool:
        """Between two requests, and nothing else has come. Nobody else is at work, in whose midst another
        request would be served."""
        waiter = self._waiter
        if waiter is None or waiter.done() or self._force_close or self._close:
            return False
        return asyncio.current_task(self._loop) is None

    def begin(self, whole: Whole, raw: bytes) -> None:
        """While `_is_waiting`: serve it from here as far as it goes without waiting. Mostly that is all of
        it; otherwise the connection's task, in whose name it is done, goes on with it."""
        waiter, self._waiter = self._waiter, None  # nobody is waiting now
        assert waiter is not None
        self._take(self._turn(HttpRequest(whole, self, raw)), waiter)

    def _take(self, turn: Coroutine[Any, Any, bool], waiter: asyncio.Future[None]) -> None:
        task = self._task_handler
        assert task is not None
        enter_task(self._loop, task)
        try:
            awaited = turn.send(None)
        except StopIteration as ended:
            if ended.value and not self._messages:
                self._waiter = waiter
                self._await_the_next()
                return
            if not ended.value:
                self._begun = _Begun(_last(), None)
        except BaseException as error:
            self._begun = _Begun(_last(error), None)
        else:
            self._begun = _Begun(turn, awaited)
        finally:
            leave_task(self._loop, task)
        waiter.set_result(None)

    # ---- without the task ----

    def sets_out(self, trip: Trip) -> None:
        """While `_is_waiting`: the turn is taken by `trip`, which says when it is over."""
        self._trip = trip
        self._parked, self._waiter = self._waiter, None
        self._request_in_progress = True

    def comes_back(self) -> None:
        """The reply is written. Mostly the next request is all that is waited for now."""
        self._trip, waiter, self._parked = None, self._parked, None
        assert waiter is not None
        self._turn_is_over()
        if waiter.done():
            return  # the connection is gone
        self._keepalive = True
        if self._paused or self._close or self._force_close:
            self._begun = _Begun(self._written(), None)
        elif not self._messages:
            self._waiter = waiter
            self._await_the_next()
            return
        waiter.set_result(None)

    def takes_over(self, serve: Callable[[], Awaitable[Reply]], request: HttpRequest) -> None:
        """The task goes on with a turn that was set out on. Nobody else is at work."""
        waiter = self._parked
        assert waiter is not None
        if waiter.done():
            return  # the connection is on its way out, and will say so
        self._trip = self._parked = None
        self._take(self._turn(request, serve()), waiter)

    def _ends_trip(self) -> None:
        """The client has left."""
        trip, self._trip = self._trip, None
        if trip is not None:
            self._turn_is_over()
            trip.left()

    def _turn_is_over(self) -> None:
        """Whoever shuts down waits for that."""
        self._request_in_progress = False
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)

    async def _written(self) -> bool:
        if self._paused:
            await self._drain_helper()
        return not self._close and not self._force_close

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

    async def _turn(self, request: HttpRequest, serving: Awaitable[Reply] | None = None) -> bool:
        """True if the connection is good for another request."""
        self._request_in_progress = True
        try:
            try:
                reply = await (serving or self._serve(request))
            except (asyncio.CancelledError, ConnectionError):
                raise
            except Exception as error:
                reply = cast("Reply", self.handle_error(cast("BaseRequest", request), 500, error))
            if self._upgraded and not self._messages and self._parser is not None:
                self._hear_the_rest(self._parser)
            if self._paused:  # else there is nothing to wait for
                await reply.write_eof()
        finally:
            self._turn_is_over()
        self._keepalive = reply.keep_alive
        if request.stream is not None and not request.stream.is_eof() and not self._force_close:
            await self._linger(request.stream)
        return self._keepalive and not self._close and not self._force_close

    def _hear_the_rest(self, parser: HttpParser[Any]) -> None:
        """Nothing is upgraded: what came behind the head are requests after all, and come in by the same door
        as all others."""
        parser.set_upgraded(False)
        self._upgraded = False
        behind, self._message_tail = self._message_tail, b""
        if behind:
            self.data_received(behind)
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()

    async def _linger(self, content: StreamReader) -> None:
        """A client that is still sending would not read our reply: take the rest, for a while."""
        try:
            async with asyncio.timeout(self._lingering_time):
                while not content.is_eof():
                    await content.readany()
        except (TimeoutError, BadRequest):  # too long, or malformed
            self.close()

    def _await_the_next(self) -> None:
        closing_at = self._loop.time() + self._keepalive_timeout
        self._next_keepalive_close_time = closing_at
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(closing_at, self._process_keepalive)


class _Begun(NamedTuple):
    """A turn that has been taken as far as the first thing it waits for."""

    turn: Coroutine[Any, Any, bool]
    awaited: Any


async def _last(error: BaseException | None = None) -> bool:
    """A turn that is over, and no other comes after it."""
    if error is not None:
        raise error
    return False


@coroutine
def _go_on(begun: _Begun, thrown: BaseException | None = None) -> Generator[Any, Any, bool]:
    """As if it had been awaited from the beginning."""
    turn, awaited = begun
    try:
        while True:
            if thrown is None:
                try:
                    yield awaited
                except GeneratorExit:
                    turn.close()
                    raise
                except BaseException as error:
                    thrown = error
            awaited = turn.send(None) if thrown is None else turn.throw(thrown)
            thrown = None
    except StopIteration as ended:
        return bool(ended.value)
