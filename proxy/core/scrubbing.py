"""What was hidden of a request is taken out of what an upstream says about it: a word of it may be kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, quote_plus

from proxy.core.canonical import Body, argument_steps
from proxy.core.headers import Headers
from proxy.core.policy import PathPattern
from proxy.core.redaction import Veil, hidden_segments, hide_body, is_hidden_whole, unescaped

Json: TypeAlias = Any

HIDDEN = "[redacted]"
# Shorter ones are parts of any text.
SHORTEST = 4


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
        listed = {name.removeprefix("body.").removesuffix("[]") for name in names}
        found += _pair_values(body.data.decode("latin-1"), listed.__contains__)
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
    yield from _pair_values(text.partition("?")[2] or text, lambda _: True)


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
    """The text without these values, as they are, decoded, or escaped, and without the beginning of one that
    was cut off at its end."""
    if secrets.anything and text:
        return HIDDEN
    spellings = {form for value in secrets.values for form in _spellings(value) if len(form) >= SHORTEST}
    longest_first = sorted(spellings, key=len, reverse=True)
    for value in longest_first:
        text = text.replace(value, HIDDEN)
    for value in longest_first:
        for length in range(len(value) - 1, SHORTEST - 1, -1):
            if text.endswith(value[:length]):
                return text[:-length] + HIDDEN
    return text


def _spellings(value: str) -> Iterator[str]:
    decoded = unescaped(value)
    for form in (value, decoded):
        yield form
        yield json.dumps(form)[1:-1]
        yield quote(form, safe="")
        yield quote_plus(form, safe="")
