"""Requests and answers as Hypothesis draws them: whatever HTTP allows, in any spelling."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hypothesis import strategies as st

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
# Framing, and what the test sets itself.
NOT_DRAWN = HOP_BY_HOP | {b"content-length", b"host", b"expect", b"idempotency-key", b"accept-encoding"}
# Twice is a malformed request.
SINGLE = {b"content-type", b"user-agent", b"etag", b"server", b"content-location", b"content-range"}


@dataclass(frozen=True)
class Request:
    method: bytes
    path: bytes  # below the upstream's name, with the query
    headers: Headers
    body: bytes | None
    chunks: int = 0  # 0: with Content-Length; else the size of each chunk


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Headers
    body: bytes
    framing: str  # length | chunked | close | none


TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
METHODS = [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"PROPFIND", b"REPORT"]
SIZES = [0, 1, 65535, 65536, 65537, 300_000]


def of(alphabet: bytes, *, least: int = 0, most: int) -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(alphabet), min_size=least, max_size=most).map(bytes)


@st.composite
def field_names(draw: st.DrawFn) -> bytes:
    known = [
        b"Accept",
        b"accept",
        b"X-Request-ID",
        b"AUTHORIZATION",
        b"Cookie",
        b"Content-Type",
        b"User-Agent",
    ]
    name = draw(st.sampled_from(known) | of(TOKEN, least=1, most=20))
    taken = name.lower() in NOT_DRAWN or name.lower().startswith(b"semel-")
    return b"X-" + name if taken else name


def field_values(*, controls: bool) -> st.SearchStrategy[bytes]:
    printable = bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100)) + b"\t"
    alphabet = printable + (bytes(set(range(1, 0x20)) - {0x0A, 0x0D}) + b"\x7f" if controls else b"")
    return (of(alphabet, most=40) | st.just(b"v" * 5000)).map(lambda value: value.strip(b" \t"))


def header_lists(*, controls: bool = False) -> st.SearchStrategy[Headers]:
    fields = st.tuples(field_names(), field_values(controls=controls))
    return (
        st.lists(fields, max_size=8)
        .map(only_once)
        .flatmap(
            lambda pairs: st.permutations(
                pairs + [(name, b"again") for name, _ in pairs[:2] if name.lower() not in SINGLE]
            )
        )
    )


def only_once(pairs: Headers) -> Headers:
    """Without the second of what HTTP allows once."""
    names = [name.lower() for name, _ in pairs]
    return [pair for at, pair in enumerate(pairs) if names[at] not in SINGLE or names.index(names[at]) == at]


bodies = st.binary(max_size=300) | st.sampled_from(SIZES).map(
    lambda size: bytes(range(256)) * (size // 256 + 1)
)
SEGMENT = bytes(set(range(0x21, 0x7F)) - set(b"#?/%"))
escapes = st.integers(0, 255).map(lambda byte: b"%%%02X" % byte if byte % 2 else b"%%%02x" % byte)
pieces = st.lists(of(SEGMENT, least=1, most=5) | escapes, max_size=4).map(b"".join)
# What some server may take for a dot segment is refused: tests/proof/hostile/targets.py has those.
DOTS = re.compile(rb"(?:^|[/\\]|%2[fF]|%5[cC])(?:\.|%2[eE]){1,2}(?:[/\\;]|%2[fF]|%5[cC]|%3[bB]|$)")


@st.composite
def paths(draw: st.DrawFn) -> bytes:
    segments = [
        b"dots" if DOTS.search(segment) else segment for segment in draw(st.lists(pieces, max_size=4))
    ]
    query = draw(st.none() | st.just(b"") | of(SEGMENT + b"?/%&=+", most=20))
    return b"/" + b"/".join(segments) + (b"" if query is None else b"?" + query)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    body = draw(st.none() | bodies)
    headers = draw(header_lists())
    if body and draw(st.booleans()):
        headers = [*headers, (b"Content-Encoding", draw(st.sampled_from([b"gzip", b"br", b"x-odd"])))]
    chunks = draw(st.sampled_from([0, 1, 100, 70_000])) if body is not None else 0
    if chunks == 1 and body is not None:
        body = body[:200]
    return Request(draw(st.sampled_from(METHODS)), draw(paths()), headers, body, chunks)


# 5xx and 408 of a call with effects are doubt, not an answer: they are drawn only where they are handed on.
FINAL = [
    200,
    201,
    202,
    203,
    206,
    226,
    299,
    301,
    302,
    303,
    307,
    308,
    400,
    404,
    405,
    409,
    410,
    418,
    422,
    451,
    499,
]
BODILESS = [204, 304]


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    status = draw(st.sampled_from(FINAL) | st.sampled_from(BODILESS) | st.integers(200, 599))
    headers = draw(header_lists())
    extra = [
        (b"Set-Cookie", b"session=1; Path=/"),
        (b"set-cookie", b"theme=dark"),
        (b"Content-Encoding", b"gzip"),
        (b"Age", b"7"),
        (b"Cache-Status", b"Origin; hit"),
        (b"Date", b"Mon, 01 Jan 2024 00:00:00 GMT"),
        (b"Server", b"odd/1.0"),
    ]
    headers = list(draw(st.permutations([*headers, *draw(st.lists(st.sampled_from(extra), max_size=5))])))
    if status in BODILESS:
        return Reply(status, headers, b"", "none")
    return Reply(status, headers, draw(bodies), draw(st.sampled_from(["length", "chunked", "close"])))
