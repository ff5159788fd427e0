"""Which headers belong to one connection only, and which are addressed to semel.

Both are removed before a message is handed on. Everything else stays as it came: bytes, order, repetition.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

# RFC 9110, 7.6.1, and Proxy-Connection, which the RFC does not know and clients still send.
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

SEMEL_PREFIX = b"semel-"
# What the cookie of a signed-in operator begins with. A browser sends it by host: also with a call.
SESSION_COOKIE = b"semel_session"

# For so many heads what follows from them alone is remembered: an agent sends the same few again and again.
# At the largest size that a head may have this is 16 MiB.
MANY_HEADS = 256


def end_to_end(headers: Headers) -> Headers:
    """Without the hop-by-hop headers and without those that Connection names."""
    kept: list[tuple[bytes, bytes]] = []
    options: list[bytes] = []
    for pair in headers:
        name = pair[0].lower()
        if name not in HOP_BY_HOP:
            kept.append(pair)
        elif name == b"connection":
            options += pair[1].lower().split(b",")
    if options:
        named = {option.strip(b" \t") for option in options}
        kept = [pair for pair in kept if pair[0].lower() not in named]
    return tuple(kept)


@lru_cache(maxsize=MANY_HEADS)
def without_nominated(headers: Headers) -> Headers:
    """Without what Connection names: that goes no further, so it chooses and names nothing either."""
    for name, value in headers:
        if name.lower() == b"connection" and value.strip(b" \t").lower() not in (b"keep-alive", b"close"):
            return end_to_end(headers)
    return headers


def without_semel(headers: Headers) -> Headers:
    """Without what is said to semel (Semel-Run, Semel-Token, …): no upstream ever sees it."""
    return tuple([pair for pair in headers if not pair[0].lower().startswith(SEMEL_PREFIX)])


@lru_cache(maxsize=MANY_HEADS)
def without_header(headers: Headers, name: str) -> Headers:
    """Without every header of this name, which is in lower case."""
    left_out = name.encode()
    return tuple([pair for pair in headers if pair[0].lower() != left_out])


def without_session(headers: Headers) -> Headers:
    """Without an operator's cookie: it is said to semel. Mostly there is none, and nothing changes."""
    for name, value in headers:
        if len(name) == 6 and SESSION_COOKIE in value and name.lower() == b"cookie":
            return _without_session(headers)
    return headers


def _without_session(headers: Headers) -> Headers:
    kept = []
    for name, value in headers:
        if name.lower() == b"cookie":
            pieces = [piece.strip(b" \t") for piece in value.split(b";")]
            value = b"; ".join([piece for piece in pieces if not piece.startswith(SESSION_COOKIE)])
            if not value:
                continue
        kept.append((name, value))
    return tuple(kept)


def is_event_stream(headers: Headers) -> bool:
    for name, value in headers:
        if len(name) == 12 and name.lower() == b"content-type":
            return value[:17].lower() == b"text/event-stream"
    return False
