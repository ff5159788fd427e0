"""What arrives, held against the schema that describes it: its mistakes, with the name of what is wrong.

The part of JSON Schema that schemas.py uses for what is taken, and no more: a keyword that is not known here
is an error of ours, found by the first request. However much arrives, the work stays small: there is an end
to the mistakes that are told, and no regular expression runs over a long text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from proxy.admin.schemas import COMPONENTS, Schema
from proxy.errors import BadRequest
from proxy.policy_file.mistakes import suggestion

_TYPES: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    # JSON has one kind of number: 3.0 is as whole as 3.
    "integer": lambda value: (
        isinstance(value, (int, float)) and not isinstance(value, bool) and value % 1 == 0
    ),
}
# Whoever makes so many is not helped by more of them.
MOST_MISTAKES = 20
# Names that are not known are told cut: nothing of ours is longer.
LONGEST_NAME = 64
_ARTICLES = {
    "object": "an object",
    "string": "a text",
    "boolean": "true or false",
    "integer": "a whole number",
}


def _type(wanted: str, value: object) -> str:
    return "" if _TYPES[wanted](value) else f"must be {_ARTICLES[wanted]}"


def _pattern(wanted: str, value: str) -> str:
    # `$` means the very end in JSON Schema; in Python it also stands before a last line break.
    return "" if re.search(wanted.replace("$", r"\Z"), value) else f"does not fit {wanted}"


def _encoded(_: str, value: str) -> str:
    """Decoded, which is hundreds of times faster than a pattern."""
    try:
        base64.b64decode(value if len(value) % 4 == 0 else "=", validate=True)
    except ValueError:
        return "is not base64"
    return ""


# Each says what is wrong, or nothing.
_KEYWORDS: dict[str, Callable[[Any, Any], str]] = {
    "type": _type,
    "const": lambda wanted, value: "" if value == wanted else f"must be {wanted!r}",
    "enum": lambda wanted, value: "" if value in wanted else f"must be one of {', '.join(map(str, wanted))}",
    "not": lambda schema, value: "" if mistakes(schema, value) else f"may not be {value!r} here",
    "minimum": lambda least, value: "" if value >= least else f"must be at least {least}",
    "maximum": lambda most, value: "" if value <= most else f"must be at most {most}",
    "minLength": lambda least, value: "" if len(value) >= least else "must not be empty",
    "maxLength": lambda most, value: "" if len(value) <= most else f"must not be longer than {most}",
    "pattern": _pattern,
    "contentEncoding": _encoded,
}
_SAY_NOTHING = frozenset({"description", "properties", "required", "additionalProperties"})


def mistakes(schema: Schema, value: Any, name: str = "") -> list[str]:  # noqa: ANN401 (whatever arrived)
    if "$ref" in schema:
        return mistakes(COMPONENTS[schema["$ref"].rpartition("/")[2]], value, name)
    if "oneOf" in schema:
        return mistakes(min(schema["oneOf"], key=lambda shape: _unlike(shape, value)), value, name)
    silent = _SAY_NOTHING | {"pattern"} if "contentEncoding" in schema else _SAY_NOTHING
    for keyword, wanted in schema.items():
        if keyword not in silent and (wrong := _KEYWORDS[keyword](wanted, value)):
            return [f"{name} {wrong}".strip()]
    return _members(schema, value) if schema.get("type") == "object" else []


def _unlike(shape: Schema, value: object) -> int:
    """How far a value is from a shape by the names of its members, and by those that say which it is: the
    nearest one was probably meant."""
    if not isinstance(value, dict):
        return 0
    known: dict[str, Schema] = shape["properties"]
    fixed = {name: schema["const"] for name, schema in known.items() if "const" in schema}
    missing = sum(name not in value for name in shape["required"])
    unknown = len(value) - sum(name in value for name in known)
    other = sum(bool(value.get(name, said) != said) for name, said in fixed.items())
    return missing + unknown + other


def _members(schema: Schema, value: dict[str, Any]) -> list[str]:
    known: dict[str, Schema] = schema["properties"]
    found = [f"{name!r} is missing" for name in schema["required"] if name not in value]
    for name, member in value.items():
        if name in known:
            found += mistakes(known[name], member, repr(name))
        else:
            name = name[:LONGEST_NAME]
            found.append(f"{name!r} is not known here{suggestion(name, list(known))}")
        if len(found) >= MOST_MISTAKES:
            return [*found, "and perhaps more"]
    return found


def check(schema: Schema, value: object, what: str) -> None:
    if found := mistakes(schema, value):
        told = f"{what}: {'; '.join(found)}"
        raise BadRequest(told if told.endswith("?") else f"{told}.")
