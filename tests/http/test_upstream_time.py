"""The two clocks of an exchange, and cancellation at every place where it can wait."""

from __future__ import annotations

import asyncio
import socket

import pytest

from proxy import faults
from proxy.core.policy import Timeouts
from proxy.faults import Point
from proxy.upstream.base import Answered, Lost
from proxy.upstream.connection import Connection
from tests.origin import READ_ALL, Origin, ReadHead, Script, Stall, StopReading, Wait, answer, run_on
from tests.sending import Collecting, ask, both_loops, client, request, yes

SHORT_IDLE = Timeouts(connect=5.0, idle=0.3, total=20.0)


SHORT_TOTAL = Timeouts(connect=5.0, idle=10.0, total=0.4)


@both_loops
@pytest.mark.parametrize(
    ("timeouts", "word"),
    [(SHORT_IDLE, "no byte for 0.3 s"), (SHORT_TOTAL, "within 0.4 s")],
    ids=["idle", "total"],
)
@pytest.mark.parametrize(
    ("script", "status"),
    [
        ((*READ_ALL, Stall()), None),
        ((*READ_ALL, answer(200, b"abc")[:-1], Stall()), 200),
        ((*READ_ALL, b"HTTP/1.1 100 Continue\r\n\r\n", Stall()), None),
        ((*READ_ALL, b"HTTP/1.1 200 OK\r\nConte", Stall()), None),
    ],
    ids=["no answer", "inside the body", "after 100", "inside the head"],
)
def test_timeouts_after_sending_are_lost(
    loop: str, timeouts: Timeouts, word: str, script: Script, status: int | None
) -> None:
    """Both clocks, before and inside the answer; what had come of the body was handed on."""
    result, sink = run_on(loop, ask(script, timeouts=timeouts))
    assert isinstance(result, Lost)
    assert (result.status, result.timed_out) == (status, True)
    assert word in result.reason
    assert sink.body == (b"ab" if status else b"")


@both_loops
def test_idle_timeout_while_the_upstream_does_not_read(loop: str) -> None:
    """A full window for that long is Lost: half of the request is out there."""
    script: Script = (ReadHead(), StopReading(), Stall())
    result, _ = run_on(loop, ask(script, body=bytes(32 * 1024 * 1024), timeouts=SHORT_IDLE))
    assert isinstance(result, Lost)
    assert result.timed_out
    assert "no byte for" in result.reason


def test_a_write_that_makes_progress_is_not_idle() -> None:
    """A buffer that drains slowly, with no other sign of life, holds the idle clock; a stuck one does not."""
    now = [0.0]
    unwritten = [1000]

    class Draining(asyncio.Transport):
        def get_extra_info(self, name: str, default: object = None) -> object:
            return near if name == "socket" else default

        def write(self, data: bytes | bytearray | memoryview) -> None:
            pass

        def get_write_buffer_size(self) -> int:
            return unwritten[0]

        def is_closing(self) -> bool:
            return False

        def abort(self) -> None:
            pass

    async def scenario() -> None:
        connection = Connection(asyncio.get_running_loop(), lambda: now[0], 65536, {})
        connection.connection_made(Draining())
        connection.begin(head_only=False, timeouts=Timeouts(connect=5, idle=10, total=600), deadline=600)
        connection.write(b"x")
        for left in (900, 500, 100):
            now[0] += 10
            unwritten[0] = left
            connection._tick()
            assert not connection.failure
        now[0] += 10
        connection._tick()
        assert connection.failure == "no byte for 10 s"

    near, far = socket.socketpair()
    with near, far:
        run_on("asyncio", scenario())


@both_loops
def test_idle_clock_runs_from_the_last_byte(loop: str) -> None:
    """An answer that takes several idle timeouts in all, but never one without a byte, is complete."""
    idle = 0.6
    raw = answer(200, b"xyz")
    pieces = [raw[:9], raw[9:20], raw[20:-4], raw[-4:-3], raw[-3:-2], raw[-2:-1], raw[-1:]]

    async def scenario() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                await asyncio.sleep(idle / 3)
                writer.write(piece)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server, client() as upstream:
            out = request(
                server.sockets[0].getsockname()[1], timeouts=Timeouts(connect=5, idle=idle, total=20)
            )
            assert await upstream.send(out, Collecting(), yes) == Answered(200)

    run_on(loop, scenario())


@both_loops
def test_idle_clock_starts_anew_when_the_sink_is_done(loop: str) -> None:
    """The time that the sink took is not held against the upstream, even if no timer fired meanwhile."""
    timeouts = Timeouts(connect=5.0, idle=0.8, total=20.0)

    async def scenario() -> None:
        go_on = asyncio.Event()
        raw = answer(200, b"ab")

        class Waiting(Collecting):
            async def data(self, chunk: bytes) -> None:
                await super().data(chunk)
                if len(self.parts) == 1:
                    await asyncio.sleep(0.6)
                    asyncio.get_running_loop().call_later(0.5, go_on.set)

        async with Origin((*READ_ALL, raw[:-1], Wait(go_on), raw[-1:])) as origin, client() as upstream:
            out = request(origin.port, timeouts=timeouts)
            assert await upstream.send(out, Waiting(), yes) == Answered(200)

    run_on(loop, scenario())


@both_loops
def test_idle_clock_stands_still_while_the_sink_waits(loop: str) -> None:
    """Our own backpressure is not the upstream's silence."""

    async def scenario() -> None:
        go_on = asyncio.Event()
        raw = answer(200, b"ab")

        class Waiting(Collecting):
            async def data(self, chunk: bytes) -> None:
                await super().data(chunk)
                if len(self.parts) == 1:
                    await asyncio.sleep(3 * SHORT_IDLE.idle)
                    go_on.set()

        async with Origin((*READ_ALL, raw[:-1], Wait(go_on), raw[-1:])) as origin, client() as upstream:
            sink = Waiting()
            out = request(origin.port, timeouts=SHORT_IDLE)
            assert await upstream.send(out, sink, yes) == Answered(200)
            assert sink.body == b"ab"

    run_on(loop, scenario())


@both_loops
@pytest.mark.parametrize(
    "script",
    [
        (*READ_ALL, Stall()),
        (*READ_ALL, answer(200, b"abc")[:-1], Stall()),
        (ReadHead(), StopReading(), Stall()),
    ],
    ids=["before the answer", "inside the answer", "while writing"],
)
def test_cancellation_aborts_the_connection(loop: str, script: Script) -> None:
    """Wherever it strikes: the upstream sees the end, nothing goes back to the pool."""

    async def scenario() -> None:
        async with Origin(script) as origin, client() as upstream:
            sent = asyncio.Event()
            faults.arm(Point.BEFORE_FIRST_BYTE, sent.set)
            out = request(origin.port, body=bytes(16 * 1024 * 1024))
            task = asyncio.create_task(upstream.send(out, Collecting(), yes))
            await sent.wait()
            while not origin.received:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not upstream._idle
            assert not upstream._busy
            if StopReading() not in script:
                await asyncio.wait_for(origin.visitors[0].gone.wait(), 5)

    try:
        run_on(loop, scenario())
    finally:
        faults.disarm_all()


@both_loops
def test_cancellation_inside_the_sink(loop: str) -> None:
    """A caller that is cancelled while the sink waits leaves no connection behind."""

    async def scenario() -> None:
        reached = asyncio.Event()

        class Stuck(Collecting):
            async def data(self, chunk: bytes) -> None:
                reached.set()
                await asyncio.get_running_loop().create_future()

        async with Origin() as origin, client() as upstream:
            task = asyncio.create_task(upstream.send(request(origin.port), Stuck(), yes))
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not upstream._idle
            await asyncio.wait_for(origin.visitors[0].gone.wait(), 5)

    run_on(loop, scenario())
