"""The total timeout is for answers; a stream lasts as long as it speaks."""

from __future__ import annotations

import asyncio

from proxy.core.policy import Timeouts
from proxy.core.reachable import Said
from proxy.upstream.base import Answered, Headers, Lost, Outgoing, Result
from proxy.upstream.client import HttpUpstream
from tests.origin import Origin, ReadHead, Wait


class _Sink:
    """Lets the origin go on only after a part has arrived later than the total timeout."""

    def __init__(self, go_on: asyncio.Event, after: float) -> None:
        self._go_on, self._after = go_on, after
        self.body = b""

    def head(self, status: int, headers: Headers) -> None:
        asyncio.get_running_loop().call_later(self._after, self._go_on.set)

    async def data(self, chunk: bytes) -> None:
        self.body += chunk


async def _send(content_type: bytes) -> tuple[Result, bytes]:
    go_on = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % content_type
    async with Origin(
        [ReadHead(), head + b"5\r\nfirst\r\n", Wait(go_on), b"4\r\nlast\r\n0\r\n\r\n"]
    ) as origin:
        upstream = HttpUpstream()
        sink = _Sink(go_on, after=0.6)
        try:
            out = Outgoing(
                scheme="http",
                host="127.0.0.1",
                port=origin.port,
                method="GET",
                target=b"/",
                headers=((b"Host", b"origin"),),
                body=None,
                timeouts=Timeouts(connect=5.0, idle=30.0, total=0.3),
                max_idle=1.0,
                said=Said.NAMED,
            )
            return await upstream.send(out, sink, lambda: True), sink.body
        finally:
            await upstream.close()


async def test_an_event_stream_outlives_the_total_timeout() -> None:
    """Its end comes twice as late as the total timeout allows for other answers."""
    assert await _send(b"text/event-stream; charset=utf-8") == (Answered(200), b"firstlast")


async def test_any_other_answer_does_not() -> None:
    """The same timing, another media type: lost, by a timeout."""
    result, _ = await _send(b"application/json")
    assert isinstance(result, Lost)
    assert result.timed_out
