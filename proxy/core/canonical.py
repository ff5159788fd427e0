"""Arguments to canonical bytes: spelling does not matter, value does.

JSON keys are sorted and white space and escapes are gone; numbers are compared by value and never
rounded. What cannot be read beyond doubt (duplicate keys, lone surrogates, too deep, broken), or only at
too high a price, is not guessed at: the body's digest stands for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

import orjson

from proxy.core.multipart import split_multipart
from proxy.core.policy import Normalize

# Raised whenever the same request would get other canonical bytes; part of every identity.
CANONICAL_VERSION = 1
MAX_DEPTH = 200
# More arrays and objects than this would take gigabytes, and the whole interpreter for seconds.
MAX_CONTAINERS = 500_000
# Numbers of up to so many characters are remembered once they are read.
SHORT_NUMBER = 20
# Integers below 10^18 are written plainly (common, and fast); other numbers as digits and exponent.
PLAIN_DIGITS = 18

Json: TypeAlias = Any


class NotCanonical(Exception):
    """The text has no single meaning; its digest must do."""


def _number(text: str) -> Json:
    """Prices and the like come again and again."""
    return _short_number(text) if len(text) <= SHORT_NUMBER else _exactly(text)


def _exactly(text: str) -> Json:
    """`1`, `1.0`, `1e0`, `10e-1` alike; exact at any size; `1e999999999` is never expanded."""
    mantissa, _, exponent_text = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    sign = "-" if whole.startswith("-") else ""
    digits = (whole.lstrip("-") + fraction).lstrip("0")
    if not digits:
        return 0
    try:
        exponent = int(exponent_text or "0") - len(fraction)
    except ValueError:  # an exponent of thousands of digits
        raise NotCanonical("exponent too long") from None
    stripped = digits.rstrip("0")
    exponent += len(digits) - len(stripped)
    if 0 <= exponent <= PLAIN_DIGITS - len(stripped):
        return int(sign + stripped + "0" * exponent)
    return orjson.Fragment(f"{sign}{stripped}e{exponent}")


_short_number = lru_cache(maxsize=1024)(_exactly)


def _integer(text: str) -> Json:
    return int(text) if len(text) <= PLAIN_DIGITS else _number(text)


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotCanonical("duplicate key")
    return found


def _no_constant(text: str) -> Json:
    raise NotCanonical(f"{text} is not JSON")


_decoder = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_number, parse_int=_integer, parse_constant=_no_constant
)
# What `raw_decode` wraps in another call; it has been there as long as that has.
_read_one: Callable[[str, int], tuple[Json, int]] = _decoder.scan_once  # type: ignore[attr-defined]
_WHITE_SPACE = " \t\n\r"  # JSON's; Python knows more


def _decode(text: str) -> Json:
    """As the decoder's own, without its two looks for white space: mostly there is none at the ends."""
    text = text.strip(_WHITE_SPACE)
    try:
        value, end = _read_one(text, 0)
    except StopIteration:
        raise NotCanonical("no value") from None
    if end != len(text):
        raise NotCanonical("something follows the value")
    return value


def parse_json(body: bytes) -> Json:
    """The value with exact numbers. Raises NotCanonical."""
    # Counting brackets is a cheap upper bound for both; only suspicious bodies are walked.
    containers = body.count(b"[") + body.count(b"{")
    if containers > MAX_CONTAINERS:
        raise NotCanonical(f"more than {MAX_CONTAINERS} arrays and objects")
    try:
        value = _decode(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise NotCanonical(str(error)) from None
    if containers > MAX_DEPTH and _too_deep(value):
        raise NotCanonical(f"nested deeper than {MAX_DEPTH}")
    return value


def _too_deep(value: Json) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [node for node in level if isinstance(node, (dict, list))]
        if not level:
            return False
        level = [child for node in level for child in (node.values() if isinstance(node, dict) else node)]
    return True


def dump(value: Json) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError, RecursionError) as error:  # lone surrogates
        raise NotCanonical(str(error)) from None


def parse_pairs(text: bytes) -> dict[str, list[str]]:
    """A query or a form: names to their values in order. `+` and `%20` alike, `a` and `a=` alike."""
    found: dict[str, list[str]] = {}
    for piece in text.split(b"&"):
        if not piece:
            continue
        name, _, value = piece.partition(b"=")
        try:
            found.setdefault(_unescape(name), []).append(_unescape(value))
        except UnicodeDecodeError:
            raise NotCanonical("not UTF-8") from None
    return found


def _unescape(text: bytes) -> str:
    text = text.replace(b"+", b" ")
    return (unquote_to_bytes(text) if b"%" in text else text).decode("utf-8")


# ---- arguments ---------------------------------------------------------------------------------


class Body(NamedTuple):
    """What the front found: the media type without parameters, and the body decoded from any encoding."""

    media_type: str = ""
    content_type: bytes = b""  # whole, for the boundary
    data: bytes = b""


FORM = "application/x-www-form-urlencoded"


def is_json(media_type: str) -> bool:
    """AWS calls it by a name of its own."""
    return media_type == "application/json" or media_type.endswith("+json") or media_type in _AMZ_JSON


_AMZ_JSON = ("application/x-amz-json-1.0", "application/x-amz-json-1.1")


def is_json_in_disguise(form: bytes) -> bool:
    """Some clients send JSON and call it a form (curl's -d), and many an API reads it all the same."""
    return form.lstrip()[:1] in (b"{", b"[")


def read_body(body: Body) -> tuple[str, Json] | None:
    """The body as (kind, value): json, form, multipart, or its digest. None without one."""
    if not body.data:
        return None
    try:
        if is_json(body.media_type):
            return "json", parse_json(body.data)
        if body.media_type == FORM:
            return "form", parse_pairs(body.data)
        if body.media_type.startswith("multipart/"):
            parts = split_multipart(body.content_type, body.data)
            if parts is not None:
                return "multipart", [[headers, _digest(content)] for headers, content in parts]
    except NotCanonical:
        pass
    return "digest", _digest(body.data)


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=32).hexdigest()


def canonical_arguments(
    *,
    path: dict[str, str],
    query: bytes,
    body: Body,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    normalize: Sequence[Normalize] = (),
) -> bytes:
    """The arguments, tagged by source, selected and normalised, as canonical JSON that people can read."""
    read = read_body(body)
    arguments: dict[str, Json] = {}
    if path:
        arguments["path"] = dict(path)  # exclude takes from it, and it is the caller's
    if query:
        try:
            arguments["query"] = parse_pairs(query)
        except NotCanonical:
            arguments["query"] = query.decode(
                "latin-1"
            )  # a string, so it cannot be taken for names and values
    parsed = read is not None and read[0] in ("json", "form")
    if read is not None:
        arguments["body"] = read[1]
    if exclude:
        for steps in (argument_steps(name, parsed) for name in exclude):
            _remove(arguments, steps)
    chosen: Json = arguments
    if include and (parsed or read is None):
        found = {name: _collect(arguments, argument_steps(name, parsed)) for name in include}
        if any(_selects(value, name.count("[]")) for name, value in found.items()):
            chosen = {"include": found}
    if normalize:
        chosen = _normalized(chosen, tuple(_NORMALIZERS[name] for name in normalize))
    try:
        # The kind keeps a JSON string apart from a digest that happens to read the same.
        return dump([read[0] if read else "none", chosen])
    except NotCanonical:
        opaque = Body(data=body.data)
        return canonical_arguments(
            path=path, query=query, body=opaque, include=include, exclude=exclude, normalize=normalize
        )


def argument_steps(name: str, body_is_parsed: bool) -> tuple[str, ...]:
    """`items[].id` -> ("body", "items", "[]", "id")."""
    steps = [step for part in name.split(".") for step in _split_brackets(part)]
    if steps[0] not in ("path", "query", "body") or len(steps) == 1:
        steps.insert(0, "body" if body_is_parsed else "query")
    return tuple(steps)


def _split_brackets(part: str) -> list[str]:
    base, arrays = part, 0
    while base.endswith("[]"):
        base, arrays = base[:-2], arrays + 1
    return ([base] if base else []) + ["[]"] * arrays


def _remove(node: Json, steps: tuple[str, ...]) -> None:
    step, rest = steps[0], steps[1:]
    if step == "[]":
        for item in node if isinstance(node, list) else ():
            if rest:
                _remove(item, rest)
        if not rest and isinstance(node, list):
            node.clear()
    elif isinstance(node, dict) and step in node:
        if rest:
            _remove(node[step], rest)
        else:
            del node[step]


def _collect(node: Json, steps: tuple[str, ...]) -> list[Json]:
    """Nested lists: an absent value is [], null is [None]; the positions in arrays are kept."""
    if not steps:
        return [node]
    step, rest = steps[0], steps[1:]
    if step == "[]":
        return [_collect(item, rest) for item in node] if isinstance(node, list) else []
    if isinstance(node, dict) and step in node:
        return _collect(node[step], rest)
    return []


def _selects(found: list[Json], arrays: int) -> bool:
    """Whether a value was found behind so many arrays; an empty list is a value too."""
    return any(_selects(item, arrays - 1) for item in found) if arrays else bool(found)


# ---- what changes by itself --------------------------------------------------------------------

# Dates and times as programs write them, whole and possible: 2024-13-01 is none. Nor is what is part of a
# longer word, such as the name of a model (gpt-4o-2024-05-13), a branch or a file: that tells things apart.
_YEAR, _MM, _DD = r"(?:19|20)[0-9]{2}", r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12][0-9]|3[01])"
_D = r"(?:[12][0-9]|3[01]|0?[1-9])"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::(?:[0-5][0-9]|60)(?:[.,][0-9]{1,9})?)?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2}))?"
_DAY = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:tember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_TIMESTAMP = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    rf"{_YEAR}-{_MM}-{_DD}(?:[T ]{_TIME}{_ZONE})?"  # 2024-01-31T10:20:30.123Z
    rf"|{_YEAR}{_MM}{_DD}T[0-2][0-9][0-5][0-9][0-6][0-9]Z?"  # 20240131T102030Z
    rf"|(?:{_DAY},? )?{_D} {_MONTH} {_YEAR}(?: {_TIME}{_ZONE})?"  # Wed, 31 Jan 2024 10:20:30 GMT
    rf"|(?:{_DAY},? )?{_MONTH} {_D}, {_YEAR}"  # Wednesday, January 31, 2024
    rf"|{_DAY} {_MONTH} [ 0-3]?[0-9] {_TIME} (?:[A-Z]{{3,4}} )?{_YEAR}"  # Wed Jan 31 10:20:30 UTC 2024
    r")(?![A-Za-z0-9_-])"
)
_UUID = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9a-fA-F])")

_NORMALIZERS: dict[Normalize, Callable[[str], str]] = {
    Normalize.TIMESTAMPS: lambda text: _TIMESTAMP.sub("<timestamp>", text),
    Normalize.UUIDS: lambda text: _UUID.sub("<uuid>", text),
}


def _normalized(node: Json, functions: tuple[Callable[[str], str], ...]) -> Json:
    if isinstance(node, str):
        for function in functions:
            node = function(node)
        return node
    if isinstance(node, dict):
        return {name: _normalized(value, functions) for name, value in node.items()}
    if isinstance(node, list):
        return [_normalized(value, functions) for value in node]
    return node


# Every version that a living run may still be pinned to. A new one is added, an old one never changed.
CANONICALISERS = {1: canonical_arguments}
