"""Which requests a strict reader of HTTP/1.1 finds in a row of bytes (RFC 9112), and nothing beyond.

Written apart from semel and from every library it uses: what semel sends upstream must be among what this
finds, in its order. Where two readers could differ the reading ends.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# Between the words a server may take more than one blank (RFC 9112, 3).
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") +([\x21-\x7e]+) +HTTP/1\.([01])\Z")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*\Z")
_LENGTH = re.compile(rb"[0-9]{1,18}\Z")
# An extension may hold a quoted text; what matters here is that no line ends inside it.
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})((?:;[\t\x20-\x7e\x80-\xff]*)?)\Z")


class Reading(NamedTuple):
    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]  # names in lower case
    body: bytes
    end: int  # how many bytes belong to it and all before it

    def get(self, name: bytes) -> bytes | None:
        return next((value for known, value in self.headers if known == name), None)


class _Ends(Exception):
    """Here a strict reader stops: malformed, or the rest has not come."""


def readings(data: bytes) -> list[Reading]:
    found: list[Reading] = []
    at = 0
    try:
        while at < len(data):
            one = _request(data, at)
            found.append(one)
            at = one.end
            if one.method == b"CONNECT":  # an upgrade is granted by nobody here: requests follow
                break  # what follows may be something else
    except _Ends:
        pass
    return found


def _line(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.find(b"\r\n", at)
    if end < 0:
        raise _Ends
    line = data[at:end]
    if b"\r" in line or b"\n" in line or b"\0" in line:
        raise _Ends
    return line, end + 2


def _request(data: bytes, at: int) -> Reading:
    while data[at : at + 1] in (b"\r", b"\n"):  # a server ignores empty lines before a request
        at += 1
    line, at = _line(data, at)
    found = _REQUEST_LINE.match(line)
    if found is None:
        raise _Ends
    headers, at = _fields(data, at)
    named = [name for name, _ in headers]
    if named.count(b"host") > 1 or (found[3] == b"1" and b"host" not in named):
        raise _Ends
    body, at = _body(data, at, headers, found[3] == b"0")
    return Reading(found[1], found[2], headers, body, at)


def _fields(data: bytes, at: int) -> tuple[tuple[tuple[bytes, bytes], ...], int]:
    fields: list[tuple[bytes, bytes]] = []
    while True:
        line, at = _line(data, at)
        if not line:
            return tuple(fields), at
        found = _FIELD.match(line)
        if found is None:
            raise _Ends
        fields.append((found[1].lower(), found[2]))


def _body(data: bytes, at: int, headers: tuple[tuple[bytes, bytes], ...], is_old: bool) -> tuple[bytes, int]:
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings:
        if lengths or is_old or len(codings) > 1 or codings[0].lower() != b"chunked":
            raise _Ends
        return _chunks(data, at)
    if not lengths:
        return b"", at
    if len(lengths) > 1 or not _LENGTH.match(lengths[0]):
        raise _Ends
    end = at + int(lengths[0])
    if end > len(data):
        raise _Ends
    return data[at:end], end


def _chunks(data: bytes, at: int) -> tuple[bytes, int]:
    body = b""
    while True:
        line, at = _line(data, at)
        found = _CHUNK.match(line)
        if found is None:
            raise _Ends
        size = int(found[1], 16)
        if size == 0:
            return body, _fields(data, at)[1]
        body += data[at : at + size]
        at += size
        if data[at : at + 2] != b"\r\n":
            raise _Ends
        at += 2
