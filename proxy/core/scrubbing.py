"""What was hidden of a request is taken out of what an upstream says about it: a word of it may be kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias
from urllib.parse import quote, quote_plus

from proxy.core.canonical import Body, argument_steps
from proxy.core.policy import PathPattern
from proxy.core.redaction import Veil, hidden_segments, unescaped

Json: TypeAlias = Any

HIDDEN = "[redacted]"
# Shorter ones are parts of any text.
SHORTEST = 4


def secret_values(target: str, pattern: PathPattern | None, body: Body, veil: Veil) -> Iterator[str]:
    """What is hidden of a request, in clear."""
    raw_path, _, query = target.partition("?")
    parts = raw_path.split("/")
    for at in () if pattern is None else hidden_segments(pattern, veil):
        yield from parts[at + 1 : at + 2]
    yield from _pair_values(query, lambda name: veil.hides("query", name))
    names = veil.in_body
    if body.media_type == "application/x-www-form-urlencoded":
        listed = {name.removeprefix("body.").removesuffix("[]") for name in names}
        yield from _pair_values(body.data.decode("latin-1"), listed.__contains__)
    elif names:
        try:
            value = json.loads(body.data)
        except (ValueError, RecursionError):
            return
        for name in names:
            yield from _leaves(value, argument_steps(name, body_is_parsed=True)[1:])


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


def scrubbed(text: str, values: Iterable[str]) -> str:
    """The text without these values, as they are, decoded, or escaped, and without the beginning of one that
    was cut off at its end."""
    spellings = {form for value in values for form in _spellings(value) if len(form) >= SHORTEST}
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
