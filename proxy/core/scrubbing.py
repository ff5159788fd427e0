"""What was hidden of a request is taken out of what an upstream says about it: a word of it may be kept."""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from proxy.core.canonical import Body, argument_steps
from proxy.core.headers import Headers
from proxy.core.patterns import PathPattern
from proxy.core.redaction import (
    FORM_SOURCES,
    Veil,
    hidden_segments,
    hide_body,
    is_hidden_whole,
    is_listed,
    unescaped,
)

Json: TypeAlias = Any

HIDDEN = "[redacted]"
# Shorter ones are parts of any text.
SHORTEST = 4
# Of a longer one nothing but its beginning can stand in what is kept of an answer.
LONGEST = 16 * 1024
# As it is, escaped, and escaped again: JSON in JSON.
DEPTH = 3


class Secrets(NamedTuple):
    """`anything`: nobody knows what of the request is secret, as its body could not be read."""

    values: tuple[str, ...] = ()
    anything: bool = False


def secrets_of(target: str, pattern: PathPattern | None, headers: Headers, body: Body, veil: Veil) -> Secrets:
    """What is hidden of a request, in clear. `headers`: those that are."""
    found = [*_in_address(target, pattern, veil), *(value for pair in headers for value in _in_header(*pair))]
    names = veil.in_body
    if not names or not body.data:
        return Secrets(tuple(found))
    if is_hidden_whole(hide_body(body, veil)):
        return Secrets(tuple(found), anything=True)
    if body.media_type == "application/x-www-form-urlencoded":
        hides = partial(is_listed, sources=FORM_SOURCES, args=names)
        found += _pair_values(body.data.decode("latin-1"), hides)
    else:
        value = json.loads(body.data)
        for name in names:
            found += _leaves(value, argument_steps(name, body_is_parsed=True)[1:])
    return Secrets(tuple(found))


def _in_address(target: str, pattern: PathPattern | None, veil: Veil) -> Iterator[str]:
    raw_path, _, query = target.partition("?")
    parts = raw_path.split("/")
    for at in () if pattern is None else hidden_segments(pattern, veil):
        yield from parts[at + 1 : at + 2]
    yield from _pair_values(query, lambda name: veil.hides("query", name))


def _in_header(name: bytes, value: bytes) -> Iterator[str]:
    """`Bearer x`, `sid=x; theme=y`, an address with a query: the whole, and its parts."""
    text = value.decode("latin-1")
    yield text
    yield from re.split("[ ;,&?#]+", text)
    yield from _in_basic(text)
    yield from _pair_values(text.partition("?")[2] or text, lambda _: True)


def _in_basic(text: str) -> Iterator[str]:
    """`Basic` and a name and a password in base64: an upstream repeats them as it reads them."""
    scheme, _, coded = text.partition(" ")
    if scheme.lower() != "basic":
        return
    try:
        pair = base64.b64decode(coded).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return
    yield pair
    yield pair.partition(":")[2]


def _pair_values(text: str, is_hidden: Callable[[str], bool]) -> Iterator[str]:
    for piece in re.split("[&;]", text):
        name, _, value = piece.partition("=")
        if value and is_hidden(unescaped(name)):
            yield value


def _leaves(node: Json, steps: tuple[str, ...]) -> Iterator[str]:
    if steps and isinstance(node, dict):
        if steps[0] in node:
            yield from _leaves(node[steps[0]], steps[1:])
    elif steps and isinstance(node, list):
        for item in node:
            yield from _leaves(item, steps[1:] if steps[0] == "[]" else steps)
    elif isinstance(node, dict):
        for value in node.values():
            yield from _leaves(value, ())
    elif isinstance(node, list):
        for value in node:
            yield from _leaves(value, ())
    elif isinstance(node, str):
        yield node
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield json.dumps(node)


def scrubbed(text: str, secrets: Secrets) -> str:
    """The text without these values, however they are escaped there, and without the beginning of one that
    was cut off at its end."""
    if secrets.anything and text:
        return HIDDEN
    forms = {form for value in secrets.values for form in _forms(value) if len(form) >= SHORTEST}
    if not forms:
        return text
    hidden: list[tuple[int, int]] = []
    reading = _Reading.of(text)
    for _ in range(DEPTH):
        hidden += [span for form in forms for span in reading.places(form)]
        reading = reading.unescaped()
    return _without(text, sorted(hidden))


def _without(text: str, hidden: list[tuple[int, int]]) -> str:
    kept, at = [], 0
    for start, end in hidden:
        if start >= at:
            kept += [text[at:start], HIDDEN]
        at = max(at, end)
    return "".join([*kept, text[at:]])


def _forms(value: str) -> Iterator[str]:
    """As it is, and what it means where it is escaped itself, as in an address."""
    literal = _Reading.of(value[:LONGEST])
    yield literal.said
    yield literal.unescaped().said


# How an API may write a character that it repeats: as it is, in an address, in JSON, in HTML.
_UNIT = re.compile(
    r"%[0-9A-Fa-f]{2}|\\u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\."
    r"|&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8});|.",
    re.DOTALL,
)
_CUT_OFF = re.compile(r"(?:%[0-9A-Fa-f]?|\\(?:u[0-9A-Fa-f]{0,3})?|&#?[0-9A-Za-z]{0,7})$")
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class _Reading(NamedTuple):
    """A text as bytes, each a character, and from where to where in the text each comes."""

    said: str
    starts: list[int]
    ends: list[int]

    @classmethod
    def of(cls, text: str) -> _Reading:
        sizes = [len(character.encode("utf-8", "surrogatepass")) for character in text]
        starts = [at for at, size in enumerate(sizes) for _ in range(size)]
        said = text.encode("utf-8", "surrogatepass").decode("latin-1").replace("+", " ")
        return cls(said, starts, [at + 1 for at in starts])

    def unescaped(self) -> _Reading:
        said, starts, ends = [], [], []
        for unit in _UNIT.finditer(self.said):
            meant = _meaning(unit[0])
            said.append(meant)
            starts += [self.starts[unit.start()]] * len(meant)
            ends += [self.ends[unit.end() - 1]] * len(meant)
        return _Reading("".join(said).replace("+", " "), starts, ends)

    def places(self, form: str) -> Iterator[tuple[int, int]]:
        at = self.said.find(form)
        while at >= 0:
            yield self.starts[at], self.ends[at + len(form) - 1]
            at = self.said.find(form, at + len(form))
        for said in {self.said, _CUT_OFF.sub("", self.said)}:
            for length in range(min(len(form) - 1, len(said)), SHORTEST - 1, -1):
                if said.endswith(form[:length]):
                    yield self.starts[len(said) - length], sys.maxsize
                    break


def _meaning(unit: str) -> str:
    """In bytes, each a character."""
    if len(unit) == 1:
        return unit
    if unit[0] == "%":
        return chr(int(unit[1:], 16))
    if unit[0] == "&":
        meant = html.unescape(unit)
    elif unit[1] == "u" and len(unit) > 2:
        meant = json.loads(f'"{unit}"')
        if "\ud800" <= meant <= "\udfff":  # half of a character: it was cut off there
            return ""
    elif unit[1] in _CONTROLS:
        return _CONTROLS[unit[1]]
    else:
        return unit[1] if unit[1] in "\"'/\\" else unit
    return meant.encode("utf-8", "surrogatepass").decode("latin-1")
