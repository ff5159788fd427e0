"""Which headers belong to one connection only, and which are addressed to semel.

Both are removed before a message is handed on. Everything else stays as it came: bytes, order, repetition.
"""

from __future__ import annotations

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


def end_to_end(headers: Headers) -> Headers:
    """Without the hop-by-hop headers and without those that Connection names."""
    named = _named_by_connection(headers)
    dropped = HOP_BY_HOP | named if named else HOP_BY_HOP
    return tuple([pair for pair in headers if pair[0].lower() not in dropped])


def without_semel(headers: Headers) -> Headers:
    """Without what is said to semel (Semel-Run, Semel-Token, …): no upstream ever sees it."""
    return tuple([pair for pair in headers if not pair[0].lower().startswith(SEMEL_PREFIX)])


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    values = [value for name, value in headers if len(name) == 10 and name.lower() == b"connection"]
    options = (option.strip(b" \t").lower() for value in values for option in value.split(b","))
    return frozenset(options) if values else frozenset()
