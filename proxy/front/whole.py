"""Requests that are here whole and plain, head and body in one piece: read at once, without aiohttp's parser.

It takes a third of the time, and most requests are like that. Whatever else they may hold (a transfer coding,
a wish for another protocol, a header twice, a body that is still on its way) is not judged here: None, and
the untouched bytes go to aiohttp. So there is one place that says what is malformed.
"""

from __future__ import annotations

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


class Whole(NamedTuple):
    method: str
    target: str
    headers: Headers
    body: bytes


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

    def read(self, data: bytes) -> Whole | None:
        end = data.find(_END_OF_HEAD)
        if end < 0:
            return None
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
        body = self._body
        if self._messages != 1 or len(data) != end + len(_END_OF_HEAD) + len(body):
            return None
        self._parser = parser
        method = _METHODS.get(parser.get_method())
        if method is None or not parser.should_keep_alive() or parser.get_http_version() != "1.1":
            self._parser = None
            return None
        names = {name.lower() for name, _ in headers}
        plain = (
            len(names) == len(headers) == data.count(b"\r\n", 0, end)
            and names.isdisjoint(_NOT_PLAIN)
            and b"host" in names
            and (b"connection" not in names or self._keeps_alive())
            and self._url[:1] == b"/"
            and b" \r\n" not in data[: end + 2]
            and b"\t\r\n" not in data[: end + 2]
        )
        if not plain or not self._url.isascii():
            return None
        return Whole(method, self._url.decode("ascii"), tuple(headers), body)

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
