"""JSON as the standard library reads it, made strict: the reading that semel's is held against.

No duplicate names, no lone surrogates, no constants that JSON does not have; numbers exact, never expanded.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

from proxy.core.canonical import MAX_DEPTH
from tests.core.json_values import Value

# Further from the point than this a number is compared, not spelt anew.
SPELT = 60


class NotStrict(Exception):
    """The standard library reads it, and another reader may read it otherwise; or it does not."""


def strictly(text: str) -> Value:
    """Raises NotStrict."""
    try:
        read = json.JSONDecoder(
            object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_refuse
        ).decode(text)
        if _depth(read) > MAX_DEPTH:
            raise NotStrict("deep")
        return _value(read)
    except (ValueError, RecursionError) as error:
        raise NotStrict(str(error)) from None


class _Number(str):
    __slots__ = ()


def _number(text: str) -> _Number:
    return _Number(text)


_PARTS = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")


def _exactly(text: str) -> tuple[str, str, int]:
    """Sign, digits, exponent; no nought at either end. Never expanded, whatever the exponent."""
    found = _PARTS.fullmatch(text)
    assert found is not None
    sign, whole, fraction, exponent = found.groups("")
    digits = (whole + fraction).strip("0")
    if not digits:
        return ("", "", 0)
    behind = len(whole + fraction) - len((whole + fraction).rstrip("0"))
    return (sign, digits, int(exponent or "0") - len(fraction) + behind)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise NotStrict("a name twice")
    return dict(pairs)


def _refuse(word: str) -> Any:
    raise NotStrict(word)


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        level = [below for one in level for below in (one.values() if isinstance(one, dict) else one)]
    return depth


def _text(given: str) -> str:
    given.encode()  # a lone surrogate is a ValueError
    return given


def _value(read: Any) -> Value:
    match read:
        case None:
            return ("null",)
        case bool():
            return ("bool", read)
        case _Number():
            return ("number", _exactly(read))
        case str():
            return ("string", _text(read))
        case list():
            return ("array", tuple(_value(one) for one in read))
        case _:
            return ("object", frozenset((_text(name), _value(one)) for name, one in read.items()))


def spellable(value: Value) -> Value | None:
    """With fractions, as `spelled` takes them; None where one would be too long."""
    match value:
        case ("number", (sign, digits, exponent)):
            if abs(exponent) + len(digits) > SPELT:
                return None
            return ("number", Fraction(int(sign + (digits or "0"))) * Fraction(10) ** exponent)
        case ("array", items):
            inside = [spellable(one) for one in items]
            return None if None in inside else ("array", tuple(inside))
        case ("object", members):
            pairs = [(name, spellable(one)) for name, one in members]
            return None if any(one is None for _, one in pairs) else ("object", frozenset(pairs))
    return value
