"""Large bodies in both directions: written and read piece by piece, never more in memory than a few parts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.spool import Spool
from proxy.upstream.answer import AnswerReader
from proxy.upstream.base import Answered
from proxy.upstream.exchanging import FIRST_PART
from tests.origin import (
    CERTIFICATE,
    OK,
    Origin,
    ReadBody,
    ReadHead,
    Script,
    Stall,
    StopReading,
    Wait,
    answer,
    run_on,
)
from tests.sending import Collecting, both_loops, client, request, trusting, yes


def large_spool(size: int, directory: Path) -> Spool:
    spool = Spool(memory_limit=0, directory=directory)
    for start in range(0, size, 65536):
        spool.append(bytes([start // 65536 % 251]) * min(65536, size - start))
    return spool


@both_loops
@pytest.mark.parametrize("on_disk", [False, True])
def test_large_body_goes_out_piece_by_piece(loop: str, on_disk: bool, tmp_path: Path) -> None:
    """8 MiB from memory or from disk arrive whole, and the connection is used again."""
    size = 8 * 1024 * 1024
    spool = large_spool(size, tmp_path) if on_disk else Spool.of(b"m" * size)

    async def scenario() -> None:
        async with Origin() as origin, client() as upstream:
            out = request(origin.port, "PUT", body=spool)
            assert await upstream.send(out, Collecting(), yes) == Answered(200)
            (seen,) = origin.requests
            assert seen.complete
            assert seen.body == spool.whole()
            await upstream.send(request(origin.port), Collecting(), yes)
            assert origin.connections == 1

    assert spool.on_disk is on_disk
    run_on(loop, scenario())


@both_loops
def test_early_refusal_stops_the_upload(loop: str, tmp_path: Path) -> None:
    """413 before the body was read: the answer counts, the rest is not written, nor the connection reused."""
    size = 64 * 1024 * 1024
    refusal: Script = (ReadHead(), StopReading(), answer(413, b"too much"), Stall())

    async def scenario() -> None:
        async with Origin(refusal, OK) as origin, client() as upstream:
            sink = Collecting()
            out = request(origin.port, body=large_spool(size, tmp_path))
            assert await upstream.send(out, sink, yes) == Answered(413)
            assert sink.body == b"too much"
            assert origin.received < size
            assert await upstream.send(request(origin.port), Collecting(), yes) == Answered(200)
            assert origin.connections == 2

    run_on(loop, scenario())


@both_loops
def test_early_refusal_stops_the_upload_even_if_the_upstream_reads_on(loop: str, tmp_path: Path) -> None:
    """The refusal decides, not the full window: nothing more is written while its body is still coming."""
    size = 64 * 1024 * 1024
    raw = answer(413, b"too much")

    async def scenario() -> None:
        go_on = asyncio.Event()
        script: Script = (ReadHead(), raw[:-1], Wait(go_on), raw[-1:])
        async with Origin(script) as origin, client() as upstream:
            out = request(origin.port, body=large_spool(size, tmp_path))
            sending = asyncio.create_task(upstream.send(out, Collecting(), yes))
            with contextlib.suppress(TimeoutError):  # what must not come does not come
                async with asyncio.timeout(0.5):
                    while not (origin.requests and origin.requests[0].complete):
                        await asyncio.sleep(0.01)
            go_on.set()
            assert await sending == Answered(413)
            assert origin.received < size

    run_on(loop, scenario())


@both_loops
def test_answer_while_the_request_is_still_read(loop: str) -> None:
    """A 2xx that starts early does not stop the upload: the upstream wants all of it."""
    size = 8 * 1024 * 1024
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc"

    async def scenario() -> None:
        async with Origin((ReadHead(), head, ReadBody(), b"def")) as origin, client() as upstream:
            sink = Collecting()
            out = request(origin.port, body=Spool.of(b"x" * size))
            assert await upstream.send(out, sink, yes) == Answered(200)
            assert sink.body == b"abcdef"
            assert origin.requests[0].complete

    run_on(loop, scenario())


class Slow(Collecting):
    """Counts instead of keeping, and waits to be let on every time."""

    def __init__(self, gate: Callable[[], asyncio.Future[None]]) -> None:
        super().__init__()
        self.size = 0
        self.largest = 0
        self._gate = gate

    async def data(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self.largest = max(self.largest, len(chunk))
        await self._gate()


@both_loops
def test_a_slow_caller_does_not_fill_the_memory(loop: str) -> None:
    """64 MiB to a sink that lets the event loop turn 20 times per part: at most a few parts are held."""
    size = 64 * 1024 * 1024
    piece = bytes(1024 * 1024)

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def scenario() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server, client() as upstream:
            sink = Slow(lambda: asyncio.ensure_future(turns()))
            out = request(server.sockets[0].getsockname()[1], "GET", body=None)
            tracemalloc.start()
            try:
                assert await upstream.send(out, sink, yes) == Answered(200)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert sink.size == size
        assert sink.largest < 1024 * 1024
        assert peak < 6 * 1024 * 1024

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // len(piece)):
            writer.write(piece)
            await writer.drain()
        writer.close()

    run_on(loop, scenario())


@both_loops
def test_when_the_sink_raises_the_connection_is_closed(loop: str) -> None:
    """The error comes out as it is, and the connection is neither kept nor left open."""

    class Full(Collecting):
        async def data(self, chunk: bytes) -> None:
            raise OSError("no space left")

    async def scenario() -> None:
        async with Origin() as origin, client() as upstream:
            with pytest.raises(OSError, match="no space left"):
                await upstream.send(request(origin.port), Full(), yes)
            await asyncio.wait_for(origin.visitors[0].gone.wait(), 5)

    run_on(loop, scenario())


@both_loops
@pytest.mark.parametrize("size", [100, 1_000_000])
def test_the_first_of_a_stream_is_handed_on_before_more_is_read(
    loop: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much came with it, and though more is here by now: whoever waits for it has its turn before the
    rest is looked at."""
    events = b"data: x\n\n" * (size // 9)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(events)
    order: list[str] = []
    feed = AnswerReader.feed

    def fed(reader: AnswerReader, data: bytes) -> None:
        order.append("read")
        feed(reader, data)

    monkeypatch.setattr(AnswerReader, "feed", fed)

    async def scenario() -> None:
        go_on = asyncio.Event()
        here = len(head) + min(len(events) // 2, 2 * FIRST_PART)

        class Shown(Collecting):
            async def data(self, chunk: bytes) -> None:
                await super().data(chunk)
                order.append(f"data {len(chunk)}")
                if len(self.parts) == 1:
                    go_on.set()
                    for _ in range(20):  # the rest arrives meanwhile
                        await asyncio.sleep(0)
                    asyncio.get_running_loop().call_soon(order.append, "shown")

        script: Script = (ReadBody(), (head + events)[:here], Wait(go_on), (head + events)[here:])
        async with Origin(script) as origin, client() as upstream:
            sink = Shown()
            assert await upstream.send(request(origin.port), sink, yes) == Answered(200)
            assert sink.body == events

    run_on(loop, scenario())
    first = next(at for at, what in enumerate(order) if what.startswith("data"))
    assert order[first + 1] == "shown"
    assert int(order[first].split()[1]) <= FIRST_PART
    assert "read" in order[first + 1 :]


class LastWords:
    """A server that says the first of its answer, and when it is told to all the rest, the end by TLS and the
    end of the stream at once. In a thread: nothing of it waits for the loop of the test."""

    def __init__(self, first: bytes, rest: bytes) -> None:
        self._first, self._rest = first, rest
        self._go_on, self._said = threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    async def say_the_rest(self) -> None:
        self._go_on.set()
        assert await asyncio.to_thread(self._said.wait, 10)
        for _ in range(20):  # whoever reads the socket now has read it
            await asyncio.sleep(0)

    def close(self) -> None:
        self._go_on.set()
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        accepted, _ = self._listening.accept()
        accepted.settimeout(10)
        with accepted:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_side=True)

            def until_done(step: Callable[[], object]) -> None:
                while True:
                    try:
                        step()
                    except ssl.SSLWantReadError:
                        accepted.sendall(outgoing.read())
                        incoming.write(accepted.recv(65536))
                    else:
                        return accepted.sendall(outgoing.read())

            until_done(tls.do_handshake)
            until_done(lambda: tls.read(65536))
            until_done(lambda: tls.write(self._first))
            self._go_on.wait(10)
            tls.write(self._rest)
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.unwrap()
            accepted.sendall(outgoing.read())
            accepted.shutdown(socket.SHUT_WR)
            self._said.set()
            while accepted.recv(65536):  # until the client has gone
                pass


@both_loops
@pytest.mark.parametrize("size", [9, 300_000])  # the second is more than is taken unread
@pytest.mark.parametrize("kind", [b"text/event-stream", b"text/plain"])
def test_under_tls_all_that_came_before_the_end_is_handed_on(loop: str, kind: bytes, size: int) -> None:
    """Also where the end is here while the sink is busy with what came first: whoever pauses must not lose
    it, or a complete answer would be taken for one that broke off."""
    rest = b"data: y\n\n" * (size // 9)

    async def scenario() -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nConnection: close\r\n\r\n" % kind
        server = LastWords(head + b"data: x\n\n", rest)

        class Busy(Collecting):
            async def data(self, chunk: bytes) -> None:
                await super().data(chunk)
                if len(self.parts) == 1:
                    await server.say_the_rest()

        try:
            async with client(ssl_context=trusting()) as upstream:
                sink = Busy()
                out = request(server.port, scheme="https", host="localhost")
                assert await upstream.send(out, sink, yes) == Answered(200)
                assert sink.body == b"data: x\n\n" + rest
        finally:
            await asyncio.to_thread(server.close)

    run_on(loop, scenario())
