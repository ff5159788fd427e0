"""Whether the world moved on: an answer that was fetched anew, compared with the recorded one.

By status and content; how it was encoded on the way does not count. What cannot be compared is not called
different.
"""

from __future__ import annotations

from hashlib import blake2b

from proxy.answers import Answers, Produced
from proxy.core.encoding import Undecodable, codings, decode
from proxy.core.headers import Headers
from proxy.core.intent import Call
from proxy.judge import READABLE
from proxy.store.base import BlobLost
from proxy.stream import Capture


async def differs(recorded: Call, now: Capture, answers: Answers) -> bool:
    """`recorded` has an answer, and `now` is complete."""
    assert recorded.answer is not None
    if now.kept is None:
        return False
    before = await answers.produce(recorded, recorded.answer)
    if before is None:
        return False
    if before.status != now.status:
        return True
    try:
        return not await _same(before, now)
    except (BlobLost, Undecodable):
        return False


async def _same(before: Produced, now: Capture) -> bool:
    assert now.kept is not None
    applied = codings(before.headers), codings(now.headers)
    if isinstance(before.body, bytes) and now.kept.size <= READABLE:
        return _read(before.headers, before.body) == _read(now.headers, now.kept.whole())
    if applied[0] != applied[1]:
        raise Undecodable("too long to be decoded for this")
    digest, other = blake2b(), blake2b()
    if isinstance(before.body, bytes):
        digest.update(before.body)
    else:
        async for chunk in before.body:
            digest.update(chunk)
    for chunk in now.kept.chunks():
        other.update(chunk)
    return digest.digest() == other.digest()


def _read(headers: Headers, body: bytes) -> bytes:
    return decode(body, codings(headers), READABLE)
