"""Which bytes are an answer, where it ends, and what is refused because it could be read in two ways."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from proxy.core.policy import Timeouts
from proxy.upstream.answer import MAX_INTERIM, REMEMBERED, REMEMBERED_SIZE, AnswerReader, Head
from proxy.upstream.base import Answered, Lost
from tests.origin import OK, READ_ALL, Close, Origin, Stall, answer, run_on
from tests.proof.hostile.answers import REFUSED
from tests.sending import Collecting, ask, both_loops, client, request, trusting, yes

SHORT = Timeouts(connect=5.0, idle=3.0, total=5.0)

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 P\r\n\r\n"
COMPLETE_ANSWERS: dict[str, tuple[str, bytes, int, bytes, bool]] = {
    # method, what the upstream writes, status, body, whether the connection may be used again
    "length": ("POST", answer(200, b"abc"), 200, b"abc", True),
    "empty": ("POST", answer(200), 200, b"", True),
    "no reason phrase": ("GET", b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na", 200, b"a", True),
    "chunked": (
        "GET",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n0\r\nT: v\r\n\r\n",
        200,
        b"ab",
        True,
    ),
    "interim first": ("POST", INTERIM + answer(200, b"abc"), 200, b"abc", True),
    "head": ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 200, b"", False),
    "head after interim": (
        "HEAD",
        INTERIM + b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        200,
        b"",
        False,
    ),
    "head with a body all the same": ("HEAD", answer(200, b"abc"), 200, b"", False),
    "204": ("POST", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "304": ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", 304, b"", True),
    "204 with a body all the same": ("POST", answer(204, b"abc"), 204, b"", False),
    "304 with a length": ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, b"", False),
    "closing": (
        "POST",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
        200,
        b"abc",
        False,
    ),
    "1.0": ("POST", b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, b"abc", False),
    "1.0 kept": (
        "POST",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc",
        200,
        b"abc",
        True,
    ),
    "junk behind it": ("POST", answer(200, b"abc") + b"junk", 200, b"abc", False),
    "a second answer behind it": ("POST", answer(200, b"abc") + answer(500, b"x"), 200, b"abc", False),
    "a bodiless answer behind it": ("POST", answer(200, b"abc") + answer(500), 200, b"abc", False),
    "redirect": ("GET", answer(302, b"", (b"Location", b"/elsewhere")), 302, b"", True),
}


@both_loops
@pytest.mark.parametrize("case", COMPLETE_ANSWERS)
def test_complete_answers(case: str, loop: str) -> None:
    """Status, body, and whether a second request travels on the same connection."""
    method, raw, status, body, reused = COMPLETE_ANSWERS[case]

    async def scenario() -> None:
        async with Origin((*READ_ALL, raw), OK) as origin, client() as upstream:
            sink = Collecting()
            assert await upstream.send(request(origin.port, method), sink, yes) == Answered(status)
            assert (sink.status, sink.body) == (status, body)
            assert b"Link" not in dict(sink.headers), "an interim answer is not handed on"
            assert await upstream.send(request(origin.port), Collecting(), yes) == Answered(200)
            assert origin.connections == (1 if reused else 2)
            assert origin.started == 2

    run_on(loop, scenario())


@both_loops
@pytest.mark.parametrize("tls", [False, True])
def test_close_delimited_answer_is_complete_at_the_end(loop: str, tls: bool) -> None:
    """Without a length the end of the stream is the end of the answer; under TLS its end is announced."""

    async def scenario() -> None:
        script = (*READ_ALL, b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nabc", b"def", Close())
        async with Origin(script, tls=tls) as origin, client(ssl_context=trusting()) as upstream:
            sink = Collecting()
            out = request(origin.port, scheme="https" if tls else "http", host="localhost")
            assert await upstream.send(out, sink, yes) == Answered(200)
            assert sink.body == b"abcdef"
            assert sink.headers == ((b"X", b"y"),)

    run_on(loop, scenario())


@pytest.mark.parametrize("case", REFUSED)
def test_ambiguous_answers_are_lost(case: str) -> None:
    """What two readers could read in two ways is no answer. It is Lost, never NotSent, and not timed out."""

    async def scenario() -> None:
        result, _ = await ask((*READ_ALL, REFUSED[case], Stall()), timeouts=SHORT)
        assert isinstance(result, Lost)
        assert not result.timed_out

    run_on("uvloop", scenario())


REMEMBERED_OF = {"length", "empty", "no reason phrase", "1.0 kept", "redirect"}


@pytest.mark.parametrize("case", COMPLETE_ANSWERS)
def test_what_comes_again_is_read_again_as_it_was(case: str) -> None:
    """Only heads of answers that were a head and so many bytes are remembered; and never for a HEAD."""
    method, raw, status, body, reused = COMPLETE_ANSWERS[case]
    known: dict[bytes, Head] = {}
    first, again = (read([raw], known=known, head_only=method == "HEAD") for _ in range(2))
    for reader in (first, again):
        assert (reader.status, b"".join(reader.parts), reader.pending) == (status, body, len(body))
        assert (reader.complete, reader.reusable, reader.headers) == (True, reused, first.headers)
    assert bool(known) is (case in REMEMBERED_OF)
    assert not read([raw], known=known, head_only=True).parts
    for head in known:
        assert read([head + b"xyz"], known=known).complete is (len(body) <= 3)
        assert read([head + body + b"junk"], known=known).reusable is False
        short = read([raw[:-1]], known=known)
        assert short.complete is False
        short.feed(raw[-1:])
        assert (short.complete, b"".join(short.parts)) == (True, body)


def test_so_many_heads_are_remembered_and_none_that_is_long() -> None:
    """Whatever an upstream says, there is an end to it."""
    known: dict[bytes, Head] = {}
    for n in range(3 * REMEMBERED):
        assert read([answer(200, b"abc", (b"Date", b"%d" % n))], known=known).complete
        assert len(known) <= REMEMBERED
    before = len(known)
    assert read([answer(200, b"abc", (b"X", b"y" * REMEMBERED_SIZE))], known=known).complete
    assert len(known) == before


def read(
    pieces: Iterable[bytes],
    *,
    limit: int = 65536,
    known: dict[bytes, Head] | None = None,
    head_only: bool = False,
) -> AnswerReader:
    reader = AnswerReader(head_only=head_only, max_header_bytes=limit, known=known)
    for piece in pieces:
        reader.feed(piece)
    return reader


def test_what_the_parser_does_with_unusual_header_values() -> None:
    """Leading blanks are no part of a value; trailing ones and bytes above 0x7f stay; nothing is joined."""
    reader = read(
        [b"HTTP/1.1 200 OK\r\nA: \t x \t \r\nB:\r\nC: \xff\x80\r\nA:y\r\nContent-Length: 0\r\n\r\n"]
    )
    assert reader.complete
    assert reader.headers[:4] == ((b"A", b"x \t "), (b"B", b""), (b"C", b"\xff\x80"), (b"A", b"y"))


def test_interim_answers_are_bounded() -> None:
    """An upstream that only ever says 102 does not keep us for ever, one that says it often may."""
    interim = b"HTTP/1.1 102 Processing\r\n\r\n"
    assert read([interim] * MAX_INTERIM + [answer(200)]).complete
    assert "interim" in read([interim] * (MAX_INTERIM + 1)).problem


@pytest.mark.parametrize("piece", [1, 50, 250], ids=["by the byte", "small pieces", "large pieces"])
@pytest.mark.parametrize(
    "raw",
    [
        answer(200, b"", (b"A", b"x" * 300)),
        b"HTTP/1.1 200 " + b"x" * 300,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 60,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: " + b"x" * 900,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 900,
    ],
    ids=["value", "reason", "many", "trailer", "chunk extension"],
)
def test_what_is_not_body_is_bounded(raw: bytes, piece: int) -> None:
    """Heads, trailers and chunk extensions over the limit are refused, however they are cut."""
    reader = read([raw[start : start + piece] for start in range(0, len(raw), piece)], limit=200)
    assert "over 200 bytes" in reader.problem
    assert not reader.complete
