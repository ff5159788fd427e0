"""Requests to MCP servers: a stream that ends without its response is taken up again, where it can be.

Until 2025-11-25 a server may give its events ids and end a stream, or lose it, before the response is there;
whoever asks with the last id gets the rest. That is a question about the request, not the request again, so
it may be asked of calls with effects too. Without an id nothing can be asked: what is lost is lost.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.clock import Clock
from proxy.core.encoding import codings
from proxy.core.headers import Headers, is_event_stream
from proxy.core.sse import boundaries, fields_of, is_terminal
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, Sink, UpstreamClient
from proxy.upstream.client import request_head

# As long a server may let us wait before it is asked again, in seconds; and how long without its word.
LONGEST_PAUSE, PAUSE = 30.0, 1.0
# So often in a row it may have nothing to say, or not be there.
PATIENCE = 3
# Of an event that is larger only the end is looked for: after it nothing is asked again.
LARGEST_EVENT = 1024 * 1024
_OF_A_MESSAGE = frozenset(
    {
        b"accept",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"last-event-id",
        b"mcp-method",
        b"mcp-name",
    }
)


class RpcUpstream:
    """For everything else `network` is asked."""

    def __init__(self, *, network: UpstreamClient, clock: Clock) -> None:
        self._network = network
        self._clock = clock

    async def close(self) -> None:
        await self._network.close()

    async def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        if out.rpc is None:
            return await self._network.send(out, sink, may_send)
        heard = _Heard(sink)
        result = await self._network.send(out, heard, may_send)
        status = heard.status
        in_vain = 0
        while not isinstance(result, NotSent) and heard.can_be_taken_up and in_vain < PATIENCE:
            await self._clock.sleep(min(heard.pause, LONGEST_PAUSE))
            before = heard.last_id
            result = await self._network.send(_asking_for_the_rest(out, heard.last_id), _Rest(heard), _always)
            in_vain = 0 if heard.last_id != before else in_vain + 1
        if heard.has_response and not isinstance(result, NotSent):
            result = Answered(status)  # it is complete, whatever became of the connection
        elif isinstance(result, NotSent) and status:
            result = Lost(f"the stream ended without a response, and {result.reason}", status)
        await heard.flush()
        return Answered(status, out.rpc) if isinstance(result, Answered) else result


def _always() -> bool:
    return True


def _asking_for_the_rest(out: Outgoing, last_id: bytes) -> Outgoing:
    kept = tuple(pair for pair in out.headers if pair[0].lower() not in _OF_A_MESSAGE)
    headers = (*kept, (b"Accept", b"text/event-stream"), (b"Last-Event-ID", last_id))
    return out._replace(
        method="GET", headers=headers, body=None, head=request_head("GET", out.target, headers), rpc=None
    )


class _Heard:
    """Hands on whole events only: what was cut in the middle comes again."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._pending = b""
        self._follows = False  # it is an event stream that can be read
        self.status = 0
        self.last_id = b""
        self.pause = PAUSE
        self.has_response = False

    @property
    def can_be_taken_up(self) -> bool:
        return self._follows and bool(self.last_id) and not self.has_response

    def head(self, status: int, headers: Headers) -> None:
        self.status = status
        self._follows = status == 200 and is_event_stream(headers) and not codings(headers)
        self._sink.head(status, headers)

    async def data(self, chunk: bytes) -> None:
        if not self._follows:
            await self._sink.data(chunk)
            return
        pending, start = self._pending + chunk, 0
        for begin, end in boundaries(pending):
            self._learn(pending[start:begin])
            start = end
        self._pending = pending[start:]
        if len(self._pending) > LARGEST_EVENT:
            self._follows, start, self._pending = False, len(pending), b""
        if start:
            await self._sink.data(pending[:start])

    def _learn(self, event: bytes) -> None:
        self.has_response = self.has_response or is_terminal(event)
        for name, value in fields_of(event):
            if name == b"id" and b"\0" not in value:
                self.last_id = value
            elif name == b"retry" and value.isdigit() and len(value) < 8:
                self.pause = int(value) / 1000

    def cut(self) -> None:
        """The rest begins with a new event."""
        self._pending = b""

    async def flush(self) -> None:
        if self._pending:
            await self._sink.data(self._pending)
            self._pending = b""


class _Rest:
    """The events that were missing, if the server has them; whatever else it says is for nobody."""

    def __init__(self, heard: _Heard) -> None:
        self._heard = heard
        self._is_rest = False

    def head(self, status: int, headers: Headers) -> None:
        self._is_rest = status == 200 and is_event_stream(headers) and not codings(headers)
        self._heard.cut()

    async def data(self, chunk: bytes) -> None:
        if self._is_rest:
            await self._heard.data(chunk)
