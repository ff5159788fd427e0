"""What documents are made of: the words that every schema of the desk uses."""

from __future__ import annotations

from typing import Any, TypeAlias

from proxy.core.intent import State

Schema: TypeAlias = dict[str, Any]

# Larger numbers do not survive a JavaScript reader.
LARGEST = 2**53 - 1
# An answer that has no body: naming its status says everything about it.
BODILESS = (204, 304)


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(required: Schema, optional: Schema | None = None, about: str = "") -> Schema:
    made: Schema = {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }
    return made | ({"description": about} if about else {})


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
MOMENT: Schema = {"type": "string", "format": "date-time"}
ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "32 lower-case hex digits."}
STATE: Schema = {"type": "string", "enum": [state.value for state in State]}
VERSION: Schema = {
    "type": "integer",
    "minimum": 1,
    "maximum": LARGEST,
    "description": "The version of the call that the decision was made on; another one is refused with 409. "
    "Left out: whatever stands there is decided on.",
}
# Something to read, in one line: no control characters, and not only what a reader takes for a space.
REASON: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 2000,
    "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u00a0\ufeff]"
    r"[^\u0000-\u001f\u007f-\u009f]*$",
    "description": "Kept in the call's history.",
}
STATUS: Schema = {"type": "integer", "minimum": 200, "maximum": 599}
STATUS_WITH_BODY: Schema = STATUS | {"not": {"enum": list(BODILESS)}}
MEDIA_TYPE: Schema = {
    "type": "string",
    "maxLength": 200,
    "pattern": "^[A-Za-z0-9!#&^_.+-]+/[A-Za-z0-9!#&^_.+-]+(; ?[!-:<-~]+)*$",
    "description": "The answer's Content-Type. Left out: application/json for a JSON object or array, "
    "text/plain; charset=utf-8 for other text, application/octet-stream for anything else.",
}
BASE64: Schema = {
    "type": "string",
    "contentEncoding": "base64",
    "pattern": "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
}
HEADERS: Schema = {
    "type": "array",
    "items": {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2},
    "description": "Name and value, in order.",
}
USD: Schema = {
    "type": "number",
    "minimum": 0,
    "description": "What the answer cost, where the rule says how to know it.",
}
