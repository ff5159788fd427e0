"""One POST and what came back. Nothing is followed and nothing is tried here a second time."""

from __future__ import annotations

import asyncio
import base64
from enum import Enum, auto
from typing import NamedTuple

from proxy import __version__
from proxy.core.headers import Headers
from proxy.core.policy import Timeouts
from proxy.core.reachable import Said
from proxy.notifying.schema import HookUrl
from proxy.notifying.signing import signed_headers
from proxy.spool import Spool
from proxy.upstream.base import Answered, NotSent, Outgoing, UpstreamClient

CONNECT = 5.0
# A connection that was idle for longer may be closed over there already.
MAX_IDLE = 1.0
# Refusals that say "later", not "no".
_LATER = frozenset({408, 425, 429})


class Taken(Enum):
    DELIVERED = auto()
    REFUSED = auto()  # of this notification: another may be taken
    TROUBLE = auto()  # of the receiver: all others wait too


class Reply(NamedTuple):
    taken: Taken
    why: str
    wait: float = 0.0  # the receiver asks for so much time


class Letter(NamedTuple):
    """What is sent, and where to."""

    url: HookUrl
    id: str
    body: bytes
    secret: bytes
    timeout: float


class _Head:
    """Of the answer only its beginning matters; the rest is read and dropped while there is time."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = ()

    def head(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers

    async def data(self, chunk: bytes) -> None:
        """Not read by anybody."""


async def post(client: UpstreamClient, letter: Letter, now: float) -> Reply:
    head, why = _Head(), ""
    try:
        # Of our own, since the client gives a stream of events all the time it likes.
        async with asyncio.timeout(letter.timeout):
            result = await client.send(_outgoing(letter, now), head, lambda: True)
        why = "" if isinstance(result, Answered) else result.reason
        if isinstance(result, NotSent):
            return Reply(Taken.TROUBLE, why)
    except TimeoutError:
        why = f"no answer within {letter.timeout:g} s"
    if not head.status:
        return Reply(Taken.TROUBLE, why)
    return _judged(head)


def _judged(head: _Head) -> Reply:
    """By the status alone: who has said 200 has it, whatever becomes of the rest of the answer."""
    status = head.status
    why = f"status {status}"
    if 200 <= status < 300:
        return Reply(Taken.DELIVERED, why)
    if status in _LATER or status >= 500:
        return Reply(Taken.TROUBLE, why, _retry_after(head.headers))
    if status < 400:
        why += ": redirects are not followed, give the address that it leads to"
    return Reply(Taken.REFUSED, why)


def _retry_after(headers: Headers) -> float:
    for name, value in headers:
        if name.lower() == b"retry-after" and value.isdigit() and len(value) < 10:
            return float(value)
    return 0.0


def _outgoing(letter: Letter, now: float) -> Outgoing:
    url, body = letter.url, letter.body
    user = base64.b64encode(url.user.encode()) if url.user else b""
    headers: Headers = (
        (b"Host", url.authority.encode()),
        (b"User-Agent", b"semel/" + __version__.encode()),
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"%d" % len(body)),
        *signed_headers(letter.secret, letter.id, int(now), body),
        *(((b"Authorization", b"Basic " + user),) if user else ()),
    )
    return Outgoing(
        scheme=url.scheme,
        host=url.host,
        port=url.port,
        method="POST",
        target=url.target.encode(),
        headers=headers,
        body=Spool.of(body),
        timeouts=Timeouts(connect=min(CONNECT, letter.timeout), idle=letter.timeout, total=letter.timeout),
        max_idle=MAX_IDLE,
        said=Said.PRIVATE,  # the operator's own word: whom semel tells is often inside
    )
