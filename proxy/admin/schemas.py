"""Every document that the desk gives or takes, as JSON Schema: one definition for the API, its OpenAPI
document, the checks on what arrives, and `--json` on the command line.

Moments are RFC 3339 texts in UTC with milliseconds, everywhere: people read them in `--json` output and in
logs as they are, they sort as text, and semel's problems have always said `since` that way. A moment that no
calendar has (a damaged record) is null.
"""

from __future__ import annotations

from proxy.admin.run_schemas import RUN_COMPONENTS
from proxy.admin.shapes import (
    BASE64,
    BODILESS,
    COUNT,
    HEADERS,
    ID,
    LARGEST,
    MEDIA_TYPE,
    MOMENT,
    REASON,
    STATE,
    STATUS,
    STATUS_WITH_BODY,
    TEXT,
    USD,
    VERSION,
    Schema,
    object_of,
    or_null,
    ref,
)
from proxy.core.clauses import OnDoubt
from proxy.core.intent import Place, State

__all__ = [
    "BASE64",
    "BODILESS",
    "COMPONENTS",
    "ID",
    "LARGEST",
    "MEDIA_TYPE",
    "REASON",
    "STATE",
    "Schema",
    "document",
    "ref",
]


def document(*names: str) -> Schema:
    """A schema that stands for itself, for `--json` output: it fits one of the named components."""
    return {"anyOf": [ref(name) for name in names], "components": {"schemas": COMPONENTS}}


CALL = object_of(
    {
        "id": ID,
        "run": or_null(TEXT),
        "attempt": or_null(TEXT),
        "seq": COUNT,
        "occurrence": COUNT,
        "upstream": TEXT,
        "rule": TEXT,
        "tool": TEXT,
        "safe": {"type": "boolean"},
        "args": or_null(
            {
                "type": "object",
                "description": "What the call was asked with: `path`, `query`, `body` as far as they name it."
                " `body_digest`, `body_parts`, `digest` stand for what is not kept in words; `include` holds "
                "the arguments that the rule chose. Numbers beyond what JSON readers hold are texts. null: "
                "the record of it cannot be read.",
            }
        ),
        "state": STATE,
        "created_at": or_null(MOMENT),
        "sent_at": or_null(MOMENT),
        "settled_at": or_null(MOMENT),
        "expires_at": or_null(
            MOMENT
            | {
                "description": "In the past: its time is over or it was forgotten, and the next identical "
                "call is sent. null: kept until it is forgotten, or not settled yet."
            }
        ),
        "sends": COUNT,
        "status_code": or_null({"type": "integer"}),
        "size": or_null(COUNT),
        "replays": COUNT | {"description": "In all, also of answers that were forgotten since."},
        "cost_usd": or_null(USD),
        "fence": COUNT,
        "version": {"type": "integer", "minimum": 1},
    }
)
UNREADABLE = object_of(
    {"id": ID, "why": TEXT}, about="A call that is there and of which the store can only say why not."
)
CALL_PAGE = object_of(
    {
        "calls": {"type": "array", "items": ref("Call")},
        "next": or_null({"type": "integer"}),
        "unreadable": {"type": "array", "items": ref("Unreadable")},
    },
    about="In the order in which calls were first seen, newest first; one that is sent anew after it was "
    "forgotten keeps its place. `next` is what `after` takes for the page that follows; null on the last. A "
    "page may hold fewer than `limit`: it ends where its calls reach 4 MiB.",
)
EVENT = object_of(
    {
        "at": or_null(MOMENT),
        "actor": TEXT,
        "event": TEXT,
        "from": or_null(STATE),
        "to": or_null(STATE),
        "why": TEXT,
        "fence": COUNT,
    }
)
REQUEST = object_of(
    {
        "method": TEXT,
        "target": TEXT,
        "headers": HEADERS,
        "body_size": or_null(COUNT),
        "body": or_null(TEXT),
    },
    about="As it was sent, without credentials; values of query parameters and path segments whose names "
    "sound secret are replaced. `body_size` is null for a body that is kept apart. `body` is "
    "null where it is no text, or longer than 1 MiB.",
)
DOUBT = object_of(
    {"since": or_null(MOMENT), "reason": TEXT, "upstream_status": or_null(COUNT), "excerpt": TEXT}
)
ANSWER = object_of(
    {
        "status_code": or_null({"type": "integer"}),
        "headers": HEADERS,
        "size": COUNT,
        "place": {"type": "string", "enum": [place.value for place in Place]},
        "recorded_at": or_null(MOMENT),
        "unavailable": or_null(TEXT),
    },
    about="`unavailable` says why it cannot be given; null where it can.",
)
CALL_DETAIL = object_of(
    {
        "call": ref("Call"),
        "events": {"type": "array", "items": ref("Event")},
        "request": or_null(ref("Request")),
        "doubt": or_null(ref("Doubt")),
        "answer": or_null(ref("Answer")),
        "damage": {"type": "array", "items": TEXT, "description": "What of this call cannot be read."},
        "settled_by": or_null(
            {
                "type": "string",
                "enum": [way.value for way in OnDoubt],
                "description": "What the rule does about doubt; null where the rule is not known.",
            }
        ),
    }
)
_DECISION: Schema = {"version": VERSION}
_EXECUTED: Schema = {"as": {"const": "executed"}, "reason": REASON}
RESOLVE: Schema = {
    "oneOf": [
        object_of(
            {"as": {"const": "not_executed"}, "reason": REASON},
            _DECISION,
            about="It did not happen: the next identical call is sent.",
        ),
        object_of(
            _EXECUTED,
            _DECISION | {"status": STATUS},
            about="It happened, and what was answered is not known: identical calls get `answer-unavailable` "
            "and nothing is sent again. With status 204 or 304 that is the whole answer, and it is replayed.",
        ),
        object_of(
            _EXECUTED | {"body": TEXT},
            _DECISION | {"status": STATUS_WITH_BODY, "content_type": MEDIA_TYPE},
            about="It happened, and this was the answer: identical calls get it.",
        ),
        object_of(
            _EXECUTED | {"body_base64": BASE64},
            _DECISION | {"status": STATUS_WITH_BODY, "content_type": MEDIA_TYPE},
            about="The same for a body that is not text.",
        ),
    ]
}
FORGET = object_of(
    {"reason": REASON}, _DECISION, about="The next identical call is sent as if it were the first."
)
DECIDE = object_of({"reason": REASON}, _DECISION)
STATS = object_of(
    {
        "store": TEXT,
        "calls": object_of({state.value: COUNT for state in State}),
        "oldest_in_doubt_at": or_null(MOMENT),
        "oldest_in_doubt_seconds": or_null({"type": "number", "minimum": 0}),
        "store_bytes": COUNT,
        "cache_evictions": or_null(COUNT),
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
        "message": TEXT,
        "call": ID,
        "state": STATE,
        "version": {"type": "integer"},
        "run": TEXT,
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
    "Decide": DECIDE,
    "Stats": STATS,
    "Problem": PROBLEM,
    **RUN_COMPONENTS,
}
