"""A recorded answer in a form that this caller accepts: as it was encoded, or decoded."""

from __future__ import annotations

from collections.abc import AsyncIterator

from proxy.answers import Produced
from proxy.core.encoding import Decoder, Undecodable, accepts, codings
from proxy.core.headers import Headers
from proxy.errors import AnswerUnavailable
from proxy.front.aside import Aside
from proxy.front.turns import HttpRequest

# A record is decoded for a caller only up to this size.
DECODABLE = 64 * 1024 * 1024


async def suited(answer: Produced, request: HttpRequest, aside: Aside) -> Produced:
    applied = codings(answer.headers)
    if not applied or accepts(_accept_encoding(request), applied):
        return answer
    try:
        plain = await _decoded(answer.body, applied, aside)
    except Undecodable as error:
        raise AnswerUnavailable(
            f"The answer is recorded as {', '.join(applied)}, which this request does not accept, and it "
            f"cannot be decoded ({error}). Ask with the Accept-Encoding of the first request."
        ) from None
    if plain is None:  # HEAD, 204, 304: there is nothing to decode
        return Produced(answer.status, answer.headers, b"")
    return Produced(answer.status, _plain_headers(answer.headers, len(plain)), plain)


async def _decoded(
    body: bytes | AsyncIterator[bytes], applied: tuple[str, ...], aside: Aside
) -> bytes | None:
    """Part by part, so that what is too much, or not what it says, is given up early. None without a part."""
    decoder: Decoder | None = None
    plain: list[bytes] = []
    room = DECODABLE
    async for part in _parts(body):
        if decoder is None:
            decoder = Decoder(applied)
        # How much a part becomes does not show in its size: always aside.
        more = await aside.run(decoder.feed, part, room)
        plain.append(more)
        room -= len(more)
    if decoder is None:
        return None
    decoder.finish()
    return b"".join(plain)


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
