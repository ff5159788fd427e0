"""Requests that are plain, a head and so many bytes, and here whole: read at once, without aiohttp's parser.

It takes a third of the time, and most requests are like that. Whatever else they may hold (a transfer coding,
a wish for another protocol, a header twice) is not judged here: None, and the untouched bytes go to aiohttp.
So there is one place that says what is malformed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import httptools
from aiohttp.http import HttpVersion11

from proxy.core.headers import Headers

# Methods that are known to be no trouble; CONNECT is, and who knows what else.
_METHODS = {word.encode(): word for word in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")}
# What makes a request more than a head and so many bytes.
_NOT_PLAIN = frozenset(
    {b"transfer-encoding", b"upgrade", b"expect", b"te", b"trailer", b"http2-settings", b"sec-websocket-key1"}
)
_END_OF_HEAD = b"\r\n\r\n"
VERSION = HttpVersion11
# Heads up to this size are remembered, this many of them: half a megabyte at most, and mostly a tenth of it.
REMEMBERED_SIZE, REMEMBERED = 2048, 256


# A client that waits for a word of ours before it sends the body must not be waited for.
_NOT_AWAITED = tuple(b"\r\n" + name + b":" for name in (b"expect", b"transfer-encoding", b"upgrade"))
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,6})[ \t]*\r\n")


class Head:
    """What stands before a body of this length. `plan`: what somebody has worked out for all requests that
    have this very head."""

    __slots__ = ("headers", "length", "method", "plan", "target")

    def __init__(self, method: str, target: str, headers: Headers, length: int) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.length = length
        self.plan: object | None = None


class Whole(NamedTuple):
    """`known`: its head, where the same came before."""

    method: str
    target: str
    headers: Headers
    body: bytes
    known: Head | None = None


class Incomplete(NamedTuple):
    """A plain head, and `missing` bytes of its body."""

    missing: int


class AllHere:
    """The content of a request that is here whole, for those who ask how it arrives."""

    __slots__ = ("total_bytes",)

    def __init__(self, size: int) -> None:
        self.total_bytes = size

    def is_eof(self) -> bool:
        return True


class WholeReader:
    """One for all connections: what it is given is a whole request, or is forgotten. Heads are remembered:
    an agent's requests to one place mostly differ in their bodies only."""

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}
        self._headers: list[tuple[bytes, bytes]] = []
        self._url = self._body = b""
        self._messages = 0
        self._parser: httptools.HttpRequestParser | None = None

    def read(self, data: bytes) -> Whole | Incomplete | None:
        end = data.find(_END_OF_HEAD)
        if end < 0:
            return None
        size = end + len(_END_OF_HEAD)
        known = self._known.get(data[:size])
        if known is None:
            return self._parse(data, size)
        missing = size + known.length - len(data)
        if missing:
            return Incomplete(missing) if missing > 0 else None  # more than one request: not for us
        return Whole(known.method, known.target, known.headers, data[size:], known)

    def _parse(self, data: bytes, size: int) -> Whole | Incomplete | None:
        head = data[: size - 2]
        if size == len(data) and (missing := _missing(head, 0)):  # many clients send the body by itself
            return Incomplete(missing)
        parser = self._parser or httptools.HttpRequestParser(self)
        self._parser = None  # until it is known to be at the end of a request
        self._headers = []
        self._url = self._body = b""
        self._messages = 0
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        body = self._body
        if self._messages == 0 and (missing := _missing(head, len(data) - size)):
            return Incomplete(missing)
        method = _METHODS.get(parser.get_method())
        if self._messages != 1 or len(data) != size + len(body) or method is None:
            return None
        if parser.get_http_version() != "1.1" or not self._is_plain(head):
            return None
        self._parser = parser
        return self._remember(
            data[:size], Head(method, self._url.decode("ascii"), tuple(self._headers), len(body)), body
        )

    def _remember(self, raw: bytes, head: Head, body: bytes) -> Whole:
        if len(raw) <= REMEMBERED_SIZE:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[raw] = head
        return Whole(head.method, head.target, head.headers, body)

    def _is_plain(self, head: bytes) -> bool:
        names = {name.lower() for name, _ in self._headers}
        return (
            len(names) == len(self._headers) == head.count(b"\r\n") - 1
            and names.isdisjoint(_NOT_PLAIN)
            and b"host" in names
            and (b"connection" not in names or self._keeps_alive())
            and self._url[:1] == b"/"
            and self._url.isascii()
            and b" \r\n" not in head
            and b"\t\r\n" not in head
        )

    def _keeps_alive(self) -> bool:
        return all(
            value.lower() == b"keep-alive" for name, value in self._headers if name.lower() == b"connection"
        )

    # ---- told by the parser ----

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._messages += 1


def _missing(head: bytes, here: int) -> int:
    """How many bytes of a body are still to come; 0 also where that cannot be told, or not waited for."""
    lower = head.lower()
    found = _LENGTH.search(lower)
    if found is None or any(word in lower for word in _NOT_AWAITED):
        return 0
    return max(0, int(found[1]) - here)
