"""Requests read without aiohttp's parser: the very same ones, or none; and what is begun where it arrives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.http_parser import HttpRequestParser
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.front import arriving
from proxy.front.turns import HttpRequest
from proxy.front.whole import Incomplete, Whole, WholeReader
from tests.http.streaming import JSON, policy_of
from tests.inside import call, read_answer, request_bytes, semel, until
from tests.origin import OK, READ_ALL, Origin, Wait, answer

PLAIN = request_bytes("POST", "/up/x?y=1", {"Content-Type": "application/json", "X": "z"}, b'{"a": 1}')
HEADERS = [
    b"Host: semel",
    b"host: again",
    b"Content-Length: 3",
    b"content-length: 3",
    b"Content-Length: 03",
    b"Content-Length: +3",
    b"Content-Length:3",
    b"Content-Length: 3 ",
    b"Transfer-Encoding: chunked",
    b"Connection: keep-alive",
    b"Connection: close",
    b"Connection: keep-alive, close",
    b"Connection: upgrade",
    b"Upgrade: websocket",
    b"Expect: 100-continue",
    b"Cookie: a=1",
    b"Cookie: b=2",
    b"User-Agent: x",
    b"X-Empty:",
    b"X-Tab:\ttabbed",
    b"X-Latin: caf\xe9",
    b"X-Null: a\x00b",
    b"X Space: a",
    b" folded: a",
    b"X-Colon: a:b",
    b"Sec-WebSocket-Key1: x",
    b"HTTP2-Settings: x",
]
METHODS = [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"CONNECT", b"PURGE", b"get"]
TARGETS = [b"/", b"/up/x?y#z", b"http://h/x", b"*", b"h:80", b"//x", b"/\xc3\xa9", b"/%zz", b"/a b"]
VERSIONS = [b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"http/1.1"]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Mostly nearly well-formed."""
    usual = draw(st.booleans())
    line = b" ".join(
        [
            draw(st.sampled_from(METHODS[:7] if usual else METHODS)),
            draw(st.sampled_from(TARGETS[:2] if usual else TARGETS)),
            draw(st.sampled_from(VERSIONS[:1] if usual else VERSIONS)),
        ]
    )
    headers = draw(st.lists(st.sampled_from(HEADERS), max_size=5))
    body = draw(st.sampled_from([b"", b"abc", b"abcd", b"ab", b"\r\n", b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"]))
    first = [b"Host: semel"] if draw(st.booleans()) else []
    whole = b"\r\n".join([line, *first, *headers]) + b"\r\n\r\n" + body
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(whole)))
        whole = whole[:at] + draw(st.binary(max_size=3)) + whole[at + draw(st.integers(0, 2)) :]
    return whole


class Unpaused:
    """What aiohttp's parser asks of a protocol, for a body that is not read."""

    _reading_paused = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


async def parsed(data: bytes) -> HttpRequest:
    """What aiohttp makes of it; it must be one whole request."""
    protocol: Any = Unpaused()
    parser = HttpRequestParser(protocol, asyncio.get_running_loop(), 2**16, auto_decompress=False)
    messages, upgraded, tail = parser.feed_data(data)
    assert not upgraded
    assert not tail
    [(message, content)] = messages
    assert isinstance(message, RawRequestMessage)
    assert not message.upgrade
    assert not message.chunked
    assert message.version == HttpVersion11
    request = HttpRequest.parsed(message, content, None)  # type: ignore[arg-type]
    assert content.is_eof()
    request.whole = b"" if request.stream is None else await content.read()
    return request


def as_read(reader: WholeReader, data: bytes) -> tuple[object, ...]:
    """Whether or not its head came before."""
    read = reader.read(data)
    assert isinstance(read, Whole)
    return read[:4]


READER = WholeReader()  # one for all, as in a listener: what it was given before must not matter


@settings(max_examples=1500, deadline=None)
@given(requests())
def test_what_is_read_is_what_aiohttp_reads(data: bytes) -> None:
    """Never a request that aiohttp would refuse, or read as another."""
    read = READER.read(data)
    if not isinstance(read, Whole):
        return
    there = asyncio.run(parsed(data))
    assert (there.method, there.raw_path, there.raw_headers, there.whole) == read[:4]
    assert there.keep_alive
    here = HttpRequest(read, None)  # type: ignore[arg-type]
    assert here.headers == there.headers
    assert (here.version, here.keep_alive, here.body_exists) == (there.version, True, bool(read.body))


def test_the_plain_ones_are_read() -> None:
    """Or the rest of this file would show nothing."""
    assert as_read(WholeReader(), PLAIN) == (
        "POST",
        "/up/x?y=1",
        (
            (b"Host", b"semel"),
            (b"Content-Type", b"application/json"),
            (b"X", b"z"),
            (b"Content-Length", b"8"),
        ),
        b'{"a": 1}',
    )
    assert READER.read(request_bytes("GET", "/up/x", {"Connection": "keep-alive"})) is not None


def test_a_head_that_came_before_is_known_again() -> None:
    """And is the same one for all that have it: what was worked out for it stays."""
    reader = WholeReader()
    first, again, other = reader.read(PLAIN), reader.read(PLAIN), reader.read(PLAIN.replace(b"z", b"y"))
    third = reader.read(PLAIN.replace(b"1}", b"2}"))
    assert isinstance(first, Whole)
    assert isinstance(again, Whole)
    assert isinstance(third, Whole)
    assert isinstance(other, Whole)
    assert (first.known, other.known) == (None, None)
    assert again.known is third.known is not None
    assert third.body != first.body


@pytest.mark.parametrize(
    "data",
    [
        PLAIN + PLAIN,
        PLAIN + b"\r\n",
        PLAIN[:-1] + b"}}",
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PLAIN.replace(b"X: z", b"Expect: 100-continue"),
        PLAIN.replace(b"X: z", b"Connection: close"),
        PLAIN.replace(b"X: z", b"Upgrade: h2c"),
        PLAIN.replace(b"X: z", b"Content-Type: text/plain"),
        PLAIN.replace(b"X: z", b"X: a "),
        PLAIN.replace(b"X: z", b"X: a\t"),
        PLAIN.replace(b"X: z", b" folded"),
        PLAIN.replace(b"Host: semel\r\n", b""),
        PLAIN.replace(b"POST", b"CONNECT"),
        PLAIN.replace(b"/up/x?y=1", b"http://h/x"),
        b"\r\n" + PLAIN,
        PLAIN[:20],
        b"",
    ],
)
def test_all_others_are_left_to_aiohttp(data: bytes) -> None:
    """Also where they would do no harm: there is one place that judges them."""
    reader = WholeReader()
    assert reader.read(data) is None
    assert as_read(reader, PLAIN) == as_read(READER, PLAIN)  # and nothing of them stays behind


@pytest.mark.parametrize("size", range(PLAIN.index(b"\r\n\r\n") + 4, len(PLAIN)))
def test_what_a_plain_body_lacks_is_known(size: int) -> None:
    """From the end of the head on."""
    assert READER.read(PLAIN[:size]) == Incomplete(len(PLAIN) - size)


# ---- over a connection ----


@pytest.fixture
def waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "GATHERED_FOR", 0.05)


async def test_a_body_by_itself(tmp_path: Path) -> None:
    """Head and body in two pieces, twice on one connection: executed, then replayed."""
    request = request_bytes("POST", "/up/hold", JSON, b'{"n": 1}')
    head, body = request[:-8], request[-8:]
    async with Origin(OK) as origin, semel(tmp_path, policy_of(origin)) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        [connection] = await connections(app)
        for expected in ("executed", "replayed"):
            writer.write(head)
            await until(lambda: connection._gathered)
            writer.write(body)
            assert (await read_answer(reader)).semel == expected
        writer.close()
        assert origin.requests[0].body == body
        assert len(origin.requests) == 1


async def connections(app: Any) -> list[Any]:
    await until(lambda: app._listener.connections)
    return list(app._listener.connections)


@pytest.mark.usefixtures("waits_no_longer")
async def test_a_body_that_takes_longer_is_still_whole(tmp_path: Path) -> None:
    """aiohttp gets what was gathered, and the rest after it."""
    request = request_bytes("POST", "/up/hold", JSON, b'{"n": 1}')
    async with Origin(OK) as origin, semel(tmp_path, policy_of(origin)) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        [connection] = await connections(app)
        writer.write(request[:-5])
        await until(lambda: connection._request_in_progress)
        assert not connection._gathered
        writer.write(request[-5:])
        assert (await read_answer(reader)).semel == "executed"
        writer.close()
        assert origin.requests[0].body == b'{"n": 1}'


async def test_who_waits_for_a_word_gets_it(tmp_path: Path) -> None:
    """A client that asked with Expect does not send its body before it is told to."""
    request = request_bytes("POST", "/up/hold", {**JSON, "Expect": "100-continue"}, b'{"n": 1}')
    async with Origin(OK) as origin, semel(tmp_path, policy_of(origin)) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        writer.write(request[:-8])
        async with asyncio.timeout(arriving.GATHERED_FOR * 10):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(request[-8:])
        assert (await read_answer(reader)).semel == "executed"
        writer.close()


async def test_who_leaves_with_half_a_body_has_asked_nothing(tmp_path: Path) -> None:
    """Nothing is sent, nothing is written."""
    async with Origin(OK) as origin, semel(tmp_path, policy_of(origin)) as app:
        _, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        [connection] = await connections(app)
        writer.write(request_bytes("POST", "/up/hold", JSON, b'{"n": 1}')[:-3])
        await until(lambda: connection._gathered)
        writer.close()
        await until(lambda: not app._listener.connections)
        assert not origin.requests
        assert sum((await app.store.census()).by_state.values()) == 0


async def test_several_whole_requests_at_once_are_answered_in_order(tmp_path: Path) -> None:
    """The first of them is not alone, so none is taken before its turn."""
    bodies = [json.dumps({"n": n}).encode() for n in range(5)]
    async with Origin(OK) as origin, semel(tmp_path, policy_of(origin)) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        writer.write(b"".join(request_bytes("POST", "/up/hold", JSON, body) for body in bodies))
        for _ in bodies:
            assert (await read_answer(reader)).semel == "executed"
        writer.close()
        assert [seen.body for seen in origin.requests] == bodies


async def test_the_next_request_waits_for_one_that_was_begun(tmp_path: Path) -> None:
    """A whole request that comes while another waits for its upstream is served after it."""
    go = asyncio.Event()
    slow = (*READ_ALL, Wait(go), answer(200, b"slow"))
    async with Origin(slow, OK) as origin, semel(tmp_path, policy_of(origin)) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        writer.write(request_bytes("POST", "/up/hold", JSON, b'{"n": 1}'))
        await until(lambda: origin.requests)
        writer.write(request_bytes("POST", "/up/hold", JSON, b'{"n": 2}'))
        [connection] = await connections(app)
        await until(lambda: connection._messages)
        assert len(origin.requests) == 1
        go.set()
        assert (await read_answer(reader)).body == b"slow"
        assert (await read_answer(reader)).semel == "executed"
        writer.close()


async def test_who_leaves_before_a_begun_request_is_taken_over(tmp_path: Path) -> None:
    """In the one moment in which nobody awaits it: it is told, and nothing is left behind."""
    async with Origin(OK) as origin, semel(tmp_path, policy_of(origin)) as app:
        _, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        [connection] = await connections(app)
        await until(lambda: connection._waiter is not None)
        task = connection._task_handler

        def ask_and_leave() -> None:
            connection.data_received(request_bytes("POST", "/up/hold", JSON, b'{"n": 1}'))
            assert connection._begun is not None
            connection.connection_lost(ConnectionResetError())

        asyncio.get_running_loop().call_soon(ask_and_leave)
        await until(task.done)
        assert task.cancelled()
        assert connection._begun is None
        writer.close()
        assert (await call(app.address.port, "POST", "/up/hold", JSON, b'{"n": 1}')).status == 200
        assert len(origin.requests) == 1


async def test_what_is_begun_may_set_itself_a_time(tmp_path: Path) -> None:
    """It runs in the name of the connection's task, also before that has taken it over."""
    seen: list[object] = []

    async with semel(tmp_path, "upstream: up\nbase_url: http://127.0.0.1:9\n") as app:
        serve = app._listener.handler

        async def in_time(request: HttpRequest) -> Any:
            seen.append(asyncio.current_task() is request.protocol._task_handler)
            try:
                async with asyncio.timeout(0):
                    await asyncio.sleep(60)
            except TimeoutError:
                seen.append("in time")
            return await serve(request)

        app._listener.handler = in_time
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        await connections(app)
        for _ in range(2):
            writer.write(request_bytes("GET", "/healthz"))
            assert (await read_answer(reader)).status == 200
        writer.close()
    assert seen == [True, "in time"] * 2
