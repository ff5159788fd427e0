"""What must not be written down is replaced by a keyed hash, before it names the call and before the record.

Always: values in an address whose name sounds secret. And what the rule lists under `redact`. Headers that
carry credentials are not recorded at all (front/sending.py). Whoever has the record without its secret cannot
tell what was hidden, nor try values; equal values of one tenant are hidden alike, so a call keeps its name.

What cannot be read is hidden whole: a body of which the rule redacts something, and that is no JSON or form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

import orjson

from proxy.core.canonical import (
    FORM,
    Body,
    NotCanonical,
    argument_steps,
    is_json,
    is_json_in_disguise,
    parse_json,
)
from proxy.core.headers import Headers
from proxy.core.patterns import PathPattern
from proxy.core.policy import Rule

Json: TypeAlias = Any

# How what is in a form may be named.
FORM_SOURCES = ("body.", "")

# Then 32 hexadecimal digits.
MARK = "redacted:"
_MARKED = re.compile(re.escape(MARK) + "[0-9a-f]{32}")

# `max_tokens` and an Idempotency-Key are no secrets; a bare `key`, `sig` or `code` is one at many an API.
# Part of every name that is made from an address: a change here is a new canonical version.
_SECRET = re.compile(
    r"token(?!s)|secret|passw|passphrase|passcode|credential|authorization|session|cookie|signature|jwt|oauth"
    r"|assertion|bearer|(?:api|access|private|auth|user|client|app)[-_.]?key"
    r"|(?:^|[-_.\[])(?:auth|key|sig|pwd|pass|code|otp|pin|sid)(?:$|[-_.\]])"
)
_NO_SECRET = re.compile(r"idempotency[-_.]?key")


@lru_cache(maxsize=4096)
def sounds_secret(name: str) -> bool:
    low = name.lower()
    return _SECRET.search(low) is not None and _NO_SECRET.search(low) is None


class Veiling(NamedTuple):
    """The secret of the keyed hashes, and whether the record is encrypted: only then may it hold what a rule
    redacts, where that must be sent again."""

    secret: bytes
    encrypted: bool = False


class Veil(NamedTuple):
    """What is hidden of one rule's requests, and the key of the hashes. `recorded`: the request is read from
    a record, where it is hidden already. That is never said of what a client sends."""

    key: bytes
    args: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()  # lower case
    recorded: bool = False

    def hash(self, value: bytes) -> str:
        if self.recorded and _MARKED.fullmatch(value.decode("utf-8", "replace")):
            return value.decode()
        return MARK + blake2b(value, digest_size=16, key=self.key).hexdigest()

    def hides(self, source: str, name: str) -> bool:
        """A name without a source may mean the query."""
        return sounds_secret(name) or is_listed(name, (f"{source}.", ""), self.args)

    @property
    def in_body(self) -> tuple[str, ...]:
        """Those that may mean something in a body."""
        return tuple(name for name in self.args if name.partition(".")[0] not in ("query", "path"))


def is_listed(name: str, sources: tuple[str, ...], args: tuple[str, ...]) -> bool:
    """Of a pair in a query or form. `pin[]=1` is how some write the list that `pin` and `pin[]` mean."""
    plain = name.removesuffix("[]")
    return any(arg.removesuffix("[]") == source + plain for arg in args for source in sources)


@lru_cache(maxsize=1024)
def veil_of(
    secret: bytes,
    tenant: str,
    args: tuple[str, ...] = (),
    headers: tuple[str, ...] = (),
    *,
    recorded: bool = False,
) -> Veil:
    """Each tenant's hashes are its own: equal secrets of two do not show as equal."""
    key = blake2b(b"redact\0" + tenant.encode(), digest_size=32, key=secret).digest()
    return Veil(key, args, headers, recorded)


def naming_veil(rule: Rule, tenant: str, secret: bytes, *, recorded: bool = False) -> Veil:
    return veil_of(secret, tenant, rule.redact.args, rule.redact.headers, recorded=recorded)


def record_veil(rule: Rule, tenant: str, secret: bytes) -> Veil:
    """In a run that began before the rule redacted this: its calls keep their names, the record does not keep
    what the rule hides by now."""
    args = dict.fromkeys((*rule.redact.args, *rule.redacts_now.args))
    headers = dict.fromkeys((*rule.redact.headers, *rule.redacts_now.headers))
    return veil_of(secret, tenant, tuple(args), tuple(headers))


def redacts(rule: Rule) -> bool:
    return bool(rule.redact.args or rule.redact.headers or rule.redacts_now.args or rule.redacts_now.headers)


def hidden_arguments(arguments: bytes, veil: Veil) -> bytes:
    """Canonical JSON too, of a shape that arguments do not have (front/naming.py)."""
    return b'["digest","%b"]' % veil.hash(arguments).encode()


# ---- addresses ----


def hide_names(names: dict[str, str], veil: Veil) -> dict[str, str]:
    """Named segments of a path, decoded."""
    if not any(_hides_segment(name, veil) for name in names):
        return names
    return {
        name: veil.hash(value.encode("utf-8", "surrogateescape")) if _hides_segment(name, veil) else value
        for name, value in names.items()
    }


def _hides_segment(name: str, veil: Veil) -> bool:
    return sounds_secret(name) or f"path.{name}" in veil.args


def hide_path(raw_path: str, pattern: PathPattern | None, veil: Veil) -> str:
    """As it is spelled: the raw path names the call."""
    if pattern is None or "{" not in pattern.text:
        return raw_path
    hidden = tuple(hidden_segments(pattern, veil))
    if not hidden:
        return raw_path
    parts = raw_path.split("/")
    for at in hidden:
        parts[at + 1] = veil.hash(parts[at + 1].encode())  # the first is before the first slash
    return "/".join(parts)


def hidden_segments(pattern: PathPattern, veil: Veil) -> Iterator[int]:
    for at, segment in enumerate(pattern.segments):
        if segment.kind == "name" and _hides_segment(segment.text, veil):
            yield at


def hide_query(query: str, veil: Veil) -> str:
    """Of pairs whose name is hidden the value; everything else stays byte for byte."""
    if "=" not in query:
        return query
    return "&".join([_hide_pair(piece, partial(veil.hides, "query"), veil) for piece in query.split("&")])


def _hide_pair(piece: str, hides: Callable[[str], bool], veil: Veil) -> str:
    """`;` separates too at some APIs, and is part of a value at others: behind a secret all is hidden."""
    parts = piece.split(";")
    for at, part in enumerate(parts):
        name, mark, _ = part.partition("=")
        if mark and hides(unescaped(name)):
            value = ";".join([part, *parts[at + 1 :]]).partition("=")[2]
            kept = ";".join([*parts[:at], f"{name}="])
            return kept + veil.hash(unquote_to_bytes(value.replace("+", " ")))
    return piece


def unescaped(text: str) -> str:
    if "%" not in text and "+" not in text:
        return text
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")


# ---- headers and bodies ----


def hide_headers(headers: Headers, veil: Veil) -> Headers:
    if not veil.headers:
        return headers
    return tuple(
        (name, veil.hash(value).encode()) if name.lower().decode("latin-1") in veil.headers else (name, value)
        for name, value in headers
    )


def hide_body(body: Body, veil: Veil) -> Body:
    """`body` is decoded. What has no single meaning is hidden whole."""
    names = veil.in_body
    if not names or not body.data:
        return body
    hidden = _hidden(body, names, veil)
    if hidden is None:
        return Body(data=veil.hash(body.data).encode())
    return body._replace(data=hidden)


def is_hidden_whole(body: Body) -> bool:
    """Of a body that was hidden: nothing of it is left to be read."""
    return not body.media_type and body.data.startswith(MARK.encode())


def _hidden(body: Body, names: tuple[str, ...], veil: Veil) -> bytes | None:
    if body.media_type == FORM:
        if is_json_in_disguise(body.data):
            return None
        try:
            return _hidden_form(body.data.decode("ascii"), names, veil).encode()
        except UnicodeDecodeError:
            return None
    if is_json(body.media_type):
        try:
            parse_json(body.data)  # duplicate keys and the like
            value = _spelled(body.data.decode())
            for name in names:
                value = _replaced(value, argument_steps(name, body_is_parsed=True)[1:], veil)
            return orjson.dumps(value)
        except (NotCanonical, TypeError, ValueError, RecursionError):
            return None
    return None


def _hidden_form(form: str, names: tuple[str, ...], veil: Veil) -> str:
    """As a query, but that only what the rule names is hidden."""
    hides = partial(is_listed, sources=FORM_SOURCES, args=names)
    return "&".join([_hide_pair(piece, hides, veil) for piece in form.split("&")])


# Numbers keep their spelling: what is not hidden must stay what it was.
_spelled: Callable[[str], Json] = json.JSONDecoder(
    parse_float=orjson.Fragment, parse_int=orjson.Fragment
).decode


def _replaced(node: Json, steps: tuple[str, ...], veil: Veil) -> Json:
    if not steps:
        return _hash_json(node, veil)
    step, rest = steps[0], steps[1:]
    if step == "[]":
        return [_replaced(item, rest, veil) for item in node] if isinstance(node, list) else node
    if isinstance(node, dict) and step in node:
        return {**node, step: _replaced(node[step], rest, veil)}
    return node


def _hash_json(value: Json, veil: Veil) -> str:
    """By value, not by spelling: `1.0` and `1` are hidden alike, as they name a call alike."""
    if isinstance(value, str):
        if veil.recorded and _MARKED.fullmatch(value):
            return value
        return veil.hash(b'"' + value.encode())
    plain = parse_json(orjson.dumps(value))
    return veil.hash(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS))
