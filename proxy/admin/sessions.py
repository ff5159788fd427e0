"""Signed in: what a browser carries in place of a token, and for how long it stands for one.

The value of the cookie says of itself when it began, when a person last did something, and which token it
was made with; a keyed digest makes it ours. Nothing is kept for it, so every worker on a store knows it: the
key comes from the installation's secret. It is held against the configured tokens at every use: without its
token it is worth nothing. It is not the token, and the token cannot be found from it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import struct
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from proxy.clock import Clock
from proxy.core.headers import SESSION_COOKIE, Headers

# In seconds: however busy somebody is, and after somebody was last busy.
LONGEST, IDLE = 12 * 3600, 30 * 60
# A session that was signed out is remembered by this process until it would have ended; so many of them.
MOST_ENDED = 4096
# Clocks of several machines differ.
_AHEAD = 60
_SHAPE = struct.Struct(">16sQQ16s")
_MARK_SIZE = 32


class Session(NamedTuple):
    name: bytes
    began_at: int
    active_at: int
    holder: bytes  # stands for the token that it was made with

    @property
    def until(self) -> int:
        return min(self.began_at + LONGEST, self.active_at + IDLE)


class Sessions:
    def __init__(self, secret: bytes, clock: Clock) -> None:
        self._key = blake2b(key=secret, person=b"semel session").digest()
        self._clock = clock
        self._ended: OrderedDict[bytes, int] = OrderedDict()
        # Browsers keep cookies by host, not by port: two semels on one host must not take each other's.
        self.cookie = f"{SESSION_COOKIE.decode()}_{self._digest(b'name', b'').hex()[:8]}"

    def begin(self, token_digest: str) -> tuple[str, Session]:
        now = int(self._clock.now())
        return self._written(Session(os.urandom(16), now, now, self._holder(token_digest)))

    def renew(self, session: Session) -> tuple[str, Session]:
        """Somebody is there. It still ends when it is too old."""
        return self._written(session._replace(active_at=int(self._clock.now())))

    def find(self, headers: Headers) -> Session | None:
        """The session that a request carries, if it is one of ours and not over."""
        return next((found for value in self._values(headers) if (found := self._read(value))), None)

    def carried(self, headers: Headers) -> bool:
        """Whether the request carries one at all, good or not."""
        return any(True for _ in self._values(headers))

    def end(self, session: Session) -> None:
        """Here at once; another worker takes a stolen copy until it lapses, a browser has none any more."""
        now = int(self._clock.now())
        while self._ended and (len(self._ended) >= MOST_ENDED or next(iter(self._ended.values())) < now):
            self._ended.popitem(last=False)
        self._ended[session.name] = session.began_at + LONGEST

    def is_of(self, session: Session, token_digest: str) -> bool:
        return hmac.compare_digest(session.holder, self._holder(token_digest))

    def _written(self, session: Session) -> tuple[str, Session]:
        said = _SHAPE.pack(*session)
        return base64.urlsafe_b64encode(said + self._digest(b"value", said)).decode().rstrip("="), session

    def _read(self, value: bytes) -> Session | None:
        try:
            whole = base64.b64decode(value + b"=" * (-len(value) % 4), altchars=b"-_", validate=True)
        except binascii.Error:
            return None
        if base64.urlsafe_b64encode(whole).rstrip(b"=") != value:
            return None  # one value, one spelling
        said, mark = whole[: _SHAPE.size], whole[_SHAPE.size :]
        if len(mark) != _MARK_SIZE or not hmac.compare_digest(mark, self._digest(b"value", said)):
            return None
        session, now = Session(*_SHAPE.unpack(said)), self._clock.now()
        lives = session.began_at <= session.active_at <= now + _AHEAD and now < session.until
        return session if lives and session.name not in self._ended else None

    def _values(self, headers: Headers) -> Iterator[bytes]:
        wanted = self.cookie.encode()
        for name, value in headers:
            if name.lower() == b"cookie":
                for piece in value.split(b";"):
                    given, _, said = piece.strip(b" \t").partition(b"=")
                    if given == wanted:
                        yield said

    def _holder(self, token_digest: str) -> bytes:
        return self._digest(b"holder", token_digest.encode())[:16]

    def _digest(self, purpose: bytes, said: bytes) -> bytes:
        return blake2b(said, key=self._key, person=purpose, digest_size=_MARK_SIZE).digest()
