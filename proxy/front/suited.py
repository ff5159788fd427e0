"""A recorded answer in a form that this caller accepts: as it was encoded, or decoded.

What it becomes does not show in its size. So it is decoded beside the loop, within a bound, and lies in
memory only while it is small: many callers may ask for the same, and read as slowly as they like.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from proxy.answers import Produced
from proxy.core.encoding import Decoder, Undecodable, accepts, codings
from proxy.core.headers import Headers
from proxy.errors import AnswerUnavailable, StoreUnavailable
from proxy.front.aside import Aside
from proxy.front.turns import HttpRequest
from proxy.spool import CHUNK, Spool

# A record is decoded for a caller only up to this size, and above the second into a file.
DECODABLE = 64 * 1024 * 1024
IN_MEMORY = 4 * 1024 * 1024


async def suited(
    answer: Produced,
    request: HttpRequest,
    aside: Aside,
    directory: Path | None = None,
    *,
    plain: bool = False,
) -> Produced:
    """`directory`: for working space. `plain`: decoded, whatever is accepted."""
    applied = codings(answer.headers)
    if not applied or (not plain and accepts(_accept_encoding(request), applied)):
        return answer
    try:
        decoded = await _decoded(answer.body, applied, aside, directory)
    except Undecodable as error:
        raise AnswerUnavailable(
            f"The answer is recorded as {', '.join(applied)}, which this request does not accept, and it "
            f"cannot be decoded ({error}). Ask with the Accept-Encoding of the first request."
        ) from None
    except OSError as error:
        raise StoreUnavailable(
            f"The answer cannot be decoded for you while there is no room for it ({error.strerror}), and "
            "nothing was sent: call again, or with the Accept-Encoding of the first request."
        ) from None
    if decoded is None:  # HEAD, 204, 304: there is nothing to decode
        return Produced(answer.status, answer.headers, b"")
    body = _read(decoded, aside) if decoded.on_disk else decoded.whole()
    return Produced(answer.status, _plain_headers(answer.headers, decoded.size), body)


async def _decoded(
    body: bytes | AsyncIterator[bytes], applied: tuple[str, ...], aside: Aside, directory: Path | None
) -> Spool | None:
    """Part by part, so that what is too much, or not what it says, is given up early. None without a part."""
    decoder: Decoder | None = None
    plain = Spool(IN_MEMORY, directory)
    async for part in _parts(body):
        if decoder is None:
            decoder = Decoder(applied)
        await aside.run(_add, decoder, part, plain)
    if decoder is None:
        return None
    decoder.finish()
    return plain


def _add(decoder: Decoder, part: bytes, plain: Spool) -> None:
    for piece in decoder.pieces(part, DECODABLE - plain.size):
        plain.append(piece)


async def _read(plain: Spool, aside: Aside) -> AsyncIterator[bytes]:
    for offset in range(0, plain.size, CHUNK):
        yield await aside.run(plain.read, offset, CHUNK)


async def _parts(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(body, bytes):
        if body:
            yield body
        return
    async for part in body:
        yield part


def _accept_encoding(request: HttpRequest) -> bytes | None:
    values = [value for name, value in request.raw_headers if name.lower() == b"accept-encoding"]
    return b",".join(values) if values else None


def _plain_headers(headers: Headers, size: int) -> Headers:
    plain = tuple(pair for pair in headers if pair[0].lower() != b"content-encoding")
    return tuple(
        (name, b"%d" % size) if name.lower() == b"content-length" else (name, value) for name, value in plain
    )
