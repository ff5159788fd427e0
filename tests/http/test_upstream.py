"""The upstream client hands on what it is given: the same bytes, both ways, or a refusal."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.upstream.base import Answered, Headers
from proxy.upstream.client import HttpUpstream, request_head
from tests.origin import READ_ALL, Origin, answer, run_on
from tests.relay import Plan, Relay
from tests.sending import Collecting, both_loops, client, request, yes


@both_loops
def test_request_and_answer_arrive_as_they_are(loop: str) -> None:
    """Method, target, header bytes in order, body: identical at the other side, and so is the answer."""
    headers = ((b"X-b", b"2"), (b"x-A", b"\xff\x80 \t x"), (b"X-b", b""), (b"Accept-Encoding", b"br"))
    reply = ((b"x-One", b"\xe9 a  b"), (b"Set-Cookie", b"a"), (b"Set-Cookie", b"b"), (b"Empty", b""))

    async def scenario() -> None:
        async with Origin((*READ_ALL, answer(201, b"\x00body\xff", *reply))) as origin, client() as upstream:
            sink = Collecting()
            out = request(origin.port, "PATCH", target=b"/a%2fb?", headers=headers, body=b"\x01\r\n\r\n")
            assert await upstream.send(out, sink, yes) == Answered(201)
            (seen,) = origin.requests
            assert seen.head == (
                b"PATCH /a%2fb? HTTP/1.1\r\nHost: upstream.example\r\nX-b: 2\r\nx-A: \xff\x80 \t x\r\n"
                b"X-b: \r\nAccept-Encoding: br\r\nContent-Length: 5\r\n\r\n"
            )
            assert seen.body == b"\x01\r\n\r\n"
            assert sink.headers == (*reply, (b"Content-Length", b"6"))
            assert sink.body == b"\x00body\xff"

    run_on(loop, scenario())


TOKEN = st.text("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=1)


# What llhttp lets through in a value. Leading blanks are not part of a value (RFC 9110, 5.5).
VALUE = st.lists(
    st.sampled_from([value for value in range(256) if value == 9 or (value >= 32 and value != 127)]),
    max_size=40,
).map(lambda values: bytes(values).lstrip(b" \t"))


FRAMING = {b"host", b"content-length", b"connection", b"transfer-encoding"}


NAME = TOKEN.map(str.encode).filter(lambda name: b"x-" + name.lower() not in FRAMING)


HEADERS = st.lists(st.tuples(NAME.map(lambda name: b"X-" + name), VALUE), max_size=8).map(tuple)


TARGET = st.lists(st.sampled_from([value for value in range(33, 256) if value != 127])).map(
    lambda values: b"/" + bytes(values)
)


@settings(max_examples=60, deadline=None, print_blob=True)
@given(
    target=TARGET,
    sent=HEADERS,
    body=st.binary(max_size=3000),
    status=st.integers(200, 599).filter(lambda status: status not in (204, 304)),
    received=HEADERS,
    reply=st.binary(max_size=3000),
    piece=st.sampled_from([1, 7, 100, 65536]),
    chunks=st.none() | st.integers(1, 900),
)
def test_byte_transparency(
    target: bytes,
    sent: Headers,
    body: bytes,
    status: int,
    received: Headers,
    reply: bytes,
    piece: int,
    chunks: int | None,
) -> None:
    """Random headers and bodies in both directions, cut into random pieces on the way, framed either way."""

    async def scenario() -> None:
        raw = answer(status, reply, *received)
        if chunks is not None:
            parts = [reply[start : start + chunks] for start in range(0, len(reply), chunks)]
            coded = (
                b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\nX-Trailer: t\r\n\r\n"
            )
            head, _, _ = answer(status, b"", *received).rpartition(b"Content-Length")
            raw = head + b"Transfer-Encoding: chunked\r\n\r\n" + coded
        async with (
            Origin((*READ_ALL, raw)) as origin,
            Relay(origin.port, Plan(slice=piece)) as relay,
            client() as upstream,
        ):
            sink = Collecting()
            out = request(relay.port, target=target, headers=sent, body=body)
            assert await upstream.send(out, sink, yes) == Answered(status)
            (seen,) = origin.requests
        assert seen.head.startswith(b"POST " + target + b" HTTP/1.1\r\n")
        assert tuple(seen.headers[1:-1]) == sent
        assert seen.body == body
        assert sink.body == reply
        assert tuple(pair for pair in sink.headers if pair[0] != b"Content-Length") == received

    run_on("uvloop", scenario())


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (where, value)
        for where in ("method", "target", "name", "value")
        for value in ("a\r\nb: c", "a\r\nb", "a\nb", "a\rb", "a\0b", "\r\n")
    ]
    + [("method", "A B"), ("target", "/a b"), ("name", "a:b"), ("name", ""), ("method", ""), ("target", "")],
)
def test_what_would_split_a_request_is_refused_before_any_io(where: str, value: str) -> None:
    """Line breaks and NUL in any part, and separators where they would move a boundary."""
    out = request(
        9,
        value if where == "method" else "GET",
        target=value.encode() if where == "target" else b"/",
        headers=(
            (value.encode() if where == "name" else b"a", value.encode() if where == "value" else b"b"),
        ),
    )
    with pytest.raises(ValueError, match="may not be sent"):
        request_head(out.method, out.target, out.headers)
    with pytest.raises(ValueError, match="may not be sent"):
        asyncio.run(HttpUpstream().send(out, Collecting(), yes))
