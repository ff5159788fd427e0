"""What nobody should send: a clear error for each, nothing goes upstream, and the proxy stays up."""

from __future__ import annotations

import asyncio
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
TLS_HELLO = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(range(64)) + b"\r\n\r\n"

# What each must be answered with.
MALFORMED: dict[str, tuple[int, bytes]] = {
    # Framing that two readers could read in two ways.
    "length and chunked": (400, head(b"Content-Length: 5", CHUNKED, body=b"0\r\n\r\n")),
    "chunked and length": (400, head(CHUNKED, b"Content-Length: 5", body=b"0\r\n\r\n")),
    "two lengths": (400, head(b"Content-Length: 2", b"Content-Length: 3", body=b"abc")),
    "two equal lengths": (400, head(b"Content-Length: 2", b"Content-Length: 2", body=b"ab")),
    "a list of lengths": (400, head(b"Content-Length: 2, 2", body=b"ab")),
    "negative length": (400, head(b"Content-Length: -1", body=b"ab")),
    "signed length": (400, head(b"Content-Length: +2", body=b"ab")),
    "hex length": (400, head(b"Content-Length: 0x2", body=b"ab")),
    "length with a space in it": (400, head(b"Content-Length: 1 2", body=b"ab")),
    "length that is no number": (400, head(b"Content-Length: many", body=b"ab")),
    "length of 40 digits": (400, head(b"Content-Length: " + b"9" * 40)),
    "empty length": (400, head(b"Content-Length:", body=b"ab")),
    "underscored length": (400, head(b"Content-Length: 1_0", body=b"0123456789")),
    "unknown transfer coding": (400, head(b"Transfer-Encoding: cow", body=b"0\r\n\r\n")),
    "gzip then nothing": (400, head(b"Transfer-Encoding: gzip", body=b"0\r\n\r\n")),
    "chunked is not last": (400, head(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n")),
    "chunked twice": (400, head(b"Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n")),
    "chunked in two headers": (400, head(CHUNKED, CHUNKED, body=b"0\r\n\r\n")),
    "gzip and chunked": (400, head(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n")),
    "vertical tab before chunked": (400, head(b"Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n")),
    "space before the colon of chunked": (400, head(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n")),
    "space before the colon of length": (400, head(b"Content-Length : 2", body=b"ab")),
    "chunked for HTTP/1.0": (
        400,
        head(CHUNKED, b"Content-Length: 3", body=b"0\r\n\r\n", first=b"POST /pay/x HTTP/1.0"),
    ),
    # Chunks.
    "chunk size is no number": (400, head(CHUNKED, body=b"zz\r\nab\r\n0\r\n\r\n")),
    "negative chunk size": (400, head(CHUNKED, body=b"-1\r\nab\r\n0\r\n\r\n")),
    "0x chunk size": (400, head(CHUNKED, body=b"0x2\r\nab\r\n0\r\n\r\n")),
    "chunk size of 20 digits": (400, head(CHUNKED, body=b"f" * 20 + b"\r\nab\r\n0\r\n\r\n")),
    "chunk longer than its size": (400, head(CHUNKED, body=b"2\r\nabcdef\r\n0\r\n\r\n")),
    "chunk ends in bare LF": (400, head(CHUNKED, body=b"2\nab\n0\n\n")),
    "empty chunk size": (400, head(CHUNKED, body=b"\r\nab\r\n0\r\n\r\n")),
    "space after the chunk size": (400, head(CHUNKED, body=b"2 \r\nab\r\n0\r\n\r\n")),
    "chunk extension with a bare LF": (400, head(CHUNKED, body=b"2;a=b\nab\r\n0\r\n\r\n")),
    "trailer without a colon": (400, head(CHUNKED, body=b"2\r\nab\r\n0\r\nnonsense\r\n\r\n")),
    # Header lines.
    "folded line": (400, head(b"X-A: 1\r\n 2", b"Content-Length: 0")),
    "folded line with a tab": (400, head(b"X-A: 1\r\n\t2", b"Content-Length: 0")),
    "NUL in a value": (400, head(b"X-A: a\x00b", b"Content-Length: 0")),
    "NUL in a name": (400, head(b"X\x00A: a", b"Content-Length: 0")),
    "bare CR in a value": (400, head(b"X-A: a\rb", b"Content-Length: 0")),
    "bare LF ends a line": (400, b"POST /pay/x HTTP/1.1\nHost: semel\nContent-Length: 0\n\n"),
    "bare LF within the lines": (400, head(b"X-A: 1\nX-B: 2", b"Content-Length: 0")),
    "bare CR ends a line": (400, head(b"X-A: 1\rX-B: 2", b"Content-Length: 0")),
    "space before the colon": (400, head(b"X-A : 1", b"Content-Length: 0")),
    "space before the name": (400, b"POST /pay/x HTTP/1.1\r\n Host: semel\r\nContent-Length: 0\r\n\r\n"),
    "no colon": (400, head(b"nonsense", b"Content-Length: 0")),
    "no name": (400, head(b": value", b"Content-Length: 0")),
    "name with a slash": (400, head(b"X/A: 1", b"Content-Length: 0")),
    "name beyond ASCII": (400, head(b"X-\xc3\xa9: 1", b"Content-Length: 0")),
    "two hosts": (400, head(b"Host: other", b"Content-Length: 0")),
    # The request line.
    "unknown method": (400, request_line(b"BREW /pay/x HTTP/1.1")),
    "lower-case method": (400, request_line(b"post /pay/x HTTP/1.1")),
    "method with a bad byte": (400, request_line(b"PO(ST /pay/x HTTP/1.1")),
    "no method": (400, request_line(b" /pay/x HTTP/1.1")),
    "no target": (400, request_line(b"POST  HTTP/1.1")),
    "HTTP/0.9": (400, b"GET /pay/x\r\n\r\n"),
    "HTTP/1.2.3": (400, request_line(b"POST /pay/x HTTP/1.2.3")),
    "HTTP/2.0": (400, request_line(b"POST /pay/x HTTP/2.0")),
    "HTTP/9.9": (400, request_line(b"POST /pay/x HTTP/9.9")),
    "another protocol": (400, request_line(b"POST /pay/x HTCPCP/1.0")),
    "words after the version": (400, request_line(b"POST /pay/x HTTP/1.1 now")),
    "tab between the words": (400, request_line(b"POST\t/pay/x\tHTTP/1.1")),
    "HTTP/2 preface": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS on the plain port": (400, TLS_HELLO),
    "an SSH client": (400, b"SSH-2.0-OpenSSH_9.0\r\n\r\n"),
    "binary noise": (400, bytes(range(256)) * 4 + b"\r\n\r\n"),
    # Targets.
    "absolute form": (403, request_line(b"POST http://api.example/v1 HTTP/1.1")),
    "CONNECT": (403, b"CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n"),
    "asterisk": (400, request_line(b"OPTIONS * HTTP/1.1")),
    "target without a slash": (400, request_line(b"POST pay/x HTTP/1.1")),
    "target with a fragment": (400, request_line(b"POST /pay/x#part HTTP/1.1")),
    "target beyond ASCII": (400, request_line(b"POST /pay/\xc3\xa9 HTTP/1.1")),
    "target with a control byte": (400, request_line(b"POST /pay/\x01 HTTP/1.1")),
    "dot segment": (400, request_line(b"POST /pay/a/../b HTTP/1.1")),
    "single dot": (400, request_line(b"POST /pay/./b HTTP/1.1")),
    "dots at the end": (400, request_line(b"POST /pay/.. HTTP/1.1")),
    "dots before the upstream": (400, request_line(b"POST /x/../pay/b HTTP/1.1")),
    "escaped dots": (400, request_line(b"POST /pay/%2e%2E/b HTTP/1.1")),
    "half escaped dots": (400, request_line(b"POST /pay/.%2e/b HTTP/1.1")),
    "dots between escaped slashes": (400, request_line(b"POST /pay/a%2f..%2Fb HTTP/1.1")),
    "escaped dots between escaped slashes": (400, request_line(b"POST /pay/a%2F%2e%2e%2fb HTTP/1.1")),
    "dots behind an escaped slash at the end": (400, request_line(b"POST /pay/a%2f.. HTTP/1.1")),
    "dots between backslashes": (400, request_line(b"POST /pay/a\\..\\b HTTP/1.1")),
    "dots between escaped backslashes": (400, request_line(b"POST /pay/a%5c..%5Cb HTTP/1.1")),
    "dots before a parameter": (400, request_line(b"POST /pay/..;/x HTTP/1.1")),
    "dots before a named parameter": (400, request_line(b"POST /pay/a/.;v=1/x HTTP/1.1")),
    "dots before an escaped semicolon": (400, request_line(b"POST /pay/a/..%3b/x HTTP/1.1")),
    "unknown upstream": (404, request_line(b"POST /nobody/x HTTP/1.1")),
    "upstream with capitals": (404, request_line(b"POST /Pay/x HTTP/1.1")),
    "escaped upstream": (404, request_line(b"POST /%70ay/x HTTP/1.1")),
    "no upstream": (404, request_line(b"POST / HTTP/1.1")),
    "double slash first": (404, request_line(b"POST //pay/x HTTP/1.1")),
    "a run without a name": (400, request_line(b"POST /@/pay/x HTTP/1.1")),
    "a run with a space": (400, request_line(b"POST /@a%20b/pay/x HTTP/1.1")),
    "an attempt without a name": (400, request_line(b"POST /@run+/pay/x HTTP/1.1")),
    "own page with POST": (400, request_line(b"POST /metrics HTTP/1.1")),
    "no such own page": (404, b"GET /_semel/nothing HTTP/1.1\r\nHost: semel\r\n\r\n"),
    # What is said to semel.
    "run header of words": (400, head(b"Semel-Run: my run", b"Content-Length: 0")),
    "attempt without a run": (400, head(b"Semel-Attempt: a", b"Content-Length: 0")),
    "occurrence zero": (400, head(b"Semel-Occurrence: 0", b"Content-Length: 0")),
    "occurrence negative": (400, head(b"Semel-Occurrence: -2", b"Content-Length: 0")),
    "occurrence of words": (400, head(b"Semel-Occurrence: second", b"Content-Length: 0")),
    "occurrence beyond ASCII": (400, head("Semel-Occurrence: ٢".encode(), b"Content-Length: 0")),
    "two occurrences": (400, head(b"Semel-Occurrence: 1", b"Semel-Occurrence: 2", b"Content-Length: 0")),
    "refresh of words": (400, head(b"Semel-Refresh: yes", b"Content-Length: 0")),
    "tool too long": (400, head(b"Semel-Tool: " + b"t" * 200, b"Content-Length: 0")),
    "tool beyond ASCII": (400, head(b"Semel-Tool: \xff", b"Content-Length: 0")),
    "two idempotency keys": (400, head(b"Idempotency-Key: a", b"Idempotency-Key: b", b"Content-Length: 0")),
    "empty idempotency key": (400, head(b"Idempotency-Key:", b"Content-Length: 0")),
    "missing idempotency key": (400, request_line(b"POST /pay/keyed HTTP/1.1")),
    "denied by a rule": (403, request_line(b"POST /pay/never HTTP/1.1")),
    # What semel does not speak.
    "unknown expectation": (400, head(b"Expect: 200-ok", b"Content-Length: 0")),
}


def assert_problem(got: Answer, status: int) -> dict[str, object]:
    assert got.status == status, got
    assert got.get("Content-Type") == "application/problem+json"
    assert got.semel == "refused"
    problem = json.loads(got.body)
    assert problem["status"] == status
    assert problem["type"].startswith("urn:semel:")
    assert problem["detail"]
    return dict(problem)


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed(tmp_path: Path, name: str) -> None:
    """A problem that names itself, nothing sent, and the next caller is served."""
    status, raw = MALFORMED[name]
    async with place(tmp_path) as there:
        got = await raw_call(there.port, raw, within=10)
        assert_problem(got, status)
        assert there.origin.connections == 0
        await there.still_works()


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


def test_there_are_enough_of_them() -> None:
    """The acceptance asks for forty."""
    assert len(MALFORMED) >= 40
    assert len({raw for _, raw in MALFORMED.values()}) == len(MALFORMED)


SMUGGLED = b"POST /pay/smuggled HTTP/1.1\r\nHost: semel\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    "name",
    [
        "length and chunked",
        "chunked and length",
        "two lengths",
        "chunk size is no number",
        "no colon",
    ],
)
async def test_nothing_behind_a_malformed_request_is_taken_for_a_request(tmp_path: Path, name: str) -> None:
    """The connection is closed after the problem: what follows was framed by somebody who disagrees."""
    _, raw = MALFORMED[name]
    async with place(tmp_path) as there:
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        try:
            writer.write(raw + SMUGGLED)
            async with asyncio.timeout(10):
                assert_problem(await read_answer(reader), 400)
                rest = await reader.read()
        finally:
            writer.close()
        assert b"smuggled" not in b"".join(bytes(seen.head) for seen in there.origin.requests)
        assert rest == b""
        assert there.origin.started == 0
        await there.still_works()


async def test_a_body_that_looks_like_a_request_is_a_body(tmp_path: Path) -> None:
    """Framed by Content-Length and by chunks: one request each at the upstream, the bytes in its body."""
    async with place(tmp_path) as there:
        await raw_call(there.port, head(b"Content-Length: %d" % len(SMUGGLED), body=SMUGGLED))
        chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)
        await raw_call(there.port, head(b"Semel-Occurrence: 2", CHUNKED, body=chunk))
        assert [bytes(seen.body) for seen in there.origin.requests] == [SMUGGLED, SMUGGLED]


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


async def test_a_caller_who_leaves_in_the_middle_of_the_request_has_sent_nothing(tmp_path: Path) -> None:
    """Half a head, half a body, half a chunk: nothing goes upstream."""
    async with place(tmp_path) as there:
        for raw in (
            b"POST /pay/x HT",
            head(b"Content-Length: 10", body=b"12345"),
            head(CHUNKED, body=b"5\r\nab"),
            head(CHUNKED, body=b"2\r\nab\r\n"),
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", there.port)
            writer.write(raw)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        await there.still_works()
        assert there.origin.started == 1


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


@pytest.mark.parametrize(("line", "status"), [(b"a:", 400), (b"X-Header: value", 431)])
async def test_a_bomb_of_ten_thousand_headers(tmp_path: Path, line: bytes, status: int) -> None:
    """Refused, whether the limit on bytes or the one on lines is met first."""
    async with place(tmp_path) as there:
        got = await raw_call(there.port, head(*[line] * 10_001, b"Content-Length: 0"), within=20)
        assert_problem(got, status)
        assert there.origin.started == 0
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
