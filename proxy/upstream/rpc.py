"""Requests to MCP servers: a stream that ends without its response is taken up again, where it can be.

Until 2025-11-25 a server may give its events ids and end a stream, or lose it, before the response is there;
whoever asks with the last id gets the rest. That is a question about the request, not the request again, so
it may be asked of calls with effects too. Without an id nothing can be asked: what is lost is lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from proxy.clock import Clock
from proxy.core.encoding import codings
from proxy.core.headers import Headers, is_event_stream
from proxy.core.jsonrpc import Id
from proxy.core.sse import boundaries, fields_of, is_terminal, unmarked
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, Sink, UpstreamClient
from proxy.upstream.client import request_head

# As long a server may let us wait before it is asked again, in seconds; and how long without its word.
LONGEST_PAUSE, PAUSE, SHORTEST_PAUSE = 30.0, 1.0, 0.1
# So often in a row it may have nothing to say, or not be there.
PATIENCE = 3
# Of an event that is larger only the end is looked for: after it nothing is asked again.
LARGEST_EVENT = 1024 * 1024
_OF_A_MESSAGE = frozenset(
    {b"accept", b"digest", b"last-event-id", b"mcp-method", b"mcp-name", b"repr-digest"}
)


class RpcUpstream:
    """For everything else `network` is asked."""

    def __init__(self, *, network: UpstreamClient, clock: Clock) -> None:
        self._network = network
        self._clock = clock

    async def close(self) -> None:
        await self._network.close()

    def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Awaitable[Result]:
        if out.rpc is None:
            return self._network.send(out, sink, may_send)
        return self._send_aloft(out, out.rpc, _Heard(sink), may_send)

    async def _send_aloft(
        self, out: Outgoing, rpc: Id, heard: _Heard, may_send: Callable[[], bool]
    ) -> Result:
        with out.aloft:
            return await self._send(out, rpc, heard, may_send)

    async def _send(self, out: Outgoing, rpc: Id, heard: _Heard, may_send: Callable[[], bool]) -> Result:
        result = await self._network.send(out, heard, may_send)
        if isinstance(result, NotSent):
            return result
        failed = await self._take_up(out, heard)
        await heard.flush()
        if heard.has_response:
            return Answered(heard.status, rpc)  # it is complete, whatever became of the connection
        if isinstance(result, Lost):
            return result
        if failed is None:
            return Answered(heard.status, rpc)
        return Lost(f"the stream ended without a response, and {failed.reason}", heard.status)

    async def _take_up(self, out: Outgoing, heard: _Heard) -> NotSent | Lost | None:
        """Ask for what is missing. How the last question failed; None: it was answered, or not asked."""
        failed, in_vain = None, 0
        while heard.can_be_taken_up and in_vain < PATIENCE:
            await self._clock.sleep(max(SHORTEST_PAUSE, min(heard.pause, LONGEST_PAUSE)))
            before = heard.last_id
            result = await self._network.send(_asking_for_the_rest(out, before), _Rest(heard), _always)
            failed = None if isinstance(result, Answered) else result
            in_vain = 0 if heard.last_id != before else in_vain + 1
        return failed


def _always() -> bool:
    return True


def _asking_for_the_rest(out: Outgoing, last_id: bytes) -> Outgoing:
    kept = tuple(pair for pair in out.headers if not _is_of_the_message(pair[0].lower()))
    headers = (*kept, (b"Accept", b"text/event-stream"), (b"Last-Event-ID", last_id))
    return out._replace(
        method="GET", headers=headers, body=None, head=request_head("GET", out.target, headers), rpc=None
    )


def _is_of_the_message(name: bytes) -> bool:
    return name in _OF_A_MESSAGE or name.startswith(b"content-")


def _can_be_followed(status: int, headers: Headers) -> bool:
    return status == 200 and is_event_stream(headers) and not codings(headers)


class _Heard:
    """Hands on whole events only: what was cut in the middle comes again."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._pending = bytearray()
        self._follows = False  # it is an event stream that can be read
        self._begun = False
        self.status = 0
        self.last_id = b""
        self.pause = PAUSE
        self.has_response = False

    @property
    def can_be_taken_up(self) -> bool:
        return self._follows and bool(self.last_id) and not self.has_response

    def head(self, status: int, headers: Headers) -> None:
        self.status = status
        self._follows = _can_be_followed(status, headers)
        if self._follows:  # with what may come later it is longer than it says
            headers = tuple(pair for pair in headers if pair[0].lower() != b"content-length")
        self._sink.head(status, headers)

    async def data(self, chunk: bytes) -> None:
        if not self._follows:
            await self._sink.data(chunk)
            return
        pending, start = self._pending, 0
        # A boundary may have begun in the last bytes of the previous chunk, no earlier.
        look_from = max(0, len(pending) - 3)
        pending += chunk
        for begin, end in boundaries(pending, look_from):
            self._learn(bytes(pending[start:begin]))
            start = end
        if len(pending) - start > LARGEST_EVENT:
            self._follows, start = False, len(pending)
        if start:
            whole = bytes(pending[:start])
            del pending[:start]
            await self._sink.data(whole)

    def _learn(self, event: bytes) -> None:
        event, self._begun = event if self._begun else unmarked(event), True
        self.has_response = self.has_response or is_terminal(event)
        for name, value in fields_of(event):
            if name == b"id" and b"\0" not in value:
                self.last_id = value
            elif name == b"retry" and value.isdigit() and len(value) < 8:
                self.pause = int(value) / 1000

    def cut(self) -> None:
        """The rest begins with a new event."""
        self._pending.clear()

    async def flush(self) -> None:
        if self._pending:
            rest = bytes(self._pending)
            self._pending.clear()
            await self._sink.data(rest)


class _Rest:
    """The events that were missing, if the server has them; whatever else it says is for nobody."""

    def __init__(self, heard: _Heard) -> None:
        self._heard = heard
        self._is_rest = False

    def head(self, status: int, headers: Headers) -> None:
        self._is_rest = _can_be_followed(status, headers)
        if self._is_rest:
            self._heard.cut()

    async def data(self, chunk: bytes) -> None:
        if self._is_rest:
            await self._heard.data(chunk)
