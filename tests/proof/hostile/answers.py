"""Answers that no upstream should give: what two readers could read in two ways is none, and leaves doubt.

`body`: it has one meaning, and this is what the caller is given; None: nobody knows what became of the call.
`late`: bytes that come when the answer is over and nobody has asked again.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy.upstream.answer import MAX_INTERIM
from tests.origin import answer

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = answer(200, b"smuggled")
INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"


class HostileAnswer(NamedTuple):
    raw: bytes
    body: bytes | None = None
    closes: bool = True  # the upstream does, behind it
    late: bytes = b""
    why: str = ""


def because(why: str, entries: dict[str, bytes | HostileAnswer]) -> dict[str, HostileAnswer]:
    made = {name: HostileAnswer(one) if isinstance(one, bytes) else one for name, one in entries.items()}
    return {name: one._replace(why=why) for name, one in made.items()}


def framed(*lines: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""]) + body


ANSWERS = {
    **because(
        "Where it ends is said in two ways, or in none that all readers share.",
        {
            "length and chunked": HEAD + b"Content-Length: 3\r\n" + CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r\n",
            "chunked and length": HEAD + CHUNKED + b"Content-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "two lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            "length list": HEAD + b"Content-Length: 3, 3\r\n\r\nabc",
            "negative length": HEAD + b"Content-Length: -3\r\n\r\nabc",
            "signed length": HEAD + b"Content-Length: +3\r\n\r\nabc",
            "hex length": HEAD + b"Content-Length: 0x3\r\n\r\nabc",
            "length of words": HEAD + b"Content-Length: three\r\n\r\nabc",
            "endless length": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
            "gzip coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\nabc",
            "chunked twice": HEAD + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n",
            "chunked in 1.0": b"HTTP/1.0 200 OK\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
        },
    ),
    **because(
        "A chunk that does not end where it says.",
        {
            "bad chunk size": HEAD + CHUNKED + b"\r\nzz\r\nabc\r\n0\r\n\r\n",
            "negative chunk size": HEAD + CHUNKED + b"\r\n-3\r\nabc\r\n0\r\n\r\n",
            "bad chunk end": HEAD + CHUNKED + b"\r\n3\r\nabcd\r\n0\r\n\r\n",
            "bare line feeds in chunks": HEAD + CHUNKED + b"\r\n3\nabc\n0\n\n",
            "huge chunk": HEAD + CHUNKED + b"\r\nfffffffffffffffff1\r\nabc",
            "an answer as a chunk": HostileAnswer(
                HEAD + CHUNKED + b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED), SMUGGLED
            ),
            "a length in the trailer": HostileAnswer(
                HEAD + CHUNKED + b"\r\n3\r\nabc\r\n0\r\nX-Length: 90\r\n\r\n", b"abc", closes=False
            ),
        },
    ),
    **because(
        "It ends before its end.",
        {
            "nothing": b"",
            "half a status line": b"HTTP/1.1 20",
            "half a head": HEAD + b"Content-Le",
            "a head without its end": HEAD + b"Content-Length: 3\r\n",
            "half a body": HEAD + b"Content-Length: 10\r\n\r\nabc",
            "no byte of a body": HEAD + b"Content-Length: 10\r\n\r\n",
            "half a chunk": HEAD + CHUNKED + b"\r\n5\r\nab",
            "no last chunk": HEAD + CHUNKED + b"\r\n3\r\nabc\r\n",
            "half a last chunk": HEAD + CHUNKED + b"\r\n3\r\nabc\r\n0\r\n",
        },
    ),
    **because(
        "It is not an answer in HTTP/1.1.",
        {
            "upgrade": b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            "upgrade to nothing": b"HTTP/1.1 101 Switching\r\n\r\n",
            "HTTP/2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/3": b"HTTP/3 200\r\n\r\n",
            "status 000": b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
            "four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
            "a status of words": b"HTTP/1.1 okay\r\nContent-Length: 0\r\n\r\n",
            "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
            "only a body": b'{"paid": true}',
            "interim answers without end": INTERIM * (MAX_INTERIM + 1) + answer(200, b"abc"),
            "interim answers, then one": HostileAnswer(
                INTERIM * 50 + answer(200, b"abc"), b"abc", closes=False
            ),
        },
    ),
    **because(
        "A header that splits, hides or ends something for another reader.",
        {
            "folded header": HEAD + b"A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
            "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
            "bare line feed in a value": HEAD + b"A: b\nSet-Cookie: evil=1\r\nContent-Length: 0\r\n\r\n",
            "control byte": HEAD + b"A: b\x01\r\nContent-Length: 0\r\n\r\n",
            "NUL": HEAD + b"A: b\x00\r\nContent-Length: 0\r\n\r\n",
            "bare carriage return": HEAD + b"A: b\rc\r\nContent-Length: 0\r\n\r\n",
            "blank before the colon": HEAD + b"Content-Length : 0\r\n\r\n",
            "no colon": HEAD + b"Content-Length\r\n\r\n",
            "head of 100 kB": HEAD + b"A: " + b"b" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n",
            "ten thousand headers": HEAD + b"A: b\r\n" * 20_000 + b"Content-Length: 0\r\n\r\n",
        },
    ),
    **because(
        "What comes behind the end of an answer is no answer, to whatever request.",
        {
            "junk behind it": HostileAnswer(answer(200, b"abc") + b"junk", b"abc", closes=False),
            "an answer behind it": HostileAnswer(answer(200, b"abc") + SMUGGLED, b"abc", closes=False),
            "a hundred answers behind it": HostileAnswer(
                answer(200, b"abc") + SMUGGLED * 100, b"abc", closes=False
            ),
            "an answer behind chunks": HostileAnswer(
                HEAD + CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r\n" + SMUGGLED, b"abc", closes=False
            ),
            "an answer behind an empty one": HostileAnswer(answer(200) + SMUGGLED, b"", closes=False),
            "a body behind 204": HostileAnswer(
                b"HTTP/1.1 204 No Content\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
                b"",
                closes=False,
            ),
            "an answer a little later": HostileAnswer(
                answer(200, b"abc"), b"abc", closes=False, late=SMUGGLED
            ),
            "junk a little later": HostileAnswer(answer(200, b"abc"), b"abc", closes=False, late=b"\x00"),
        },
    ),
}
# For those who look at the bytes alone: what can never become an answer, however long one waits.
REFUSED = {
    name: one.raw
    for name, one in ANSWERS.items()
    if one.body is None and one.why != "It ends before its end." and name != "only a body"
}
