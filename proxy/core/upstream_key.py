"""Putting a key of ours where the upstream looks for one: into a header, or into a field of the JSON body.

Everything else stays as it came, to the byte: a body is not read and written anew, the field is set in it.
What cannot carry a key is sent without one, and is then as any other call whose outcome may be doubted.
"""

from __future__ import annotations

import json
import re

from proxy.core.canonical import NotCanonical, parse_json
from proxy.core.clauses import UpstreamKey
from proxy.core.headers import Headers
from proxy.core.identity import CLIENTS_OWN
from proxy.core.json_text import after_space, members

# A key is put into bodies up to this size.
LOOKED_INTO = 1024 * 1024
_SIGNED = b"aws4-"
_COVERED = re.compile(rb"signature|digest$|^content-md5$|hmac|sha(?:1|256|512)|checksum")


def can_carry(key: UpstreamKey, headers: Headers, body: bytes | None) -> bool:
    """`body` None: there is none, or it is too large to look into."""
    if key.header is not None:
        return True
    named = {name.lower(): value for name, value in headers}
    if b"content-encoding" in named or body is None or not _is_json(named.get(b"content-type", b"")):
        return False
    if named.get(b"authorization", b"").lower().startswith(_SIGNED) or any(map(_COVERED.search, named)):
        return False  # a signature or a digest covers the body
    return with_fields(body, key, "") is not None


def with_header(headers: Headers, key: UpstreamKey, value: str) -> Headers:
    """The client's own key goes, under whatever name: the upstream knows the call by ours."""
    ours = (key.header or "").encode()
    kept = tuple(pair for pair in headers if pair[0].lower() not in (ours, CLIENTS_OWN))
    return (*kept, (ours, value.encode())) if ours else kept


def with_fields(body: bytes, key: UpstreamKey, value: str) -> bytes | None:
    """The JSON object with the key, and what goes beside it; None where it cannot have them."""
    assert key.body is not None
    keyed: bytes | None = body
    for path, member in ((key.body, value), *key.beside):
        keyed = None if keyed is None else with_field(keyed, path, member)
    return keyed


def with_field(body: bytes, path: str, value: str | int | bool) -> bytes | None:
    """The JSON object with this field set; None where it is none, or has no single meaning."""
    try:
        if not isinstance(parse_json(body), dict):
            return None
        text = body.decode()
    except (NotCanonical, UnicodeDecodeError):
        return None
    return _with_member(text, path.split("."), value)


def _with_member(text: str, steps: list[str], value: str | int | bool) -> bytes | None:
    start = after_space(text, 0)
    for depth, name in enumerate(steps):
        found = _member(text, start, name)
        if found is None:
            return _inserted(text, start, steps[depth:], value).encode()
        start, end = found
        if depth == len(steps) - 1:
            return (text[:start] + json.dumps(value) + text[end:]).encode()
        if text[start] != "{":
            return None
    return None


def _member(text: str, start: int, wanted: str) -> tuple[int, int] | None:
    """Where the value of this member of the object lies. The text is valid JSON without duplicate keys."""
    return next(((each.begin, each.end) for each in members(text, start) if each.name == wanted), None)


def _inserted(text: str, start: int, names: list[str], value: str | int | bool) -> str:
    member: object = value
    for name in reversed(names[1:]):
        member = {name: member}
    told = f"{json.dumps(names[0])}: {json.dumps(member)}"
    is_empty = text[after_space(text, start + 1)] == "}"
    return text[: start + 1] + told + ("" if is_empty else ", ") + text[start + 1 :]


def _is_json(content_type: bytes) -> bool:
    media_type = content_type.split(b";", 1)[0].strip().lower()
    return media_type == b"application/json" or media_type.endswith(b"+json")
