"""JSON values with an exact meaning, and many spellings of each: written here independently of semel.

A value is a tree of tuples: ("null",), ("bool", b), ("number", Fraction), ("string", s), ("array", (…)),
("object", frozenset of (name, value)). Two values are equal exactly when they mean the same.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, TypeAlias

from hypothesis import strategies as st

Value: TypeAlias = tuple[Any, ...]

# Without surrogates: a lone one has no meaning in JSON.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# Close neighbours and borders, so that unequal numbers are often nearly equal.
NUMBERS = st.one_of(
    st.integers(-3, 3).map(Fraction),
    st.sampled_from([2**53, 2**63, 2**64, 10**17, 10**18, 10**19, 10**40]).flatmap(
        lambda n: st.sampled_from([Fraction(sign * (n + d)) for d in (-1, 0, 1) for sign in (1, -1)])
    ),
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


@st.composite
def spelled(draw: st.DrawFn, value: Value) -> bytes:
    """One of the many ways to write `value`."""
    return (_space(draw) + _spell(draw, value) + _space(draw)).encode()


def _space(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(["", "", "", " ", "\n", "\t \r\n"]))


def _spell(draw: st.DrawFn, value: Value) -> str:
    match value:
        case ("null",):
            return "null"
        case ("bool", b):
            return "true" if b else "false"
        case ("number", number):
            return _spell_number(draw, number)
        case ("string", text):
            return _spell_string(draw, text)
        case ("array", items):
            inside = ",".join(_space(draw) + _spell(draw, item) + _space(draw) for item in items)
            return f"[{inside}{_space(draw)}]"
        case ("object", members):
            ordered = draw(st.permutations(sorted(members, key=repr)))
            inside = ",".join(
                f"{_space(draw)}{_spell_string(draw, name)}{_space(draw)}:{_space(draw)}{_spell(draw, item)}"
                for name, item in ordered
            )
            return f"{{{inside}{_space(draw)}}}"
    raise AssertionError(value)


def _spell_string(draw: st.DrawFn, text: str) -> str:
    style = draw(st.sampled_from(["plain", "plain", "escaped", "short"]))
    return '"' + "".join(_spell_character(character, style) for character in text) + '"'


def _spell_character(character: str, style: str) -> str:
    if style == "short" and character in _SHORT:
        return _SHORT[character]
    if style == "escaped" or character < " ":
        units = character.encode("utf-16-be")
        return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
    return _SHORT[character] if character in '"\\' else character


def _spell_number(draw: st.DrawFn, number: Fraction) -> str:
    sign = "-" if number < 0 or (number == 0 and draw(st.booleans())) else ""
    digits, exponent = _decimal(abs(number))
    shift = draw(st.integers(0, 3))  # 12 -> 120e-1, 1200e-2, …
    digits, exponent = digits + "0" * shift, exponent - shift
    point = draw(st.integers(0, len(digits) - 1))  # digits after the point
    whole, fraction = digits[: len(digits) - point], digits[len(digits) - point :]
    whole = whole.lstrip("0") or "0"
    exponent += point
    text = sign + whole + ("." + fraction if fraction else "")
    if exponent == 0 and draw(st.booleans()):
        return text
    if 0 < exponent <= 40 and not fraction and whole != "0" and draw(st.booleans()):
        return text + "0" * exponent
    mark = draw(st.sampled_from("eE"))
    plus = (
        draw(st.sampled_from(["", "+", "0", "+00"])) if exponent >= 0 else draw(st.sampled_from(["-", "-0"]))
    )
    return f"{text}{mark}{plus}{abs(exponent)}"


def _decimal(number: Fraction) -> tuple[str, int]:
    """Digits and a decimal exponent; every number here has a finite decimal form."""
    exponent = 0
    while number.denominator != 1:
        number, exponent = number * 10, exponent - 1
    return str(number.numerator), exponent
