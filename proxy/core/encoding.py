"""Content codings: decoding within a bound, and what a caller accepts.

Bodies are forwarded and stored as they came. They are decoded for naming the call, for seeing where an
event stream ends, and for a caller who asks again without accepting the coding of the record.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


# Nobody means more codings than this, and each has a window of its own.
MAX_CODINGS = 4
# So much is decoded at a time: a few kilobytes may become gigabytes.
PIECE = 256 * 1024
# 8 MiB, as RFC 9659 has it for zstd in HTTP: a frame may ask for hundreds before its first byte.
MAX_WINDOW_LOG = 23


class Undecodable(Exception):
    """Unknown coding, damaged data, or more than the bound."""


class TooMuch(Undecodable):
    """More than the bound: nothing else is known to be wrong with it."""


class _Coding(Protocol):
    def pieces(self, data: bytes) -> Iterator[bytes]:
        """All that this part adds, at most PIECE bytes at a time. There is something in the part."""

    @property
    def done(self) -> bool: ...


class _Inflate:
    """`window` as zlib has it; None: "deflate", which means zlib, but some servers send the raw stream."""

    def __init__(self, window: int | None) -> None:
        self._decoder = None if window is None else zlib.decompressobj(window)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._decoder is None:
            wrapped = data[0] & 0x0F == 8  # the method that every zlib stream begins with, and no raw one
            self._decoder = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
        for start in range(0, len(data), PIECE):  # what it leaves over it copies, each time
            part = data[start : start + PIECE]
            while out := self._decoder.decompress(part, PIECE):
                yield out
                part = self._decoder.unconsumed_tail
        if self._decoder.unused_data:
            raise Undecodable("something follows it")

    @property
    def done(self) -> bool:
        return self._decoder is not None and self._decoder.eof


class _Brotli:
    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()

    def pieces(self, data: bytes) -> Iterator[bytes]:
        out: bytes = self._decoder.process(data, output_buffer_limit=PIECE)
        while out:
            yield out
            # It may keep more than it gave, and says so only by giving it.
            out = b"" if self.done else self._decoder.process(b"", output_buffer_limit=PIECE)

    @property
    def done(self) -> bool:
        return bool(self._decoder.is_finished())


class _Zstd:
    def __init__(self) -> None:
        window: dict[int, int] = {zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
        self._decoder = zstd.ZstdDecompressor(options=window)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        while out := self._decoder.decompress(data, max_length=PIECE):
            yield out
            if self._decoder.eof or self._decoder.needs_input:
                break
            data = b""
        if self._decoder.unused_data:
            raise Undecodable("something follows it")

    @property
    def done(self) -> bool:
        return bool(self._decoder.eof)


_CODINGS: dict[str, Callable[[], _Coding]] = {
    "gzip": lambda: _Inflate(zlib.MAX_WBITS | 16),
    "x-gzip": lambda: _Inflate(zlib.MAX_WBITS | 16),
    "deflate": lambda: _Inflate(None),
    "br": _Brotli,
    "zstd": _Zstd,
}


class Decoder:
    """A body decoded while it comes. Raises Undecodable, and is of no use after that."""

    def __init__(self, applied: tuple[str, ...]) -> None:
        if len(applied) > MAX_CODINGS:
            raise Undecodable(f"more than {MAX_CODINGS} codings")
        for name in applied:
            if name not in _CODINGS:
                raise Undecodable(f"unknown coding {name!r}")
        self._codings = [_CODINGS[name]() for name in reversed(applied)]

    def feed(self, data: bytes, limit: int) -> bytes:
        """All that this part adds: never more than `limit` bytes, under no coding."""
        return b"".join(self.pieces(data, limit))

    def pieces(self, data: bytes, limit: int) -> Iterator[bytes]:
        """The same a little at a time: what it becomes is never in memory as a whole."""
        return self._through(self._codings, data, [limit] * len(self._codings))

    def _through(self, codings: Sequence[_Coding], data: bytes, room: list[int]) -> Iterator[bytes]:
        """`room`: what each coding may still add to this part."""
        if not codings:
            yield data
        elif data:
            at = -len(codings)
            try:
                for piece in codings[0].pieces(data):
                    room[at] -= len(piece)
                    if room[at] < 0:
                        raise TooMuch("more than the bound")
                    yield from self._through(codings[1:], piece, room)
            except (zlib.error, brotli.error, zstd.ZstdError, EOFError) as error:
                raise Undecodable(str(error)) from None

    def finish(self) -> None:
        if not all(coding.done for coding in self._codings):
            raise Undecodable("incomplete")


def codings(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, ...]:
    """The codings of a body in the order they were applied; empty for a plain one."""
    # Looking at the length first spares most names the rest: this is asked of every request and answer.
    values = [value for name, value in headers if len(name) == 16 and name.lower() == b"content-encoding"]
    if not values:
        return ()
    listed = b",".join(values).decode("latin-1").lower().split(",")
    return tuple(name for name in (part.strip() for part in listed) if name and name != "identity")


def decode(data: bytes, applied: tuple[str, ...], limit: int) -> bytes:
    """Raises Undecodable; never returns more than `limit` bytes."""
    decoder = Decoder(applied)
    plain = decoder.feed(data, limit)
    decoder.finish()
    return plain


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
