"""A body as it is looked at: decoded, with its type; and whether it is one that is never recorded."""

from __future__ import annotations

from functools import lru_cache

from proxy.core.canonical import FORM, Body, NotCanonical, parse_pairs
from proxy.core.encoding import Undecodable, codings, decode
from proxy.core.headers import MANY_HEADS, Headers
from proxy.spool import Spool


@lru_cache(maxsize=MANY_HEADS)
def _content_type(headers: Headers) -> tuple[bytes, str]:
    """Whole, and the media type alone."""
    whole = next((value for name, value in headers if name.lower() == b"content-type"), b"")
    return whole, whole.split(b";", 1)[0].strip().lower().decode("latin-1")


def asks_for_a_token(body: Body) -> bool:
    """An OAuth token request is never recorded: its answer is a secret that must be fresh."""
    if body.media_type != FORM:
        return False
    try:
        return "grant_type" in parse_pairs(body.data)
    except NotCanonical:
        return False


def readable_body(headers: Headers, body: Spool | None, limit: int) -> Body:
    if body is None:
        return Body()
    data, (content_type, media_type) = body.whole(), _content_type(headers)
    applied = codings(headers)
    if applied:
        try:
            data = decode(data, applied, limit)
        except Undecodable:
            return Body(data=data)
    return Body(media_type=media_type, content_type=content_type, data=data)
