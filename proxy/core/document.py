"""The arguments of a call as one document, for a rule's expressions and placeholders.

`path`, `query` and `body` are there by name; beside them the body's own fields, or the query's where there is
no parsed body, as an unprefixed name means everywhere in policies. What has no single meaning is not there,
and whoever reads the document must be content with that: see `Document.whole`.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

import jmespath
from jmespath.visitor import TreeInterpreter

from proxy.core.canonical import Body, NotCanonical, is_json, is_json_in_disguise, parse_json, parse_pairs
from proxy.core.outcome import compiled
from proxy.core.redaction import MARK

Json: TypeAlias = Any


# What JSON and forms are written in; in another one the same bytes may mean something else.
_CHARSET = re.compile(rb"charset\s*=\s*\"?([^;\"\s]+)", re.IGNORECASE)
_PLAIN_CHARSETS = (b"utf-8", b"utf8", b"us-ascii", b"ascii")


class Document(NamedTuple):
    """`whole`: everything that was sent is in it. An opaque body may hold anything."""

    value: dict[str, Json]
    whole: bool


def document_of(*, path: dict[str, str], query: bytes, body: Body) -> Document:
    whole = True
    fields: Json = {}
    sources: dict[str, Json] = {"path": dict(path), "query": {}, "body": None}
    try:
        sources["query"] = fields = parse_pairs(query)
    except NotCanonical:
        whole = False
    if body.data:
        try:
            sources["body"] = fields = _parsed(body)
        except NotCanonical:
            whole = False
    return Document({**(fields if isinstance(fields, dict) else {}), **sources}, whole)


def _parsed(body: Body) -> Json:
    charset = _CHARSET.search(body.content_type)
    if charset is not None and charset[1].lower() not in _PLAIN_CHARSETS:
        raise NotCanonical("in a charset that its reader may take another way")
    if body.media_type == "application/x-www-form-urlencoded":
        if is_json_in_disguise(body.data):
            raise NotCanonical("JSON that is said to be a form")
        return parse_pairs(body.data)
    if is_json(body.media_type):
        parse_json(body.data)  # duplicate keys and the like: two readers could see two things
        try:
            return json.loads(body.data)
        except ValueError as error:  # an integer of thousands of digits
            raise NotCanonical(str(error)) from None
    raise NotCanonical("neither JSON nor a form")


def holds(expression: str, value: Json) -> Json:
    """What the expression says of the value; None also where it fails."""
    try:
        return compiled(expression).search(value)
    except (ValueError, TypeError, ArithmeticError, RecursionError, jmespath.exceptions.JMESPathError):
        return None


def surely_false(expression: str, value: Json) -> bool:
    """Whether it is false because of what is there. A comparison with something that is not there, or is a
    list, is false as well, and says nothing: `env == 'prod'` of a form, whose values are lists."""
    return holds(expression, value) is False and _is_honest(compiled(expression).parsed, value)


def _is_honest(node: Json, value: Json) -> bool:
    """Of what is false: both sides of an `||`, one side of an `&&`. What is no comparison is taken at its
    word, and what stands inside a filter is about its items."""
    children = node["children"]
    match node["type"]:
        case "comparator":
            return _compares(children, value)
        case "or_expression" | "not_expression":
            return all(_is_honest(child, value) for child in children)
        case "and_expression":
            return any(_is_honest(child, value) and not _seen(child, value) for child in children)
        case "pipe":
            left, right = children
            return not _compares_inside(left) and _is_honest(right, _seen(left, value))
        case _:
            return not _compares_inside(node)


def _compares_inside(node: Json) -> bool:
    """Whether a comparison stands somewhere in it, but for the conditions of filters."""
    if node["type"] == "comparator":
        return True
    below = node["children"][:2] if node["type"] == "filter_projection" else node["children"]
    return any(_compares_inside(child) for child in below if isinstance(child, dict))


def _compares(sides: list[Json], value: Json) -> bool:
    """Two values of one kind, none of them nothing; or with a `null` that the rule itself names. Not what
    other comparisons came to."""
    if any(_compares_inside(side) for side in sides):
        return False
    if any(side["type"] == "literal" and side["value"] is None for side in sides):
        return True
    kinds = {_kind(_seen(side, value)) for side in sides}
    return len(kinds) == 1 and None not in kinds


def _seen(node: Json, value: Json) -> Json:
    try:
        return TreeInterpreter().visit(node, value)
    except (ValueError, TypeError, ArithmeticError, RecursionError, jmespath.exceptions.JMESPathError):
        return None


def _kind(value: Json) -> type | None:
    if isinstance(value, bool):
        return bool
    if isinstance(value, int | float):
        return float
    return None if value is None else type(value)


def fill(target: str, document: Document, words: dict[str, str]) -> str | None:
    """A probe's target with its placeholders filled in, percent-encoded; None where one has no single value.
    `words`: what is no argument."""
    filled = []
    rest = target
    while rest:
        text, brace, rest = rest.partition("{")
        filled.append(text)
        if not brace:
            break
        name, _, rest = rest.partition("}")
        value = words[name] if name in words else _scalar(document.value, name)
        if value in (None, "", ".", ".."):  # it would name every call, none, or another place
            return None
        filled.append(quote(value, safe=""))
    return "".join(filled)


def _scalar(node: Json, name: str) -> str | None:
    for part in name.split("."):
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    if isinstance(node, list):  # queries and forms
        node = node[0] if len(node) == 1 else None
    match node:
        case str():
            return None if node.startswith(MARK) else node  # the record does not say what it was
        case bool():
            return "true" if node else "false"
        case int() | float():
            return json.dumps(node)
        case _:
            return None
