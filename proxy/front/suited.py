"""A recorded answer in a form that this caller accepts: as it was encoded, or decoded."""

from __future__ import annotations

import asyncio

from aiohttp.web import BaseRequest

from proxy.answers import Produced
from proxy.core.encoding import Undecodable, accepts, codings, decode
from proxy.core.headers import Headers
from proxy.errors import AnswerUnavailable

# A record is decoded for a caller only up to this size.
DECODABLE = 64 * 1024 * 1024
# Decoding more than this is left to a thread.
DECODED_INLINE = 64 * 1024


async def suited(answer: Produced, request: BaseRequest) -> Produced:
    applied = codings(answer.headers)
    if not applied or accepts(_accept_encoding(request), applied):
        return answer
    body = answer.body if isinstance(answer.body, bytes) else b"".join([part async for part in answer.body])
    if not body:  # HEAD, 204, 304: there is nothing to decode
        return Produced(answer.status, answer.headers, body)
    try:
        if len(body) <= DECODED_INLINE:
            plain = decode(body, applied, DECODABLE)
        else:
            plain = await asyncio.to_thread(decode, body, applied, DECODABLE)
    except Undecodable as error:
        raise AnswerUnavailable(
            f"The answer is recorded as {', '.join(applied)}, which this request does not accept, and it "
            f"cannot be decoded ({error}). Ask with the Accept-Encoding of the first request."
        ) from None
    return Produced(answer.status, _plain_headers(answer.headers, len(plain)), plain)


def _accept_encoding(request: BaseRequest) -> bytes | None:
    values = [value for name, value in request.raw_headers if name.lower() == b"accept-encoding"]
    return b",".join(values) if values else None


def _plain_headers(headers: Headers, size: int) -> Headers:
    plain = tuple(pair for pair in headers if pair[0].lower() != b"content-encoding")
    return tuple(
        (name, b"%d" % size) if name.lower() == b"content-length" else (name, value) for name, value in plain
    )
