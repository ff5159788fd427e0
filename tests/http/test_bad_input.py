"""What is too slow, too large, or only looks wrong: a clear error, nothing goes upstream, the proxy stays up.

Requests that are wrong in their bytes alone are in tests/proof/hostile.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.inside import Answer, call, raw_call, read_answer, request_bytes, semel
from tests.origin import OK, Origin

pytestmark = pytest.mark.usefixtures("some_store")

JSON = {"Content-Type": "application/json"}


class Place:
    """One semel, one origin that must stay untouched."""

    def __init__(self, origin: Origin, port: int) -> None:
        self.origin = origin
        self.port = port

    async def still_works(self) -> None:
        before = self.origin.started
        good = await call(self.port, "POST", "/pay/good", JSON, b'{"n": %d}' % time.monotonic_ns())
        assert (good.status, good.body) == (200, b"ok")
        assert self.origin.started == before + 1


@asynccontextmanager
async def place(tmp_path: Path, settings: Mapping[str, object] | None = None) -> AsyncIterator[Place]:
    async with Origin(OK) as origin:
        policy = (
            f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\n"
            "rules: [{name: keyed, match: {path: /keyed}, key: {client_key: require}},"
            " {name: never, match: {path: /never}, mode: deny}]\n"
        )
        async with semel(tmp_path, policy, settings=settings) as app:
            yield Place(origin, app.address.port)


def head(*lines: bytes, body: bytes = b"", first: bytes = b"POST /pay/x HTTP/1.1") -> bytes:
    return b"\r\n".join([first, b"Host: semel", *lines, b"", b""]) + body


def request_line(line: bytes) -> bytes:
    return head(b"Content-Length: 0", first=line)


CHUNKED = b"Transfer-Encoding: chunked"


def assert_problem(got: Answer, status: int) -> dict[str, object]:
    assert got.status == status, got
    assert got.get("Content-Type") == "application/problem+json"
    assert got.semel == "refused"
    problem = json.loads(got.body)
    assert problem["status"] == status
    assert problem["type"].startswith("urn:semel:")
    assert problem["detail"]
    return dict(problem)


DOTTED = [
    "a..b",
    "...",
    ".well-known",
    "v1.1/x.json",
    "a%2fb",
    "a%2f...%2fb",
    "a;..",
    "a%2e",
    "%2ea",
    "?x=/../",
]


@pytest.mark.parametrize("path", DOTTED)
async def test_dots_that_are_no_dot_segments_pass(tmp_path: Path, path: str) -> None:
    """Nobody takes them for another path; the upstream gets them as they came."""
    async with place(tmp_path) as there:
        assert (await call(there.port, "POST", f"/pay/{path}", JSON, b"{}")).status == 200
        assert bytes(there.origin.requests[0].head).startswith(f"POST /{path} HTTP/1.1\r\n".encode())


# ---- too slow ----


async def test_half_sent_headers_are_answered_and_closed_in_time(tmp_path: Path) -> None:
    """400 after limits.header_timeout, for one who trickles, on a connection that was good before."""
    async with place(tmp_path, {"limits.header_timeout": "300ms"}) as there:
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        try:
            writer.write(request_bytes("POST", "/pay/first", JSON, b"{}"))
            async with asyncio.timeout(10):
                assert (await read_answer(reader)).status == 200
            began = time.monotonic()
            trickle = asyncio.create_task(
                _trickle(writer, b"POST /pay/x HTTP/1.1\r\nX-Slow: " + b"s" * 10_000)
            )
            async with asyncio.timeout(10):
                assert_problem(await read_answer(reader), 400)
                with contextlib.suppress(ConnectionError):  # what still trickles is met with a reset
                    assert await reader.read() == b""
            assert 0.25 < time.monotonic() - began < 5
            trickle.cancel()
            await asyncio.gather(trickle, return_exceptions=True)
        finally:
            writer.close()
        assert there.origin.started == 1
        await there.still_works()


async def _trickle(writer: asyncio.StreamWriter, data: bytes) -> None:
    for byte in data:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.02)


async def test_a_slow_body_is_not_a_slow_header(tmp_path: Path) -> None:
    """The timer ends with the head; a body may take longer, as long as it comes."""
    async with place(tmp_path, {"limits.header_timeout": "400ms"}) as there:
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        try:
            writer.write(head(b"Content-Length: 10"))
            for number in range(10):
                await asyncio.sleep(0.06)
                writer.write(b"%d" % number)
            async with asyncio.timeout(10):
                assert (await read_answer(reader)).status == 200
        finally:
            writer.close()
        assert bytes(there.origin.requests[0].body) == b"0123456789"


# ---- too large ----


async def test_headers_over_the_limit(tmp_path: Path) -> None:
    """431: one long line, many lines, a long target; one byte under the limit passes."""
    async with place(tmp_path, {"limits.headers": "8KiB"}) as there:
        for raw in (
            head(b"X-Long: " + b"v" * 9000, b"Content-Length: 0"),
            head(*[b"X-%d: %b" % (number, b"v" * 100) for number in range(100)], b"Content-Length: 0"),
            request_line(b"POST /pay/" + b"p" * 9000 + b" HTTP/1.1"),
            b"POST /pay/x HTTP/1.1\r\nX-Endless: " + b"v" * 20_000,
        ):
            problem = assert_problem(await raw_call(there.port, raw, within=10), 431)
            assert problem["type"] == "urn:semel:headers-too-large"
        assert there.origin.started == 0
        frame = len(head(b"X-Long: ", b"Content-Length: 0")) - 4
        fits = await raw_call(there.port, head(b"X-Long: " + b"v" * (8192 - frame), b"Content-Length: 0"))
        assert fits.status == 200
        over = await raw_call(there.port, head(b"X-Long: " + b"v" * (8193 - frame), b"Content-Length: 0"))
        assert over.status == 431
        await there.still_works()


async def test_headers_over_the_limit_behind_another_request(tmp_path: Path) -> None:
    """Pipelined in one write with a whole request: the limit holds for the second head as well."""
    async with place(tmp_path, {"limits.headers": "8KiB"}) as there:
        bomb = head(*[b"X-%d: %b" % (number, b"v" * 1000) for number in range(100)], b"Content-Length: 0")
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        try:
            writer.write(request_bytes("POST", "/pay/first", JSON, b"{}") + bomb)
            async with asyncio.timeout(10):
                assert (await read_answer(reader)).status == 200
                second = await read_answer(reader)
        finally:
            writer.close()
        assert second.status == 431
        assert there.origin.started == 1
        await there.still_works()


async def test_a_body_over_the_limit_by_its_length_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """413 at once: the client has not sent a byte of the body yet."""
    async with place(tmp_path, {"limits.request_body": "10KiB"}) as there:
        problem = assert_problem(await raw_call(there.port, head(b"Content-Length: 10241"), within=10), 413)
        assert problem["type"] == "urn:semel:too-large"
        fits = await raw_call(there.port, head(b"Content-Length: 10240", body=b"b" * 10240))
        assert fits.status == 200
        assert there.origin.started == 1
        await there.still_works()


async def test_a_chunked_body_over_the_limit_is_refused_while_it_is_read(tmp_path: Path) -> None:
    """413 although the end never comes."""
    async with place(tmp_path, {"limits.request_body": "10KiB"}) as there:
        raw = (
            head(CHUNKED, body=b"1000\r\n" + b"b" * 4096 + b"\r\n")
            + (b"1000\r\n" + b"b" * 4096 + b"\r\n") * 2
        )
        assert_problem(await raw_call(there.port, raw, within=10), 413)
        assert there.origin.started == 0
        await there.still_works()


async def test_a_client_that_sends_a_huge_body_all_the_same_can_read_the_problem(tmp_path: Path) -> None:
    """Most clients read only after they have written everything: the answer must survive that."""
    async with place(tmp_path, {"limits.request_body": "1MiB"}) as there:

        def send_all_then_read() -> bytes:
            with socket.create_connection(("127.0.0.1", there.port), timeout=20) as sock:
                sock.sendall(head(b"Content-Length: %d" % 2**24))
                for _ in range(256):
                    sock.sendall(b"b" * 65536)
                return sock.recv(65536)

        answer = await asyncio.to_thread(send_all_then_read)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert there.origin.started == 0
        await there.still_works()


async def test_more_connections_than_the_limit(tmp_path: Path) -> None:
    """503 with Retry-After for the one too many; when one leaves, the next one is served."""
    async with place(tmp_path, {"limits.connections": 5}) as there:
        streams = [await asyncio.open_connection("127.0.0.1", there.port) for _ in range(5)]
        try:
            for number, (reader, writer) in enumerate(streams):  # each one is known to be in
                writer.write(request_bytes("POST", f"/pay/{number}", JSON, b"{}"))
                assert (await read_answer(reader)).status == 200
            got = await call(there.port, "POST", "/pay/x", JSON, b"{}", within=10)
            assert_problem(got, 503)
            assert got.get("Retry-After") == "1"
            assert there.origin.started == 5
            streams[0][1].close()
            await streams[0][1].wait_closed()
            await asyncio.sleep(0.05)  # the other side hears of it in its next turn
            assert (await call(there.port, "POST", "/pay/y", JSON, b"{}")).status == 200
        finally:
            for _, writer in streams:
                writer.close()


# ---- expectations ----


async def test_expect_continue_is_answered_by_semel(tmp_path: Path) -> None:
    """100 at once, the answer after the body; the upstream hears nothing of it."""
    async with place(tmp_path) as there:
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        try:
            writer.write(head(b"Expect: 100-continue", b"Content-Length: 4"))
            async with asyncio.timeout(10):
                assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                assert there.origin.started == 0
                writer.write(b"body")
                got = await read_answer(reader)
        finally:
            writer.close()
        assert got.status == 200
        assert bytes(there.origin.requests[0].body) == b"body"
        assert b"expect" not in bytes(there.origin.requests[0].head).lower()


async def test_expect_continue_for_too_large_a_body_is_refused_without_it(tmp_path: Path) -> None:
    """413 in place of 100: that is what the expectation is for."""
    async with place(tmp_path, {"limits.request_body": "10KiB"}) as there:
        got = await raw_call(there.port, head(b"Expect: 100-continue", b"Content-Length: 20000"), within=10)
        assert_problem(got, 413)
        assert there.origin.started == 0
