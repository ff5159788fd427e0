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


# A client that waits for a word of ours before it sends the body must not be waited for.
_NOT_AWAITED = tuple(b"\r\n" + name + b":" for name in (b"expect", b"transfer-encoding", b"upgrade"))
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,6})[ \t]*\r\n")


class Whole(NamedTuple):
    method: str
    target: str
    headers: Headers
    body: bytes


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
    """One for all connections: what it is given is a whole request, or is forgotten."""

    def __init__(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._url = self._body = b""
        self._messages = 0
        self._parser: httptools.HttpRequestParser | None = None

    def read(self, data: bytes) -> Whole | Incomplete | None:
        end = data.find(_END_OF_HEAD)
        if end < 0:
            return None
        size = end + len(_END_OF_HEAD)
        if size == len(data) and (missing := _missing(data, end)):  # many clients send the body by itself
            return Incomplete(missing)
        parser = self._parser or httptools.HttpRequestParser(self)
        self._parser = None  # until it is known to be at the end of a request
        headers: list[tuple[bytes, bytes]] = []
        self._headers = headers
        self._url = self._body = b""
        self._messages = 0
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        if self._messages == 0 and (missing := _missing(data, end)):
            return Incomplete(missing)
        method = _METHODS.get(parser.get_method())
        if self._messages != 1 or len(data) != size + len(self._body) or method is None:
            return None
        if parser.get_http_version() != "1.1" or not self._is_plain(data[: end + 2]):
            return None
        self._parser = parser
        return Whole(method, self._url.decode("ascii"), tuple(headers), self._body)

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


def _missing(data: bytes, end: int) -> int:
    """How many bytes of a body are still to come; 0 also where that cannot be told, or not waited for."""
    head = data[: end + 2].lower()
    found = _LENGTH.search(head)
    if found is None or any(word in head for word in _NOT_AWAITED):
        return 0
    return max(0, end + len(_END_OF_HEAD) + int(found[1]) - len(data))
