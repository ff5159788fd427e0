"""The arguments of a call as one document, for a rule's expressions and placeholders.

`path`, `query` and `body` are there by name; beside them the body's own fields, or the query's where there is
no parsed body, as an unprefixed name means everywhere in policies. What has no single meaning is not there,
and whoever reads the document must be content with that: see `Document.whole`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

import jmespath
from jmespath.visitor import TreeInterpreter

from proxy.core.canonical import (
    FORM,
    Body,
    NotCanonical,
    dump,
    is_json,
    is_json_in_disguise,
    parse_json,
    parse_pairs,
)
from proxy.core.outcome import compiled
from proxy.core.redaction import MARK

Json: TypeAlias = Any


# What JSON and forms are written in; in another one the same bytes may mean something else.
_CHARSET = re.compile(rb"charset(\*?)\s*=\s*\"?([^;\"\s]*)", re.IGNORECASE)
_PLAIN_CHARSETS = (b"utf-8", b"utf8", b"us-ascii", b"ascii")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# With anything else in it, readers differ in where the type ends.
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+")
# Of more values than this no expression is asked: it may look at each of them, and takes its time.
MOST_VALUES = 20_000


class Document(NamedTuple):
    """`whole`: everything that was sent is in it, and it has one meaning. An opaque body may hold anything.
    `repeated`: names of a form or query that stand there more than once; readers differ in which one counts.
    `small`: an expression may be asked about it."""

    value: dict[str, Json]
    whole: bool
    repeated: frozenset[str] = frozenset()
    small: bool = True


def document_of(*, path: dict[str, str], query: bytes, body: Body) -> Document:
    whole = True
    fields: Json = {}
    repeated: set[str] = set()
    sources: dict[str, Json] = {"path": dict(path), "query": {}, "body": None}
    try:
        sources["query"] = fields = parse_pairs(query)
        repeated |= _repeated(fields)
    except NotCanonical:
        whole = False
    if body.data:
        try:
            sources["body"] = fields = _parsed(body)
            if body.media_type == FORM:
                repeated |= _repeated(fields)
        except NotCanonical:
            whole = False
    value = {**(fields if isinstance(fields, dict) else {}), **sources}
    return Document(value, whole, frozenset(repeated), _is_small([sources["query"], sources["body"]]))


def _repeated(pairs: dict[str, list[str]]) -> set[str]:
    """But for those whose name says that they are a list."""
    return {name for name, values in pairs.items() if len(values) > 1 and not name.endswith("[]")}


def _is_small(values: list[Json]) -> bool:
    """Counted without recursion, and only as far as it matters."""
    count = 0
    while values and count <= MOST_VALUES:
        value = values.pop()
        inside: Collection[Json] = ()
        if isinstance(value, dict):
            inside = value.values()
        elif isinstance(value, list):
            inside = value
        count += len(inside)
        if count <= MOST_VALUES:
            values.extend(inside)
    return count <= MOST_VALUES


def _parsed(body: Body) -> Json:
    said = _CHARSET.findall(body.content_type)
    if any(extended or name.lower() not in _PLAIN_CHARSETS for extended, name in said):
        raise NotCanonical("in a charset that its reader may take another way")
    if _MEDIA_TYPE.fullmatch(body.media_type) is None:
        raise NotCanonical("of a type that its reader may take another way")
    if body.media_type == FORM:
        if is_json_in_disguise(body.data):
            raise NotCanonical("JSON that is said to be a form")
        return parse_pairs(body.data)
    if is_json(body.media_type):
        value = parse_json(body.data)  # duplicate keys and the like: two readers could see two things
        if _SURROGATE.search(body.data):
            dump(value)  # raises for half of a pair, which readers keep, replace or refuse
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


def verdict_on(expression: str, document: Document) -> bool | None:
    """Whether it is true, or surely false: because of what is there. A comparison with something that is not
    there, or is a list, is false as well, and says nothing: `env == 'prod'` of a form, whose values are
    lists. None: that cannot be said."""
    if not document.whole or not document.small:
        return None
    said = holds(expression, document.value)
    if said is not False:
        return True if said is True else None
    tree = compiled(expression).parsed
    is_sure = document.repeated.isdisjoint(_fields_of(tree)) and _is_honest(tree, document.value)
    return False if is_sure else None


def _fields_of(node: Json) -> Iterator[str]:
    if node["type"] == "field":
        yield node["value"]
    for child in node["children"]:
        if isinstance(child, dict):
            yield from _fields_of(child)


def _is_honest(node: Json, value: Json) -> bool:
    """Of what is false: both sides of an `||`, one side of an `&&`. What neither compares nor asks a function
    is taken at its word, and what stands inside a filter is about its items."""
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
        case "function_expression":
            return not _compares_inside(node) and _is_asked_of_something(node, value)
        case _:
            return not _compares_inside(node)


def _is_asked_of_something(node: Json, value: Json) -> bool:
    """Nothing of what a function is asked about is missing. What is looked for in a list is of a kind that
    it has, not a list itself as in a form; and a list that came with the request may be a text to its reader,
    as in a form too."""
    given = [_seen(child, value) for child in node["children"] if child["type"] != "expref"]
    if any(_kind(one) is None for one in given):
        return False
    if node["value"] != "contains" or not isinstance(given[0], list):
        return True
    among, wanted = given
    as_text = node["children"][0]["type"] != "literal" and isinstance(wanted, str)
    if as_text and any(isinstance(one, str) and wanted in one for one in among):
        return False
    return _kind(wanted) in {_kind(one) for one in among}


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
        return None if value != value else float  # not a number: less than nothing, and more
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
