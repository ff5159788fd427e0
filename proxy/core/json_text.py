"""Where the members of a JSON object and the elements of an array lie in its text.

What is changed in a message, or taken out of it, is changed or taken there: all else stays to the byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # the typed modules do not tell of it
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\n\r]*")
# Python does not read whole numbers of more digits, unless it is told to; other readers round them.
_DIGITS = 640


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS else float(digits)


_ONE_VALUE = json.JSONDecoder(parse_int=_number).raw_decode


class Member(NamedTuple):
    name: str
    begin: int
    end: int
    value: Any


def after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None  # it matches nothing too
    return match.end()


def one_value(text: str) -> Any:  # noqa: ANN401 (JSON)
    """The value that the text is, and nothing else. Raises ValueError, or RecursionError."""
    value, end = _ONE_VALUE(text, after_space(text, 0))
    if after_space(text, end) != len(text):
        raise ValueError("something follows the value")
    return value


def read(body: bytes) -> Any:  # noqa: ANN401 (JSON)
    """The same of what a server says. Raises ValueError, or RecursionError."""
    return one_value(plain_text(body))


def read_if_json(body: bytes) -> Any:  # noqa: ANN401 (JSON)
    """None where it is none."""
    try:
        return read(body)
    except (ValueError, RecursionError):
        return None


def plain_text(body: bytes) -> str:
    """Without the mark that some put before it. Raises ValueError."""
    return body.decode("utf-8-sig")


def members(text: str, start: int) -> Iterator[Member]:
    """Of the object that begins at `start`. The text is valid JSON."""
    at = after_space(text, start + 1)
    while text[at] != "}":
        name, at = scanstring(text, at + 1)
        begin = after_space(text, after_space(text, at) + 1)
        value, end = _ONE_VALUE(text, begin)
        yield Member(name, begin, end, value)
        at = after_space(text, end)
        if text[at] == ",":
            at = after_space(text, at + 1)


def elements(text: str, start: int) -> Iterator[Member]:
    """Of the array that begins at `start`. The text is valid JSON."""
    at = after_space(text, start + 1)
    while text[at] != "]":
        value, end = _ONE_VALUE(text, at)
        yield Member("", at, end, value)
        at = after_space(text, end)
        if text[at] == ",":
            at = after_space(text, at + 1)
