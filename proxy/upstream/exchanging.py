"""One exchange on one connection, awaited: write what is left, read, hand on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from proxy import faults
from proxy.core.headers import is_event_stream
from proxy.faults import Point
from proxy.spool import Spool
from proxy.upstream.answer import AnswerReader
from proxy.upstream.base import Answered, Lost, Result, Sink
from proxy.upstream.connection import Connection

# Up to here head and body are one write, one segment train, one wake-up at the other side.
ONE_WRITE = 64 * 1024
# So much of a stream is handed on before the rest, should more have come at once.
FIRST_PART = 8 * 1024


async def exchange(
    connection: Connection,
    answer: AnswerReader,
    body: Spool | None,
    rest: Iterator[bytes] | None,
    sink: Sink,
    *,
    sent_all: bool,
) -> Result:
    """Write, read, hand on: whatever is possible next, until the answer is complete or cannot be."""
    headed = begins = False
    while True:
        if rest is None and not sent_all and not connection.unwritten():
            sent_all = True
            faults.reach(Point.REQUEST_SENT)
        if answer.status and not headed:
            headed = True
            if is_event_stream(answer.headers):
                connection.waive_total()  # a stream lasts as long as it speaks
                begins = True
            sink.head(answer.status, answer.headers)
        if answer.parts:
            connection.held = True
            part = connection.take()
            if begins:
                begins = False
                part = await _begin_stream(connection, part, sink)
            if part:
                await sink.data(part)
            connection.consumed()
        elif answer.complete or connection.failure:
            break
        elif rest is not None and connection.writable and connection.is_open() and answer.status < 400:
            # An early refusal (413) stops the upload; an early 2xx only answers while it still reads.
            assert body is not None
            if not await _write_next(connection, rest, off_loop=body.on_disk):
                rest = None
        else:
            await connection.changed()
    if answer.complete:
        connection.end(sent_all=sent_all)
        return Answered(answer.status)
    return Lost(connection.failure, answer.status or None, connection.timed_out)


async def _begin_stream(connection: Connection, part: bytes, sink: Sink) -> bytes:
    """Whoever waits for the first of a stream has it before the rest is looked at, and before more is read.
    What is left of `part`."""
    connection.stop_reading()
    await sink.data(part[:FIRST_PART])
    await asyncio.sleep(0)
    connection.read_on()
    return part[FIRST_PART:]


def split(head: bytes, body: Spool | None) -> tuple[bytes, Iterator[bytes] | None]:
    """The first write, and what is written piece by piece after it."""
    if body is None:
        return head, None
    if body.on_disk or body.size > ONE_WRITE:
        return head, body.chunks()
    return head + body.whole(), None


async def _write_next(connection: Connection, rest: Iterator[bytes], *, off_loop: bool) -> bool:
    """False when nothing is left. A body that cannot be read any more breaks the exchange off."""
    try:
        if off_loop:
            chunk = await asyncio.get_running_loop().run_in_executor(None, next, rest, b"")
        else:
            chunk = next(rest, b"")
    except OSError as error:
        connection.fail(f"the request's body could not be read: {error}")
        return True
    if chunk and connection.is_open():
        connection.write(chunk)
    return bool(chunk)
