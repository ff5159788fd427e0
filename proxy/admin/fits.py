"""Whether a document that another process gave has the shape that schemas.py describes.

The part of JSON Schema that is used there for what is given, and no more. Unlike checked.py it says only yes
or no: a document that does not fit was not written by this version of semel, and there is nobody to correct
it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from proxy.admin.schemas import COMPONENTS, Schema


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_moment(value: object) -> bool:
    try:
        return datetime.fromisoformat(str(value)).tzinfo is not None
    except ValueError:
        return False


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}

# `type` stands first in every schema, so that what follows may rely on it.
_KEYWORDS: dict[str, Callable[[Any, Any], bool]] = {
    "type": lambda wanted, value: _TYPES[wanted](value),
    "$ref": lambda wanted, value: fits(COMPONENTS[wanted.rpartition("/")[2]], value),
    "anyOf": lambda shapes, value: any(fits(shape, value) for shape in shapes),
    "enum": lambda wanted, value: value in wanted,
    "pattern": lambda wanted, value: re.search(wanted.replace("$", r"\Z"), value) is not None,
    "format": lambda _, value: _is_moment(value),
    "minimum": lambda least, value: value >= least,
    "maximum": lambda most, value: value <= most,
    "minItems": lambda least, value: len(value) >= least,
    "maxItems": lambda most, value: len(value) <= most,
    "items": lambda shape, value: all(fits(shape, one) for one in value),
    "required": lambda names, value: all(name in value for name in names),
    "properties": lambda known, value: all(
        fits(shape, value[name]) for name, shape in known.items() if name in value
    ),
}


def fits(schema: Schema, value: Any) -> bool:  # noqa: ANN401 (whatever arrived)
    if schema.get("additionalProperties") is False and not _all_known(schema, value):
        return False
    return all(_KEYWORDS[word](wanted, value) for word, wanted in schema.items() if word in _KEYWORDS)


def _all_known(schema: Schema, value: object) -> bool:
    return not isinstance(value, dict) or value.keys() <= schema["properties"].keys()
