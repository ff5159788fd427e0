"""The upstream client when things break: never sent twice, never a false "not sent".

What the other side saw decides. If the origin or the relay saw one byte of the request, the result must not
be NotSent; and in one send the origin never sees more than one request begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from proxy.core.policy import Timeouts
from proxy.spool import Spool
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result
from proxy.upstream.client import HttpUpstream
from tests.origin import (
    OK,
    READ_ALL,
    Close,
    EndBelowTls,
    HalfClose,
    Origin,
    ReadByte,
    Reset,
    Script,
    Stall,
    answer,
    run_on,
)
from tests.relay import Act, Fault, Plan, Relay
from tests.sending import QUICK, Collecting, ask, both_loops, client, request, trusting, yes

BODY = b"0123456789"
RAW = answer(200, b"abcdef", (b"X-Header", b"value"))
HEAD_END = RAW.index(b"\r\n\r\n") + 4


# Twelve fault types and more.

# Only where the fault is the waiting itself; everywhere else a slow machine must not make a timeout of it.
SHORT = Timeouts(connect=0.3, idle=0.3, total=5.0)


@dataclass(frozen=True, slots=True)
class Stage:
    """A place to send to, and what it saw."""

    out: Outgoing
    saw: Callable[[], int]  # request bytes seen at the other side; under TLS only what was decrypted
    upstream: HttpUpstream


@contextlib.asynccontextmanager
async def to_origin(script: Script) -> AsyncIterator[Stage]:
    async with Origin(script) as origin, client() as upstream:
        yield Stage(request(origin.port, body=BODY), lambda: origin.received, upstream)


@contextlib.asynccontextmanager
async def through_relay(plan: Plan, script: Script = (*READ_ALL, RAW)) -> AsyncIterator[Stage]:
    async with Origin(script) as origin, Relay(origin.port, plan) as relay, client() as upstream:
        yield Stage(request(relay.port, body=BODY), lambda: relay.seen_up, upstream)


@contextlib.asynccontextmanager
async def to_unknown_name() -> AsyncIterator[Stage]:
    async with client() as upstream:
        yield Stage(request(80, body=BODY, host="no-such-host.invalid"), lambda: 0, upstream)


@contextlib.asynccontextmanager
async def to_impossible_name() -> AsyncIterator[Stage]:
    async with client() as upstream:
        yield Stage(request(80, body=BODY, host="a" * 70 + ".example"), lambda: 0, upstream)


@contextlib.asynccontextmanager
async def to_closed_port() -> AsyncIterator[Stage]:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else gets the port
        async with client() as upstream:
            yield Stage(request(unused.getsockname()[1], body=BODY), lambda: 0, upstream)


@contextlib.asynccontextmanager
async def to_full_backlog() -> AsyncIterator[Stage]:
    """Nobody accepts, and the queue is full: the kernel lets further connections hang."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listener.getsockname())
        async with client() as upstream:
            out = request(listener.getsockname()[1], body=BODY)
            yield Stage(out, lambda: 0, upstream)


@contextlib.asynccontextmanager
async def to_tls(
    script: Script,
    *,
    host: str = "localhost",
    context: ssl.SSLContext | None = None,
    plan: Plan | None = None,
) -> AsyncIterator[Stage]:
    async with (
        Origin(script, tls=True) as origin,
        Relay(origin.port, plan or Plan()) as relay,
        client(ssl_context=context or trusting()) as upstream,
    ):
        out = request(relay.port, body=BODY, scheme="https", host=host)
        yield Stage(out, lambda: origin.received, upstream)


@contextlib.asynccontextmanager
async def tls_to_plain(script: Script) -> AsyncIterator[Stage]:
    """The other side does not speak TLS. What it sees of us is a ClientHello, no request."""
    async with Origin(script) as origin, client(ssl_context=trusting()) as upstream:
        out = request(origin.port, body=BODY, scheme="https", host="localhost")
        yield Stage(out, lambda: sum(b"HTTP/1.1" in seen.head for seen in origin.requests), upstream)


BIG_HEAD = b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n"
FAULTS: dict[str, tuple[Callable[[], contextlib.AbstractAsyncContextManager[Stage]], type[Result], str]] = {
    # what happens -> the result, and a word of its reason
    "dns failure": (to_unknown_name, NotSent, "no-such-host.invalid could not be resolved"),
    "impossible name": (to_impossible_name, NotSent, "could not be resolved"),
    "refused": (to_closed_port, NotSent, "refused"),
    "connect timeout": (to_full_backlog, NotSent, "within 0.3 s"),
    "tls never completed": (lambda: tls_to_plain((ReadByte(), Stall())), NotSent, "within 0.3 s"),
    "tls handshake failure": (
        lambda: tls_to_plain((ReadByte(), b"HTTP/1.1 400 Bad\r\n\r\n")),
        NotSent,
        "TLS",
    ),
    "tls handshake cut": (lambda: to_tls(OK, plan=Plan(down=Fault(50, Act.CUT))), NotSent, "no connection"),
    "tls handshake reset": (lambda: to_tls(OK, plan=Plan(up=Fault(9, Act.RESET))), NotSent, "no connection"),
    "certificate mismatch": (lambda: to_tls(OK, host="127.0.0.1"), NotSent, "certificate of 127.0.0.1"),
    "certificate unknown": (
        lambda: to_tls(OK, context=ssl.create_default_context()),
        NotSent,
        "certificate of localhost",
    ),
    "reset before head": (lambda: to_origin((ReadByte(), Reset())), Lost, "broke"),
    "reset after whole request": (lambda: to_origin((*READ_ALL, Reset())), Lost, "broke"),
    "reset after head": (lambda: to_origin((*READ_ALL, RAW[:HEAD_END], Reset())), Lost, ""),
    "request cut on the way": (lambda: through_relay(Plan(up=Fault(10, Act.CUT))), Lost, ""),
    "request swallowed": (lambda: through_relay(Plan(up=Fault(0, Act.STALL))), Lost, "no byte for"),
    "stall before answer": (lambda: to_origin((*READ_ALL, Stall())), Lost, "no byte for"),
    "stall inside answer head": (lambda: through_relay(Plan(down=Fault(20, Act.STALL))), Lost, "no byte for"),
    "stall inside answer": (
        lambda: through_relay(Plan(down=Fault(len(RAW) - 1, Act.STALL))),
        Lost,
        "no byte",
    ),
    "half-close before answer": (
        lambda: to_origin((*READ_ALL, HalfClose(), Stall())),
        Lost,
        "before an answer",
    ),
    "half-close inside answer": (
        lambda: through_relay(Plan(down=Fault(len(RAW) - 1, Act.HALF_CLOSE))),
        Lost,
        "inside the answer",
    ),
    "garbage answer": (lambda: to_origin((*READ_ALL, b"\x00\x01garbage\r\n\r\n")), Lost, "not valid HTTP"),
    "oversized head": (lambda: to_origin((*READ_ALL, BIG_HEAD)), Lost, "over 65536 bytes"),
    "truncated length": (lambda: to_origin((*READ_ALL, RAW[:-1], Close())), Lost, "inside the answer"),
    "truncated chunked body": (
        lambda: to_origin(
            (*READ_ALL, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", Close())
        ),
        Lost,
        "inside the answer",
    ),
    "tls truncated, close-delimited": (
        lambda: to_tls((*READ_ALL, b"HTTP/1.1 200 OK\r\n\r\nabc", Reset())),
        Lost,
        "",
    ),
}


@both_loops
@pytest.mark.parametrize("fault", FAULTS)
def test_never_a_false_not_sent(loop: str, fault: str) -> None:
    """Each fault once: what the other side saw decides, and the reason is a sentence for people."""
    stage, expected, word = FAULTS[fault]

    async def scenario() -> None:
        async with stage() as place:
            waits = word.startswith(("within", "no byte"))
            out = place.out._replace(timeouts=SHORT if waits else QUICK)
            result = await place.upstream.send(out, Collecting(), yes)
            if place.saw():
                assert not isinstance(result, NotSent), "the other side saw it"
            assert isinstance(result, expected), result
            assert not isinstance(result, Answered)
            assert word in result.reason
            assert not place.upstream._idle
            assert not place.upstream._busy

    run_on(loop, scenario())


@both_loops
def test_tls_end_without_close_notify_is_truncation(loop: str) -> None:
    """A close-delimited answer whose stream ends without close_notify may have been cut by anybody."""

    async def scenario() -> None:
        script = (*READ_ALL, b"HTTP/1.1 200 OK\r\n\r\nabc", EndBelowTls(), Stall())
        async with Origin(script, tls=True) as origin, client(ssl_context=trusting()) as upstream:
            sink = Collecting()
            out = request(origin.port, scheme="https", host="localhost")
            result = await upstream.send(out, sink, yes)
            assert isinstance(result, Lost)
            assert (result.status, result.timed_out) == (200, False)
            assert sink.body == b"abc"

    run_on(loop, scenario())


@both_loops
def test_a_body_that_cannot_be_read_is_lost(loop: str) -> None:
    """The disk fails in the middle of an upload: bytes are out, so it is doubt, not an exception."""

    class Failing(Spool):
        def read(self, offset: int, length: int) -> bytes:
            if offset:
                raise OSError("input/output error")
            return super().read(offset, length)

    async def scenario() -> None:
        body = Failing(memory_limit=1 << 30)
        body.append(bytes(1024 * 1024))
        result, _ = await ask(OK, body=body)
        assert isinstance(result, Lost)
        assert "input/output error" in result.reason

    run_on(loop, scenario())


@both_loops
def test_cancelled_while_connecting_leaves_nothing(loop: str) -> None:
    """Cancellation before there is a connection: nothing sent, nothing kept."""

    async def scenario() -> None:
        async with to_full_backlog() as place:
            task: asyncio.Task[Result] = asyncio.create_task(_send(place))
            await asyncio.sleep(0.05)  # it hangs in connect; there is no condition to await
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not place.upstream._busy

    async def _send(place: Stage) -> Result:
        return await place.upstream.send(place.out, Collecting(), yes)

    run_on(loop, scenario())
