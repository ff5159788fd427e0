"""Which connection a request travels on, and who has the last word before its first byte."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from proxy import faults
from proxy.faults import Point
from proxy.upstream.base import Answered, Lost, NotSent
from proxy.upstream.client import HttpUpstream
from tests.origin import CERTIFICATE, OK, READ_ALL, Close, Origin, Script, Stall, Wait, answer, run_on
from tests.sending import Collecting, both_loops, client, request, trusting, yes


@both_loops
def test_may_send_is_the_last_word_before_the_first_byte(loop: str) -> None:
    """No means NotSent, not one byte, and the connection stays good for the next request."""
    order: list[str] = []

    def no() -> bool:
        order.append("asked")
        return False

    async def scenario() -> None:
        async with Origin() as origin, client() as upstream:
            faults.arm(Point.BEFORE_FIRST_BYTE, lambda: order.append("before"))
            faults.arm(Point.REQUEST_SENT, lambda: order.append("sent"))
            result = await upstream.send(request(origin.port), Collecting(), no)
            assert isinstance(result, NotSent)
            assert order == ["before", "asked"]
            assert await upstream.send(request(origin.port), Collecting(), yes) == Answered(200)
            assert order == ["before", "asked", "before", "sent"]
            assert (origin.connections, origin.started) == (1, 1)

    try:
        run_on(loop, scenario())
    finally:
        faults.disarm_all()


def test_only_fresh_enough_connections_are_reused() -> None:
    """`max_idle` is a strict bound, zero means a fresh one, and the most recently used is taken first."""
    now = [1000.0]

    async def scenario() -> None:
        async with Origin() as origin, client(clock=lambda: now[0]) as upstream:

            async def send(max_idle: float) -> int:
                out = request(origin.port, max_idle=max_idle)
                assert await upstream.send(out, Collecting(), yes) == Answered(200)
                return max(visitor.number for visitor in origin.visitors if len(visitor.requests))

            assert await send(10.0) == 0
            now[0] += 5.0
            assert await send(5.0) == 1, "idle for exactly max_idle is too old"
            assert await send(0.0) == 2
            now[0] += 1.0
            await send(2.0)
            assert [len(visitor.requests) for visitor in origin.visitors] == [1, 1, 2], "last in, first out"
            now[0] += 61.0
            assert await send(1000.0) == 3, "nothing is kept for more than a minute"

    run_on("asyncio", scenario())


def test_sweep_closes_what_was_idle_for_a_minute() -> None:
    """The sweep closes the old and keeps the young."""
    now = [1000.0]

    async def scenario() -> None:
        async with Origin() as origin, client(clock=lambda: now[0]) as upstream:
            await upstream.send(request(origin.port, max_idle=0), Collecting(), yes)
            now[0] += 59.0
            await upstream.send(request(origin.port, max_idle=0), Collecting(), yes)
            now[0] += 2.0
            upstream._sweep()
            await asyncio.wait_for(origin.visitors[0].gone.wait(), 5)
            assert not origin.visitors[1].gone.is_set()
            now[0] += 60.0
            upstream._sweep()
            await asyncio.wait_for(origin.visitors[1].gone.wait(), 5)
            assert upstream._sweeper is None, "an empty pool needs no sweep"

    run_on("asyncio", scenario())


@both_loops
def test_a_connection_that_ended_or_spoke_while_idle_is_not_used(loop: str) -> None:
    """Closed by the upstream, or bytes that nobody asked for: another connection, one request each."""

    async def scenario(stray: bytes) -> None:
        speak = asyncio.Event()
        afterwards: Script = (Wait(speak), stray, Stall()) if stray else (Wait(speak), Close())
        async with Origin(OK, afterwards, OK) as origin, client() as upstream:
            assert await upstream.send(request(origin.port), Collecting(), yes) == Answered(200)
            speak.set()
            sink = Collecting()
            await asyncio.wait_for(origin.visitors[0].gone.wait(), 5)  # closed by the client, or by itself
            assert await upstream.send(request(origin.port), sink, yes) == Answered(200)
            assert sink.body == b"ok"
            assert origin.started == 2

    for stray in (b"", answer(500, b"evil"), b"\r\n"):
        run_on(loop, scenario(stray))


@both_loops
def test_an_end_that_the_event_loop_has_not_seen_yet_is_seen_before_writing(loop: str) -> None:
    """The FIN lies in the kernel, the loop had no turn to read it: still the connection is not used."""

    async def scenario() -> None:
        async with Origin(OK) as origin, client() as upstream:
            assert await upstream.send(request(origin.port), Collecting(), yes) == Answered(200)
            peer = socket.socket(
                fileno=os.dup(origin.visitors[0].transport.get_extra_info("socket").fileno())
            )
            peer.shutdown(socket.SHUT_WR)  # and no await before the next send takes a connection
            peer.close()
            assert await upstream.send(request(origin.port), Collecting(), yes) == Answered(200)
            assert (origin.connections, origin.started) == (2, 2)

    run_on(loop, scenario())


@both_loops
def test_tls_connections_are_reused(loop: str) -> None:
    """Certificate verified against the given context; the second request pays no handshake."""

    async def scenario() -> None:
        async with Origin(tls=True) as origin, client(ssl_context=trusting()) as upstream:
            out = request(origin.port, scheme="https", host="localhost")
            for _ in range(3):
                sink = Collecting()
                assert await upstream.send(out, sink, yes) == Answered(200)
                assert sink.body == b"ok"
            assert (origin.connections, origin.started) == (1, 3)

    run_on(loop, scenario())


def test_default_tls_context_honours_ssl_cert_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """No context given: the system's trust, or what SSL_CERT_FILE names."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))

    async def scenario() -> None:
        async with Origin(tls=True) as origin, client() as upstream:
            out = request(origin.port, scheme="https", host="localhost")
            assert await upstream.send(out, Collecting(), yes) == Answered(200)

    run_on("asyncio", scenario())


@both_loops
def test_close_breaks_off_what_is_under_way(loop: str) -> None:
    """After close the exchange is Lost, and no socket is left."""

    async def scenario() -> None:
        async with Origin((*READ_ALL, Stall())) as origin:
            upstream = HttpUpstream()
            task = asyncio.create_task(upstream.send(request(origin.port), Collecting(), yes))
            while not origin.started:
                await asyncio.sleep(0)
            await upstream.close()
            result = await task
            assert isinstance(result, Lost)
            assert "shutting down" in result.reason
            late = await upstream.send(request(origin.port), Collecting(), yes)
            assert isinstance(late, NotSent), "nothing is sent by a closed client"
            assert origin.started == 1

    run_on(loop, scenario())
