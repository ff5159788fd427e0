"""The documents about runs, as JSON Schema; schemas.py has those about calls, and puts them together."""

from __future__ import annotations

from proxy.admin.shapes import (
    COUNT,
    ID,
    LARGEST,
    MOMENT,
    REASON,
    STATE,
    TEXT,
    USD,
    Schema,
    object_of,
    or_null,
    ref,
)
from proxy.core.run_record import RunState

RUN_NAME: Schema = {"type": "string", "pattern": r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$"}
ATTEMPT_NAME: Schema = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}
RUN_STATE: Schema = {"type": "string", "enum": [state.value for state in RunState]}
WHY: Schema = REASON | {"description": "Kept in the run's history."}
_SECONDS: Schema = {"type": "number", "minimum": 0}
_IDS: Schema = {"type": "array", "items": ID}
_TEXTS: Schema = {"type": "array", "items": TEXT}
_DIVERGED: Schema = COUNT | {"description": "How often a call was held because it was not in the record."}

PARENT = object_of(
    {"run": TEXT, "at": COUNT, "resend": {"type": "boolean"}},
    about="Where a fork comes from: it has the answers of that run up to step `at`. `resend`: the calls with "
    "effects after that step are not taken over.",
)
_ABOUT_A_RUN: Schema = {
    "run": RUN_NAME,
    "tenant": TEXT,
    "state": RUN_STATE
    | {
        "description": "`complete`: the agent ended well. `expired`: its retention is over, only the name is "
        "left and is refused."
    },
    "created_at": or_null(MOMENT),
    "active_at": or_null(MOMENT),
    "version": {"type": "integer", "minimum": 1},
    "last_seq": COUNT | {"description": "The number of the latest step: the highest that a fork can name."},
    "parent": or_null(ref("Parent")),
}
RUN = object_of(
    _ABOUT_A_RUN | {"attempts": COUNT | {"description": "How many."}, "latest_attempt": or_null(TEXT)},
    {"diverged": _DIVERGED | {"description": f"{_DIVERGED['description']} In lists only."}},
    about="A run without its steps.",
)
RUN_PAGE = object_of(
    {"runs": {"type": "array", "items": ref("Run")}, "next": or_null({"type": "integer"})},
    about="In the order in which runs were first seen, newest first. `next` is what `after` takes for the "
    "page that follows; null on the last.",
)
ATTEMPT = object_of(
    {
        "name": TEXT,
        "first_at": or_null(MOMENT),
        "last_at": or_null(MOMENT | {"description": "When it was last served; null: never."}),
        "replayed": COUNT,
        "executed": COUNT,
        "joined": COUNT,
        "refused": COUNT,
    },
    about="One start of the agent, and how often it was served how. An empty name: without an attempt.",
)
RECEIVED = object_of(
    {"attempt": TEXT, "problem": TEXT},
    about="A problem that an attempt was given for this call, and went on knowing.",
)
STEP = object_of(
    {
        "seq": COUNT,
        "call": ID,
        "run": TEXT,
        "inherited": {"type": "boolean", "description": "A row of the run that this one was forked from."},
        "occurrence": COUNT,
        "upstream": TEXT,
        "rule": TEXT,
        "tool": TEXT,
        "safe": {"type": "boolean"},
        "state": or_null(STATE | {"description": "null: forgotten, only its number stays."}),
        "status_code": or_null({"type": "integer"}),
        "size": COUNT,
        "attempt": TEXT | {"description": "That claimed it last."},
        "asked_by": _TEXTS | {"description": "The attempts of this run that have asked it, in their order."},
        "uses": COUNT,
        "cost_usd": or_null(USD),
        "created_at": or_null(MOMENT),
        "settled_at": or_null(MOMENT),
        "seconds": or_null(_SECONDS | {"description": "From sending to the recorded answer."}),
        "age": or_null(_SECONDS | {"description": "Since the answer was recorded."}),
        "retired": {"type": "boolean", "description": "By `allow`: it causes no divergence any more."},
        "received": {"type": "array", "items": ref("Received")},
    }
)
RUN_EVENT = object_of({"at": or_null(MOMENT), "actor": TEXT, "event": TEXT, "why": TEXT})
RUN_DETAIL = object_of(
    _ABOUT_A_RUN
    | {
        "attempts": {"type": "array", "items": ref("Attempt")},
        "steps": {"type": "array", "items": ref("Step")},
        "in_doubt": _IDS,
        "awaiting_approval": _IDS,
        "diverged": _DIVERGED,
        "passed": _TEXTS | {"description": "Kinds of calls that went by without a record."},
        "unlisted": _TEXTS | {"description": "Hosts that no policy names, recorded by the default rules."},
        "spent_usd": or_null(USD | {"description": "By this run's own calls. null: no price is known."}),
        "saved_usd": or_null(
            USD | {"description": "By what was given from the record. null: no price of it is known."}
        ),
        "saved_seconds": or_null(
            _SECONDS | {"description": "What the replayed calls took when they were made. null: not known."}
        ),
        "events": {"type": "array", "items": ref("RunEvent")},
    },
    about="A run with its steps in order of `seq`, the order of claims. A fork shows what it inherits too.",
)
FORK = object_of(
    {
        "at": COUNT | {"maximum": LARGEST, "description": "Up to this step the fork is given the record."},
        "as": RUN_NAME,
        "reason": WHY,
    },
    {"resend": {"type": "boolean", "description": "Make the calls with effects after `at` again."}},
    about="A new run that begins with what this one was given. Calls with effects are never made twice, "
    "unless `resend` says so for those after `at`.",
)
ALLOW = object_of(
    {"reason": WHY},
    about="Retire the calls with effects that the latest attempt has not asked: it may leave the record.",
)
ALLOWED = object_of(
    {"run": RUN_NAME, "attempt": or_null(TEXT), "retired": {"type": "array", "items": ref("Retired")}},
    about="`attempt` is the latest one, on whose behalf the calls were retired.",
)
RETIRED = object_of({"call": ID, "seq": COUNT, "tool": TEXT, "upstream": TEXT, "state": or_null(STATE)})
COMPLETE = object_of({}, {"attempt": ATTEMPT_NAME}, about="The agent ended well.")
EXPORTED = {
    "type": "string",
    "description": "JSON Lines. The first has `kind` `run` and the run's members; every other one has `kind` "
    "`step`, the step's members, `args`, `request` and `answer`. A body is `body` (text) or `body_base64`, "
    "without its Content-Encoding; `left_out` says why one is missing.",
}

RUN_COMPONENTS: dict[str, Schema] = {
    "Run": RUN,
    "Parent": PARENT,
    "RunPage": RUN_PAGE,
    "Attempt": ATTEMPT,
    "Received": RECEIVED,
    "Step": STEP,
    "RunEvent": RUN_EVENT,
    "RunDetail": RUN_DETAIL,
    "Fork": FORK,
    "Allow": ALLOW,
    "Allowed": ALLOWED,
    "Retired": RETIRED,
    "Complete": COMPLETE,
    "Export": EXPORTED,
}
