"""JSON values with an exact meaning, and many spellings of each: written here independently of semel.

A value is a tree of tuples: ("null",), ("bool", b), ("number", Fraction), ("string", s), ("array", (…)),
("object", frozenset of (name, value)). Two values are equal exactly when they mean the same.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any, TypeAlias

from hypothesis import strategies as st

Value: TypeAlias = tuple[Any, ...]

# Without surrogates: a lone one has no meaning in JSON.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# Close neighbours and borders, so that unequal numbers are often nearly equal.
_BORDERS = [0, 1, 10, 2**53, 2**63, 2**64, 10**17, 10**18, 10**19, 10**40]
NUMBERS = st.one_of(
    st.sampled_from([Fraction(sign * (n + d)) for n in _BORDERS for d in (-1, 0, 1) for sign in (1, -1)]),
    st.integers(-(10**30), 10**30).map(Fraction),
    st.builds(
        lambda digits, exponent: Fraction(digits) * Fraction(10) ** exponent,
        st.integers(-(10**20), 10**20),
        st.integers(-30, 30),
    ),
)
SCALARS = st.one_of(
    st.just(("null",)),
    st.booleans().map(lambda b: ("bool", b)),
    NUMBERS.map(lambda n: ("number", n)),
    TEXT.map(lambda s: ("string", s)),
)
VALUES: st.SearchStrategy[Value] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: ("array", tuple(items))),
        st.dictionaries(TEXT, inner, max_size=4).map(lambda d: ("object", frozenset(d.items()))),
    ),
    max_leaves=8,
)

_SHORT = {
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


def spelled(value: Value, seed: int) -> bytes:
    """One of the many ways to write `value`; the seed says which."""
    dice = Random(seed)
    return (_space(dice) + _spell(dice, value) + _space(dice)).encode()


def _space(dice: Random) -> str:
    return dice.choice(["", "", "", " ", "\n", "\t \r\n"])


def _spell(dice: Random, value: Value) -> str:
    match value:
        case ("null",):
            return "null"
        case ("bool", b):
            return "true" if b else "false"
        case ("number", number):
            return _spell_number(dice, number)
        case ("string", text):
            return _spell_string(dice, text)
        case ("array", items):
            inside = ",".join(_space(dice) + _spell(dice, item) + _space(dice) for item in items)
            return f"[{inside}{_space(dice)}]"
        case ("object", members):
            ordered = sorted(members, key=repr)
            dice.shuffle(ordered)
            inside = ",".join(
                f"{_space(dice)}{_spell_string(dice, name)}{_space(dice)}:{_space(dice)}{_spell(dice, item)}"
                for name, item in ordered
            )
            return f"{{{inside}{_space(dice)}}}"
    raise AssertionError(value)


def _spell_string(dice: Random, text: str) -> str:
    style = dice.choice(["plain", "plain", "escaped", "short"])
    return '"' + "".join(_spell_character(character, style) for character in text) + '"'


def _spell_character(character: str, style: str) -> str:
    if style == "short" and character in _SHORT:
        return _SHORT[character]
    if style == "escaped" or character < " ":
        units = character.encode("utf-16-be")
        return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
    return _SHORT[character] if character in '"\\' else character


def _spell_number(dice: Random, number: Fraction) -> str:
    sign = "-" if number < 0 or (number == 0 and dice.random() < 0.5) else ""
    digits, exponent = _decimal(abs(number))
    shift = dice.randint(0, 3)  # 12 -> 120e-1, 1200e-2, …
    digits, exponent = digits + "0" * shift, exponent - shift
    point = dice.randint(0, len(digits) - 1)  # digits after the point
    whole, fraction = digits[: len(digits) - point], digits[len(digits) - point :]
    whole = whole.lstrip("0") or "0"
    exponent += point
    text = sign + whole + ("." + fraction if fraction else "")
    if exponent == 0 and dice.random() < 0.5:
        return text
    if 0 < exponent <= 40 and not fraction and whole != "0" and dice.random() < 0.5:
        return text + "0" * exponent
    mark = dice.choice("eE")
    plus = dice.choice(["", "+", "0", "+00"]) if exponent >= 0 else dice.choice(["-", "-0"])
    return f"{text}{mark}{plus}{abs(exponent)}"


def _decimal(number: Fraction) -> tuple[str, int]:
    """Digits and a decimal exponent; every number here has a finite decimal form."""
    exponent = 0
    while number.denominator != 1:
        number, exponent = number * 10, exponent - 1
    return str(number.numerator), exponent
