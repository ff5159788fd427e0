"""What sounds secret is not shown: credentials in queries, in named path segments, in header values.

By name only, since a value does not say what it is, and rather too much than too little: a person who needs
the value finds it where the call was made. Bodies are shown: what was asked is what an operator decides on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from proxy.core.redaction import sounds_secret

HIDDEN = "[redacted]"

# Name and password in an absolute address.
_USER = re.compile(r"(?<![^:\s<\"'=])//[^/?#\s<>\"']*@")
_BRACKETED = re.compile(r"<([^>]*)")
# Headers whose value is an address, and may hold a query.
_ADDRESSES = frozenset({"location", "content-location", "referer", "origin", "link", "refresh"})


# Long, and letters and digits mixed, as no word is.
_TOKEN_LIKE = re.compile(r"(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[A-Za-z0-9_:.~%+=-]{20,}")


def target(text: str, path_names: Mapping[str, object] | None = None) -> str:
    """A request target, or any address: values of secret-sounding query names, and the path segments that
    were matched under such a name, are replaced; everything else stays byte for byte."""
    rest, hash_mark, fragment = text.partition("#")
    path, mark, query = rest.partition("?")
    hidden = {str(value) for name, value in (path_names or {}).items() if sounds_secret(name)}
    if hidden:
        path = "/".join(HIDDEN if _unescaped(part) in hidden else part for part in path.split("/"))
    # A fragment of an address in a header may hold what OAuth puts there, or a query of its own.
    shown = f"#{'?'.join(map(pairs, fragment.split('?')))}" if hash_mark else ""
    return path + (f"?{pairs(query)}" if mark else "") + shown


def path(text: str) -> str:
    """A path of which nobody has said what its segments are: what looks like a token in it is not shown."""
    return "/".join("…" if _TOKEN_LIKE.fullmatch(piece) else piece for piece in target(text).split("/"))


def pairs(query: str) -> str:
    """`a=1&token=x` -> `a=1&token=[redacted]`; names are compared decoded."""
    return "&".join(map(_pair, query.split("&")))


def _pair(piece: str) -> str:
    """`;` separates too at some APIs, and is part of a value at others: behind a secret all is hidden."""
    parts = piece.split(";")
    for at, part in enumerate(parts):
        name, mark, _ = part.partition("=")
        if mark and sounds_secret(_unescaped(name.replace("+", " "))):
            return ";".join([*parts[:at], f"{name}={HIDDEN}"])
    return piece


def _unescaped(text: str) -> str:
    return unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")


def headers(given: Iterable[tuple[bytes, bytes]]) -> list[list[str]]:
    """For people: without Set-Cookie, and without the values of what sounds secret."""
    shown = []
    for raw_name, raw_value in given:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name.lower() == "set-cookie":
            continue
        if sounds_secret(name):
            value = HIDDEN
        elif name.lower() in _ADDRESSES:
            value = _address(value)
        shown.append([name, value])
    return shown


def _address(value: str) -> str:
    """An address, or a Link with several in angle brackets, each with a query of its own."""
    value = _USER.sub(f"//{HIDDEN}@", value)
    if "<" in value:
        return _BRACKETED.sub(lambda found: f"<{target(found[1])}", value)
    return target(value)


def values(given: Mapping[str, object]) -> dict[str, object]:
    """Named values (a query, path segments): the secret-sounding ones replaced."""
    return {name: HIDDEN if sounds_secret(name) else texts(value) for name, value in given.items()}


def texts(value: Any) -> Any:  # noqa: ANN401 (a text or a list of them, and it stays what it is)
    """`1;token=x` is one value to a reader for whom `;` does not separate."""
    if isinstance(value, list):
        return [texts(one) for one in value]
    return pairs(value) if isinstance(value, str) and ";" in value else value
