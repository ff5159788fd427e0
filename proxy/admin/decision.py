"""What a person decides, as it is said: who, why, on which version; and the answer that came of a call."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from proxy.admin.checked import mistakes
from proxy.admin.schemas import MEDIA_TYPE, REASON, Schema
from proxy.core.headers import Headers
from proxy.errors import BadRequest
from proxy.operator import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`version` None: whatever stands there, as people at a keyboard may say. `by` is who decides, for the
    history; a proxy that is asked over HTTP says that for itself."""

    by: str
    reason: str
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution(Decision):
    verdict: Verdict
    status: int | None = None
    body: bytes | None = None
    content_type: str | None = None


# What people write into the record and into answers, however it gets here: the schema of the API holds for
# the command line too.
_WRITTEN: dict[str, tuple[Schema, str]] = {
    "reason": (REASON, "The reason must be one line of at most 2000 characters, without control ones."),
    "content_type": (MEDIA_TYPE, "The content type must be like text/plain, of at most 200 characters."),
}


def check(decision: Decision) -> None:
    for name, (schema, told) in _WRITTEN.items():
        text = getattr(decision, name, None)
        if text is not None and (mistakes(schema, text) or not _is_unicode(text)):
            raise BadRequest(told)


def _is_unicode(text: str) -> bool:
    """Bytes of a command line that are not UTF-8 arrive as lone surrogates."""
    return text.encode("utf-8", "replace") == text.encode("utf-8", "surrogatepass")


def content_type(given: str | None, body: bytes | None) -> Headers:
    if body is None or not (given or body):
        return ()
    return ((b"Content-Type", (given or _guessed(body)).encode()),)


def _guessed(body: bytes) -> str:
    """JSON only for what no other text looks like: an object or an array."""
    try:
        if body.lstrip()[:1] in (b"{", b"["):
            orjson.loads(body)
            return "application/json"
    except orjson.JSONDecodeError:
        pass
    try:
        body.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain; charset=utf-8"
