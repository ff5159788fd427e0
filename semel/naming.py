"""What names a call: the tool, its arguments, and what a developer says besides.

Checked whole before anything is sent. All tries of one call are the same bytes.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from semel.values import Json, decode, encode

Arguments: TypeAlias = Mapping[str, Json]
# Of every call, or how it is found in the arguments of each.
Occurrence: TypeAlias = int | Callable[[Arguments], int] | None
Key: TypeAlias = str | Callable[[Arguments], str] | None

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_KEY = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")  # what a header can hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`occurrence`: which of several identical calls. `key`: what names the call in the arguments' place.
    `not_executed`: exceptions that prove that the function had no effect."""

    occurrence: Occurrence = None
    key: Key = None
    not_executed: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        for kind in self.not_executed:
            if not issubclass(kind, Exception):  # an interruption proves nothing
                raise TypeError(f"not_executed names exceptions, and {kind.__qualname__} is none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One call, as it is asked for."""

    tool: str
    arguments: bytes
    headers: Mapping[str, str]
    not_executed: tuple[type[Exception], ...]


def question(tool: str, arguments: Mapping[str, object], options: Options, *, in_run: bool) -> Question:
    """Raises TypeError that names the argument, or ValueError."""
    body = _body(tool, arguments)
    return Question(
        tool=tool, arguments=body, headers=_headers(body, options, in_run), not_executed=options.not_executed
    )


def check_name(name: str) -> str:
    # The two are names of folders: whatever stands between may take them for such.
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise ValueError(
            f"A tool's name is 1 to 128 characters of A-Z a-z 0-9 . _ - and not {name!r}: say name=…"
        )
    return name


def _body(tool: str, arguments: Mapping[str, object]) -> bytes:
    for name, value in arguments.items():
        encode(value, f"argument {name!r} of the tool {tool!r}")
    return encode(dict(arguments), f"the arguments of the tool {tool!r}")


def _headers(body: bytes, options: Options, in_run: bool) -> dict[str, str]:
    occurrence, key = options.occurrence, options.key
    if callable(occurrence):
        occurrence = occurrence(_seen(body))
    if callable(key):
        key = key(_seen(body))
    headers = {}
    if occurrence is not None:
        headers["Semel-Occurrence"] = str(_occurrence(occurrence))
    if key is not None:
        headers["Idempotency-Key"] = _key(key)
    elif in_run:
        # Evidence that a try is one. Outside runs it would name the call, and no two would be the same.
        headers["Idempotency-Key"] = secrets.token_hex(16)
    return headers


def _seen(body: bytes) -> Arguments:
    """The arguments as semel sees them."""
    value = decode(body)
    assert isinstance(value, dict)
    return value


def _key(key: object) -> str:
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise ValueError(f"A key is 1 to 255 characters of printable ASCII, and not {key!r}")
    return key


def _occurrence(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"An occurrence is a number from 1 on, and not {number!r}")
    return number
