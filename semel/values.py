"""JSON and nothing else: what cannot come back as it went out is refused, never made into text.

A tuple is an array. What a function returned is handed on as its round trip, so that the first caller sees
what every later one will see.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class NotJson(TypeError):
    """The message says where, and what is there."""


def encode(value: object, where: str) -> bytes:
    """`where` names the value in the message: "argument 'when'"."""
    try:
        _check(value, where)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise NotJson(f"{where} is not JSON: it is nested too deeply, or contains itself") from None
    return text.encode()


def decode(data: bytes) -> Json:
    """Raises ValueError."""
    value: Json = json.loads(data)
    return value


def _check(value: object, where: str) -> None:
    match value:
        case None | bool() | int():
            return
        case str():
            _check_text(value, where)
        case float():
            if not isfinite(value):
                raise NotJson(f"{where} is not JSON: it is {value!r}")
        case list() | tuple():
            for number, item in enumerate(value):
                _check(item, f"{where}[{number}]")
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):  # json would write it as text, and give back text
                    raise NotJson(f"{where} is not JSON: its key {key!r} is of type {_type(key)}, not a str")
                _check_text(key, f"a key of {where}")
                _check(item, f"{where}[{key!r}]")
        case _:
            raise NotJson(f"{where} is not JSON: it is of type {_type(value)}")


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotJson(f"{where} is not JSON: it has half of a surrogate pair") from None


def _type(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
