"""Every document that the desk gives or takes, as JSON Schema: one definition for the API, its OpenAPI
document, the checks on what arrives, and `--json` on the command line.

Moments are RFC 3339 texts in UTC with milliseconds, everywhere: people read them in `--json` output and in
logs as they are, they sort as text, and semel's problems have always said `since` that way. A moment that no
calendar has (a damaged record) is null.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from proxy.core.intent import Place, State

Schema: TypeAlias = dict[str, Any]

# Larger numbers do not survive a JavaScript reader.
LARGEST = 2**53 - 1
# An answer that has no body: naming its status says everything about it.
BODILESS = (204, 304)


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def document(*names: str) -> Schema:
    """A schema that stands for itself, for `--json` output: it fits one of the named components."""
    return {"anyOf": [ref(name) for name in names], "components": {"schemas": COMPONENTS}}


def _object(required: Schema, optional: Schema | None = None, about: str = "") -> Schema:
    made: Schema = {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }
    return made | ({"description": about} if about else {})


def _or_null(schema: Schema) -> Schema:
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

CALL = _object(
    {
        "id": ID,
        "run": _or_null(TEXT),
        "attempt": _or_null(TEXT),
        "seq": COUNT,
        "occurrence": COUNT,
        "upstream": TEXT,
        "rule": TEXT,
        "tool": TEXT,
        "safe": {"type": "boolean"},
        "args": _or_null(
            {
                "type": "object",
                "description": "What the call was asked with: `path`, `query`, `body` as far as they name it."
                " `body_digest`, `body_parts`, `digest` stand for what is not kept in words; `include` holds "
                "the arguments that the rule chose. Numbers beyond what JSON readers hold are texts. null: "
                "the record of it cannot be read.",
            }
        ),
        "state": STATE,
        "created_at": _or_null(MOMENT),
        "sent_at": _or_null(MOMENT),
        "settled_at": _or_null(MOMENT),
        "expires_at": _or_null(
            MOMENT
            | {
                "description": "In the past: its time is over or it was forgotten, and the next identical "
                "call is sent. null: kept until it is forgotten, or not settled yet."
            }
        ),
        "sends": COUNT,
        "status_code": _or_null({"type": "integer"}),
        "size": _or_null(COUNT),
        "replays": COUNT | {"description": "In all, also of answers that were forgotten since."},
        "cost_usd": {"type": "null", "description": "Not counted yet."},
        "fence": COUNT,
        "version": {"type": "integer", "minimum": 1},
    }
)
UNREADABLE = _object(
    {"id": ID, "why": TEXT}, about="A call that is there and of which the store can only say why not."
)
CALL_PAGE = _object(
    {
        "calls": {"type": "array", "items": ref("Call")},
        "next": _or_null({"type": "integer"}),
        "unreadable": {"type": "array", "items": ref("Unreadable")},
    },
    about="In the order in which calls were first seen, newest first; one that is sent anew after it was "
    "forgotten keeps its place. `next` is what `after` takes for the page that follows; null on the last. A "
    "page may hold fewer than `limit`: it ends where its calls reach 4 MiB.",
)
EVENT = _object(
    {
        "at": _or_null(MOMENT),
        "actor": TEXT,
        "event": TEXT,
        "from": _or_null(STATE),
        "to": _or_null(STATE),
        "why": TEXT,
        "fence": COUNT,
    }
)
REQUEST = _object(
    {"method": TEXT, "target": TEXT, "headers": HEADERS, "body_size": _or_null(COUNT)},
    about="As it was sent, without credentials; values of query parameters and path segments whose names "
    "sound secret are replaced. `body_size` is null for a body that is kept apart.",
)
DOUBT = _object(
    {"since": _or_null(MOMENT), "reason": TEXT, "upstream_status": _or_null(COUNT), "excerpt": TEXT}
)
ANSWER = _object(
    {
        "status_code": _or_null({"type": "integer"}),
        "headers": HEADERS,
        "size": COUNT,
        "place": {"type": "string", "enum": [place.value for place in Place]},
        "recorded_at": _or_null(MOMENT),
        "unavailable": _or_null(TEXT),
    },
    about="`unavailable` says why it cannot be given; null where it can.",
)
CALL_DETAIL = _object(
    {
        "call": ref("Call"),
        "events": {"type": "array", "items": ref("Event")},
        "request": _or_null(ref("Request")),
        "doubt": _or_null(ref("Doubt")),
        "answer": _or_null(ref("Answer")),
        "damage": {"type": "array", "items": TEXT, "description": "What of this call cannot be read."},
    }
)
_DECISION: Schema = {"version": VERSION}
_EXECUTED: Schema = {"as": {"const": "executed"}, "reason": REASON}
RESOLVE: Schema = {
    "oneOf": [
        _object(
            {"as": {"const": "not_executed"}, "reason": REASON},
            _DECISION,
            about="It did not happen: the next identical call is sent.",
        ),
        _object(
            _EXECUTED,
            _DECISION | {"status": STATUS},
            about="It happened, and what was answered is not known: identical calls get `answer-unavailable` "
            "and nothing is sent again. With status 204 or 304 that is the whole answer, and it is replayed.",
        ),
        _object(
            _EXECUTED | {"body": TEXT},
            _DECISION | {"status": STATUS_WITH_BODY, "content_type": MEDIA_TYPE},
            about="It happened, and this was the answer: identical calls get it.",
        ),
        _object(
            _EXECUTED | {"body_base64": BASE64},
            _DECISION | {"status": STATUS_WITH_BODY, "content_type": MEDIA_TYPE},
            about="The same for a body that is not text.",
        ),
    ]
}
FORGET = _object(
    {"reason": REASON}, _DECISION, about="The next identical call is sent as if it were the first."
)
STATS = _object(
    {
        "store": TEXT,
        "calls": _object({state.value: COUNT for state in State}),
        "oldest_in_doubt_at": _or_null(MOMENT),
        "oldest_in_doubt_seconds": _or_null({"type": "number", "minimum": 0}),
        "store_bytes": COUNT,
        "cache_evictions": _or_null(COUNT),
    },
    about="Of the whole store: the calls of all tenants are counted, whoever asks. `cache_evictions` are "
    "counted by each process for itself: null where no proxy was asked.",
)
PROBLEM: Schema = {
    "type": "object",
    "description": "RFC 9457.",
    "properties": {
        "type": {"type": "string", "pattern": "^urn:semel:[a-z-]+$"},
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "call": ID,
        "state": STATE,
        "version": {"type": "integer"},
    },
    "required": ["type", "title", "status", "detail"],
}
COMPONENTS: dict[str, Schema] = {
    "Call": CALL,
    "Unreadable": UNREADABLE,
    "CallPage": CALL_PAGE,
    "Event": EVENT,
    "Request": REQUEST,
    "Doubt": DOUBT,
    "Answer": ANSWER,
    "CallDetail": CALL_DETAIL,
    "Resolve": RESOLVE,
    "Forget": FORGET,
    "Stats": STATS,
    "Problem": PROBLEM,
}
