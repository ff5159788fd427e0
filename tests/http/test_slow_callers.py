"""Callers who stand still: in silence, in the middle of a request, or in front of an answer they do not read.

Each of them holds a connection, and connections are limited: all are let go in time.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.app import App
from proxy.core.intent import State
from proxy.front import connection as front
from tests.http.streaming import CHUNKED, JSON, LAST, chunk, policy_of
from tests.inside import call, read_answer, request_bytes, semel, until
from tests.origin import LOOPS, OK, READ_ALL, Origin, Script, Wait, answer, run_on

pytestmark = pytest.mark.usefixtures("some_store")

SHORT = {"limits.header_timeout": "300ms"}
POST = request_bytes("POST", "/up/hold", JSON, b"{}")
GET = request_bytes("GET", "/up/plain")
IN_CHUNKS = (
    b"POST /up/hold HTTP/1.1\r\nHost: semel\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"{}") + LAST
)
HALF = b"POST /up/hold HTTP/1.1\r\nHost: se"


@asynccontextmanager
async def connected(
    tmp_path: Path, *scripts: Script, settings: dict[str, object] | None = None
) -> AsyncIterator[tuple[App, Origin, asyncio.StreamReader, asyncio.StreamWriter]]:
    async with (
        Origin(*(scripts or (OK,))) as origin,
        semel(tmp_path, policy_of(origin), settings=settings or SHORT) as app,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        try:
            yield app, origin, reader, writer
        finally:
            writer.close()


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Everything until the connection ends, which it must."""
    async with asyncio.timeout(10):
        return await reader.read()


# ---- those who do not finish a request ----


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"\r\n\r\n"], ids=["silence", "a line", "empty lines"])
async def test_who_asks_nothing_is_closed_without_an_answer(tmp_path: Path, sent: bytes) -> None:
    """After the header timeout, not before."""
    async with connected(tmp_path) as (app, _, reader, writer):
        began = time.monotonic()
        writer.write(sent)
        assert await rest_of(reader) == b""
        assert 0.25 < time.monotonic() - began < 5
        await until(lambda: not app._listener.connections)


async def test_the_time_for_a_head_counts_from_its_first_byte(tmp_path: Path) -> None:
    """Who connects in advance has the whole time when it begins to speak."""
    async with connected(tmp_path, settings={"limits.header_timeout": "1s"}) as (_, _, reader, writer):
        await asyncio.sleep(0.6)
        writer.write(POST[:30])
        await asyncio.sleep(0.6)
        writer.write(POST[30:])
        async with asyncio.timeout(10):
            assert (await read_answer(reader)).status == 200


async def test_half_a_head_behind_empty_lines_is_answered(tmp_path: Path) -> None:
    """Empty lines look like the end of a head, and are none."""
    async with connected(tmp_path) as (_, _, reader, writer):
        writer.write(b"\r\n\r\n" + HALF)
        assert (await rest_of(reader)).startswith(b"HTTP/1.1 400 ")


async def test_a_large_head_behind_empty_lines_is_too_large(tmp_path: Path) -> None:
    """The bound holds for it as for any other, long before the head is complete."""
    async with connected(tmp_path, settings={"limits.headers": "8KiB"}) as (_, _, reader, writer):
        writer.write(b"\r\n\r\n" + HALF + b"a" * 9000)
        assert (await rest_of(reader)).startswith(b"HTTP/1.1 431 ")


async def test_a_large_head_that_began_with_the_request_before_is_too_large(tmp_path: Path) -> None:
    """Its first part was not watched, so it is measured when it is whole."""
    large = HALF + b"".join(b"\r\nX-%d: %b" % (number, b"v" * 1000) for number in range(9)) + b"\r\n\r\n"
    async with connected(tmp_path, settings={"limits.headers": "8KiB"}) as (_, _, reader, writer):
        writer.write(POST + large[:6000])
        async with asyncio.timeout(10):
            assert (await read_answer(reader)).status == 200
            writer.write(large[6000:])
            assert (await read_answer(reader)).status == 431


async def test_what_began_behind_a_body_in_chunks_is_not_heard(tmp_path: Path) -> None:
    """It may have been mixed up with a trailer: the first request is answered, and that is all."""
    async with connected(tmp_path) as (_, _, reader, writer):
        writer.write(IN_CHUNKS + POST)
        async with asyncio.timeout(10):
            assert (await read_answer(reader)).status == 200
            assert await rest_of(reader) == b""


@pytest.mark.parametrize("requests", [[POST], [GET], [IN_CHUNKS], [POST, GET], [GET, POST], [GET, IN_CHUNKS]])
async def test_half_a_head_that_came_with_a_whole_request(tmp_path: Path, requests: list[bytes]) -> None:
    """It is timed like any other: nothing more comes, and the connection ends."""
    async with connected(tmp_path) as (_, _, reader, writer):
        writer.write(b"".join(requests) + HALF)
        async with asyncio.timeout(10):
            for _ in requests:
                assert (await read_answer(reader)).status == 200
        began = time.monotonic()
        await rest_of(reader)
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("requests", [[POST], [GET], [IN_CHUNKS], [POST, GET], [GET, IN_CHUNKS]])
async def test_an_idle_connection_is_no_slow_head(tmp_path: Path, requests: list[bytes]) -> None:
    """Between requests a client may be silent for longer than inside one."""
    async with connected(tmp_path) as (_, _, reader, writer):
        for _ in range(2):
            writer.write(b"".join(requests))
            async with asyncio.timeout(10):
                for _ in requests:
                    assert (await read_answer(reader)).status == 200
            await asyncio.sleep(0.5)


async def test_the_other_half_of_a_head_comes_in_time(tmp_path: Path) -> None:
    """Split anywhere, also in the middle of its end."""
    for split in (1, 20, len(GET) - 3, len(GET) - 2, len(GET) - 1):
        async with connected(tmp_path) as (_, _, reader, writer):
            writer.write(POST + GET[:split])
            async with asyncio.timeout(10):
                assert (await read_answer(reader)).status == 200
                writer.write(GET[split:])
                assert (await read_answer(reader)).status == 200
            await asyncio.sleep(0.05)
            assert not reader.at_eof()


@pytest.mark.parametrize(
    "sent",
    [
        b"Content-Length: 10\r\n\r\nabc",
        b"Content-Length: 10\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
    ids=["half", "nothing", "half a chunk"],
)
async def test_a_body_that_stops_coming(tmp_path: Path, sent: bytes) -> None:
    """400 that says so, nothing was sent, and the connection ends."""
    async with connected(tmp_path) as (app, origin, reader, writer):
        writer.write(b"POST /up/hold HTTP/1.1\r\nHost: semel\r\n" + sent)
        async with asyncio.timeout(10):
            got = await read_answer(reader)
            assert (got.status, json.loads(got.body)["type"]) == (400, "urn:semel:bad-request")
            assert "body" in json.loads(got.body)["detail"]
            assert got.get("Connection") == "close"
            assert await reader.read() == b""
        await until(lambda: not app._listener.connections)
        assert origin.started == 0


# ---- those who do not read the answer ----

LARGE = b"x" * 16 * 1024 * 1024


def unread(port: int, request: bytes) -> socket.socket:
    """A client whose window is small, and who reads nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.sendall(request)
    return sock


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "STALLED", 0.3)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "over the limit"])
@pytest.mark.parametrize("framed", [True, False], ids=["length", "chunked"])
@pytest.mark.parametrize("loop", LOOPS)
def test_an_answer_that_nobody_reads(tmp_path: Path, loop: str, framed: bool, kept: bool) -> None:
    """The caller is cut off; the call goes on to its end, whether its answer is kept or not."""
    run_on(loop, _nobody_reads(tmp_path, framed=framed, kept=kept))


async def _nobody_reads(tmp_path: Path, *, framed: bool, kept: bool) -> None:
    whole = answer(200, LARGE) if framed else CHUNKED + chunk(LARGE) + LAST
    settings: dict[str, object] = {} if kept else {"limits.response_body": "1MiB"}
    async with (
        Origin((*READ_ALL, whole)) as origin,
        semel(tmp_path, policy_of(origin), settings=settings) as app,
    ):
        with unread(app.address.port, POST):
            await until(lambda: origin.started)
            await until(lambda: not app._listener.connections)
            async with asyncio.timeout(10):
                while not (await app.store.census()).by_state.get(State.DONE):
                    await asyncio.sleep(0.01)
        again = await call(app.address.port, "POST", "/up/hold", JSON, b"{}")
        assert (again.status, origin.started) == ((200 if kept else 410), 1)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("last", [{}, {"Connection": "close"}], ids=["keep-alive", "close"])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_replay_that_nobody_reads(tmp_path: Path, loop: str, last: dict[str, str]) -> None:
    """Written at once, and still the connection is let go; so is one that is being closed."""
    run_on(loop, _nobody_reads_a_replay(tmp_path, request_bytes("POST", "/up/hold", {**JSON, **last}, b"{}")))


async def _nobody_reads_a_replay(tmp_path: Path, request: bytes) -> None:
    body = LARGE[: 7 * 1024 * 1024]
    async with Origin((*READ_ALL, answer(200, body))) as origin, semel(tmp_path, policy_of(origin)) as app:
        assert (await call(app.address.port, "POST", "/up/hold", JSON, b"{}")).body == body
        await until(lambda: not app._listener.connections)
        with unread(app.address.port, request):
            await until(lambda: app._listener.connections)
            await until(lambda: not app._listener.connections)
        assert origin.started == 1


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("by_force", [True, False], ids=["idle for too long", "after the last reply"])
@pytest.mark.parametrize("loop", LOOPS)
def test_closing_waits_only_so_long_for_the_last_bytes(tmp_path: Path, loop: str, by_force: bool) -> None:
    """What is left is too little to pause anything, and a closing transport would wait for it for ever."""
    run_on(loop, _closing_with_a_rest(tmp_path, by_force=by_force))


async def _closing_with_a_rest(tmp_path: Path, *, by_force: bool) -> None:
    go_on = asyncio.Event()
    script = (*READ_ALL, Wait(go_on), answer(200, b"ok"))
    async with Origin(script) as origin, semel(tmp_path, policy_of(origin)) as app:
        with unread(app.address.port, request_bytes("GET", "/up/plain", {"Connection": "close"})):
            await until(lambda: origin.started)
            (connection,) = app._listener.connections
            transport = connection.transport
            assert transport is not None
            while not transport.get_write_buffer_size():  # until the kernel takes no more
                transport.write(b"x" * 16 * 1024)
                await asyncio.sleep(0.001)
            if by_force:
                connection.force_close()
            go_on.set()
            await until(lambda: not app._listener.connections)


async def test_a_slow_reader_is_not_one_who_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes a little now and then goes on getting it, less than the kernel's buffer holds even."""
    monkeypatch.setattr(front, "STALLED", 0.6)
    body = LARGE[: 8 * 1024 * 1024]
    async with Origin((*READ_ALL, answer(200, body))) as origin, semel(tmp_path, policy_of(origin)) as app:
        with unread(app.address.port, POST) as sock:
            sock.setblocking(False)
            ends = time.monotonic() + 2.0
            while time.monotonic() < ends:
                async with asyncio.timeout(10):
                    assert await asyncio.get_running_loop().sock_recv(sock, 4096)
                await asyncio.sleep(0.02)


async def test_replies_do_not_pile_up_for_one_who_does_not_read(tmp_path: Path) -> None:
    """Requests in a row on one connection: the next one waits until the reply before it was taken."""
    body = LARGE[: 7 * 1024 * 1024]
    async with Origin((*READ_ALL, answer(200, body))) as origin, semel(tmp_path, policy_of(origin)) as app:
        assert (await call(app.address.port, "POST", "/up/hold", JSON, b"{}")).body == body
        await until(lambda: not app._listener.connections)
        with unread(app.address.port, POST * 20):
            await until(lambda: app._listener.connections)
            (connection,) = app._listener.connections
            transport = connection.transport
            assert transport is not None
            await until(lambda: transport.get_write_buffer_size())
            await asyncio.sleep(0.3)  # time to do harm in
            assert transport.get_write_buffer_size() < len(body) + 1024
            transport.abort()
