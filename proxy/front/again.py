"""An MCP server's answer that another request had, written for this one: under its id.

Events are handed on one by one, as they come. A single message is changed when all of it is here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from proxy.answers import Produced
from proxy.core.headers import is_event_stream
from proxy.core.mcp_again import Again, headers_again
from proxy.core.sse import Splitter
from proxy.errors import AnswerUnavailable
from proxy.front.aside import Aside

# A longer message, or a single longer event, is not given under another id: all of it would lie in memory.
LONGEST = 64 * 1024 * 1024
# A longer one is changed beside the loop.
INLINE = 64 * 1024

_Change: TypeAlias = Callable[[bytes], bytes | None]


async def given_again(answer: Produced, again: Again, aside: Aside) -> Produced:
    """The answer is decoded already."""
    headers = headers_again(answer.headers)
    if is_event_stream(headers):
        events = _events(answer.body, again, aside)
        if isinstance(answer.body, bytes):
            whole = b"".join([event async for event in events])
            return Produced(answer.status, (*headers, (b"Content-Length", b"%d" % len(whole))), whole)
        return Produced(answer.status, headers, events)
    body = await _for_it(again.message, await _whole(answer.body), aside)
    assert body is not None
    return Produced(answer.status, (*headers, (b"Content-Length", b"%d" % len(body))), body)


async def _events(body: bytes | AsyncIterator[bytes], again: Again, aside: Aside) -> AsyncIterator[bytes]:
    splitter = Splitter()
    async for part in _parts(body):
        for event in splitter.feed(part):
            changed = await _for_it(again.event, event, aside)
            if changed is not None:
                yield changed
        _check(splitter.waiting)
    for event in splitter.finish():
        changed = await _for_it(again.event, event, aside)
        if changed is not None:
            yield changed


async def _for_it(change: _Change, text: bytes, aside: Aside) -> bytes | None:
    return change(text) if len(text) <= INLINE else await aside.run(change, text)


async def _whole(body: bytes | AsyncIterator[bytes]) -> bytes:
    if isinstance(body, bytes):
        return body
    parts, size = [], 0
    async for part in body:
        parts.append(part)
        size += len(part)
        _check(size)
    return b"".join(parts)


def _check(size: int) -> None:
    if size > LONGEST:
        raise AnswerUnavailable(
            f"The recorded answer is longer than {LONGEST} bytes, and cannot be given under another id than "
            "that of the first request."
        )


async def _parts(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(body, bytes):
        yield body
        return
    async for part in body:
        yield part
