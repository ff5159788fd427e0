"""Content codings: decoding within a bound, and what a caller accepts.

Bodies are forwarded and stored as they came. They are decoded for hashing, for reading a rule's
expression, and for a caller who asks again without accepting the coding of the record.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class Undecodable(Exception):
    """Unknown coding, damaged data, or more than the bound."""


def _inflate(data: bytes, limit: int, window: int) -> bytes:
    decoder = zlib.decompressobj(window)
    out = decoder.decompress(data, limit + 1)
    if not decoder.eof or decoder.unused_data:
        raise Undecodable("incomplete, with something after it, or too large")
    return out


def _deflate(data: bytes, limit: int) -> bytes:
    """ "deflate" means zlib, but some servers send the raw stream."""
    try:
        return _inflate(data, limit, zlib.MAX_WBITS)
    except zlib.error:
        return _inflate(data, limit, -zlib.MAX_WBITS)


def _brotli(data: bytes, limit: int) -> bytes:
    decoder = brotli.Decompressor()
    out: bytes = decoder.process(data, output_buffer_limit=limit + 1)
    while not decoder.is_finished() and len(out) <= limit:
        more: bytes = decoder.process(b"", output_buffer_limit=limit + 1 - len(out))
        if not more:
            raise Undecodable("incomplete")
        out += more
    return out


def _zstd(data: bytes, limit: int) -> bytes:
    decoder = zstd.ZstdDecompressor()
    out: bytes = decoder.decompress(data, max_length=limit + 1)
    if not decoder.eof or decoder.unused_data:
        raise Undecodable("incomplete, with something after it, or too large")
    return out


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": lambda data, limit: _inflate(data, limit, zlib.MAX_WBITS | 16),
    "x-gzip": lambda data, limit: _inflate(data, limit, zlib.MAX_WBITS | 16),
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
    "identity": lambda data, limit: data,
}


def codings(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, ...]:
    """The codings of a body in the order they were applied; empty for a plain one."""
    values = [value for name, value in headers if name.lower() == b"content-encoding"]
    if not values:
        return ()
    listed = b",".join(values).decode("latin-1").lower().split(",")
    return tuple(name for name in (part.strip() for part in listed) if name and name != "identity")


def decode(data: bytes, applied: tuple[str, ...], limit: int) -> bytes:
    """Raises Undecodable; never returns more than `limit` bytes."""
    for name in reversed(applied):
        decoder = _DECODERS.get(name)
        if decoder is None:
            raise Undecodable(f"unknown coding {name!r}")
        try:
            data = decoder(data, limit)
        except (zlib.error, brotli.error, zstd.ZstdError, EOFError) as error:
            raise Undecodable(str(error)) from None
        if len(data) > limit:
            raise Undecodable(f"more than {limit} bytes")
    return data


def accepts(accept_encoding: bytes | None, applied: tuple[str, ...]) -> bool:
    """Whether a caller with this Accept-Encoding takes the body as it is. Silence accepts only plain."""
    if not applied:
        return True
    if accept_encoding is None:
        return False
    offered: dict[str, bool] = {}
    for part in accept_encoding.decode("latin-1").lower().split(","):
        name, _, parameters = part.partition(";")
        weight = parameters.replace(" ", "").removeprefix("q=")
        offered[name.strip()] = not weight or weight.strip("0.") != ""
    return all(offered.get(name, offered.get("*", False)) for name in applied)
