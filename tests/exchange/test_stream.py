"""What a reader may see before the answer is durable: never the end."""

from __future__ import annotations

import asyncio
import zlib

import pytest

from proxy.errors import InDoubt
from proxy.stream import WINDOW, Capture, CutOff, Reader
from proxy.upstream.base import Headers
from tests.exchange.stage import until
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")

EVENTS: Headers = ((b"Content-Type", b"text/event-stream; charset=utf-8"),)


async def visible(headers: Headers, *parts: bytes) -> int:
    capture = Capture(limit=10_000)
    capture.head(200, headers)
    for part in parts:
        await capture.data(part)
    capture.complete()
    return capture.visible


@in_virtual_time
async def test_under_content_length_the_last_byte_is_held_back() -> None:
    """With the last byte a client has the whole answer."""
    assert await visible(((b"content-length", b"10"),), b"01234", b"56789") == 9
    assert await visible(((b"Content-Length", b"1"),), b"0") == 0


@in_virtual_time
async def test_in_chunks_the_terminating_chunk_is_the_end() -> None:
    """All bytes may pass; the end of the stream is what is missing."""
    assert await visible((), b"01234", b"56789") == 10


@in_virtual_time
async def test_of_a_known_stream_the_terminal_event_and_all_after_it_are_held_back() -> None:
    """[DONE] is what clients act on."""
    assert await visible(EVENTS, b"data: a\n\ndata: [DO", b"NE]\n\n: more\n\n") == len(b"data: a\n\n")


@in_virtual_time
async def test_an_unknown_event_stream_under_content_length_keeps_its_last_byte_back() -> None:
    """It has no terminal event, so its length says where it ends."""
    body = b"data: a\n\ndata: b\n\n"
    length = (b"Content-Length", b"%d" % len(body))
    assert await visible((*EVENTS, length), body) == len(body) - 1


@in_virtual_time
async def test_of_a_compressed_event_stream_too_the_terminal_event_is_held_back() -> None:
    """It is decoded to see where it ends, and handed on as it came."""
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(b"data: a\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    last = packer.compress(b"data: [DONE]\n\n") + packer.flush()
    coding = (b"Content-Encoding", b"gzip")
    assert await visible((*EVENTS, coding), first, last) == len(first)
    assert await visible((*EVENTS, coding), first, b"no gzip", b"at all") == len(first)


@in_virtual_time
async def test_the_end_comes_with_the_seal_and_not_before() -> None:
    """A reader has all visible bytes and waits; the seal gives it the rest and lets it go."""
    capture = Capture(limit=10_000)
    reader = capture.reader()
    got: list[bytes] = []

    async def read() -> None:
        await reader.begin()
        got.extend([part async for part in reader.parts()])

    task = asyncio.create_task(read())
    capture.head(200, ((b"Content-Length", b"6"),))
    await capture.data(b"abcdef")
    await until(lambda: reader.offset == 5)
    capture.complete()
    await asyncio.sleep(1000)
    assert not task.done()
    capture.seal(stored=True)
    await task
    assert b"".join(got) == b"abcdef"


@in_virtual_time
async def test_without_a_body_the_head_waits_for_the_seal() -> None:
    """A 204 has no other end than its head."""
    capture = Capture(limit=10_000)
    begin = asyncio.create_task(capture.reader().begin())
    capture.head(204, ())
    capture.complete()
    await asyncio.sleep(1000)
    assert not begin.done()
    capture.seal(stored=True)
    await begin


@in_virtual_time
async def test_a_refusal_reaches_who_has_seen_nothing_and_cuts_off_who_has() -> None:
    """Nothing is spliced: after the first byte only an abort is left."""
    capture = Capture(limit=10_000)
    early, late = capture.reader(), capture.reader()
    capture.head(200, ((b"Content-Length", b"6"),))
    await capture.data(b"abc")
    await early.begin()
    capture.refuse(InDoubt("held"))
    with pytest.raises(InDoubt):
        await late.begin()
    with pytest.raises(CutOff):
        [part async for part in early.parts()]


@in_virtual_time
async def test_a_refusal_given_to_many_does_not_grow() -> None:
    """One exception for all who ask during an outage: it must not keep every asker's frames alive."""
    capture = Capture(limit=10_000)
    capture.refuse(InDoubt("held"))
    for _ in range(100):
        with pytest.raises(InDoubt) as refused:
            await capture.reader().begin()
    depth, frame = 0, refused.value.__traceback__
    while frame is not None:
        depth, frame = depth + 1, frame.tb_next
    assert depth < 10


@in_virtual_time
async def test_beyond_the_limit_the_upstream_waits_for_the_slowest_reader() -> None:
    """Memory stays bounded, no byte is lost, and a reader that leaves does not stop the others."""
    capture = Capture(limit=100, memory=100)
    readers = [capture.reader(), capture.reader()]
    total, biggest = 40 * 100_000, 0

    async def write() -> None:
        nonlocal biggest
        capture.head(200, ())
        for n in range(40):
            await capture.data(bytes([n]) * 100_000)
            biggest = max(biggest, sum(map(len, capture._tail)))
        capture.complete()
        capture.seal(stored=True)

    async def read(reader: Reader) -> bytes:
        await reader.begin()
        body = b""
        async for part in reader.parts():
            body += part
            await asyncio.sleep(0.01)
        return body

    writing = asyncio.create_task(write())
    reading = asyncio.create_task(read(readers[0]))
    await asyncio.sleep(100)
    assert not writing.done()  # the second reader has taken nothing
    readers[1].close()
    body = await reading
    await writing
    assert body == b"".join(bytes([n]) * 100_000 for n in range(40))
    assert len(body) == total
    assert biggest <= 1024 * 1024 + 100_000
    assert capture.kept is None


async def test_what_is_held_back_of_an_answer_too_long_to_keep_stays_within_the_window() -> None:
    """An upstream that goes on after the terminal event neither hangs the call nor fills the memory."""
    capture = Capture(limit=10, hold_end=True)
    reader = capture.reader()
    capture.head(200, ((b"Content-Type", b"text/event-stream"),))
    chunk, taken = b"x" * (256 * 1024), 0

    async def take() -> None:
        nonlocal taken
        await reader.begin()
        async for part in reader.parts():
            taken += len(part)

    taking = asyncio.create_task(take())
    async with asyncio.timeout(20):
        await capture.data(b"data: first\n\ndata: [DONE]\n\n")
        for _ in range(32):
            await capture.data(chunk)
            assert capture.received - taken <= 3 * WINDOW
        capture.complete()
        await asyncio.sleep(0)
        assert taken < capture.received  # the end is still held back
        capture.seal(stored=False)
        await taking
    assert taken == capture.received
