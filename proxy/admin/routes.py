"""One table of what can be asked under /_semel/: address, parameters, bodies, what answers, how it can fail.

The API serves from it, checks what arrives against it, and its OpenAPI document is made from it: what is not
in the table does not exist.
"""

from __future__ import annotations

import base64

from proxy import errors
from proxy.admin.decision import Decision, Resolution
from proxy.admin.desk import Body, Desk
from proxy.admin.route import AFTER, COMMON_FAILURES, PREFIX, Asked, Lines, Route, page_size, whole
from proxy.admin.run_routes import RUN_ROUTES
from proxy.admin.run_schemas import RUN_NAME
from proxy.admin.schemas import ID, STATE, Schema
from proxy.admin.views import Json
from proxy.core.intent import State
from proxy.operator import Verdict
from proxy.store.base import Query

__all__ = ["COMMON_FAILURES", "IN_PATH", "PREFIX", "ROUTES", "Asked", "Lines", "Route", "find"]

_ON_ONE_CALL = (errors.NotFound, errors.Unreadable)
_DECIDING = (*_ON_ONE_CALL, errors.StaleVersion, errors.TooLarge, errors.UnsupportedMediaType)


async def _calls(desk: Desk, asked: Asked) -> Json:
    given = dict(asked.query)
    state = given.pop("state", None)
    return await desk.calls(Query(state=None if state is None else State(state), **given))


async def _call(desk: Desk, asked: Asked) -> Json:
    return await desk.call(asked.call_id)


async def _body(desk: Desk, asked: Asked) -> Body:
    return await desk.body(asked.call_id)


async def _resolve(desk: Desk, asked: Asked) -> Json:
    said = asked.body
    text, encoded = said.get("body"), said.get("body_base64")
    body = base64.b64decode(encoded) if encoded is not None else None if text is None else text.encode()
    resolution = Resolution(
        by=asked.by,
        verdict=Verdict(said["as"]),
        reason=said["reason"],
        version=whole(said.get("version")),
        status=whole(said.get("status")),
        body=body,
        content_type=said.get("content_type"),
    )
    return await desk.resolve(asked.call_id, resolution)


def _decision(asked: Asked) -> Decision:
    said = asked.body
    return Decision(by=asked.by, reason=said["reason"], version=whole(said.get("version")))


async def _forget(desk: Desk, asked: Asked) -> Json:
    return await desk.forget(asked.call_id, _decision(asked))


async def _approve(desk: Desk, asked: Asked) -> Json:
    return await desk.approve(asked.call_id, _decision(asked))


async def _deny(desk: Desk, asked: Asked) -> Json:
    return await desk.deny(asked.call_id, _decision(asked))


async def _probe(desk: Desk, asked: Asked) -> Json:
    return await desk.probe(asked.call_id, _decision(asked))


async def _stats(desk: Desk, asked: Asked) -> Json:
    return await desk.stats()


_LIMIT = "Default: 100. A page of large calls holds fewer: it ends where they reach 4 MiB."
_LISTED: dict[str, Schema] = {
    "state": STATE,
    "run": RUN_NAME,
    "tool": {"type": "string", "minLength": 1, "maxLength": 1000},
    "upstream": {"type": "string", "minLength": 1, "maxLength": 200},
    "limit": page_size(_LIMIT),
    "after": AFTER,
}

ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="calls",
        name="listCalls",
        summary="Recorded calls, in the order in which they were first seen, newest first",
        handle=_calls,
        query=_LISTED,
        gives="CallPage",
    ),
    Route(
        method="GET",
        path="calls/{id}",
        name="showCall",
        summary="One call: its record, history, request and answer",
        handle=_call,
        gives="CallDetail",
        fails=_ON_ONE_CALL,
    ),
    Route(
        method="GET",
        path="calls/{id}/body",
        name="downloadBody",
        summary="The recorded answer's body, as it was encoded",
        handle=_body,
        fails=(*_ON_ONE_CALL, errors.AnswerUnavailable),
    ),
    Route(
        method="POST",
        path="calls/{id}/resolve",
        name="resolveCall",
        summary="Settle a call in doubt: it was executed, or it was not",
        handle=_resolve,
        body="Resolve",
        gives="CallDetail",
        fails=(*_DECIDING, errors.NotInDoubt),
    ),
    Route(
        method="POST",
        path="calls/{id}/forget",
        name="forgetCall",
        summary="Let a settled call go live again",
        handle=_forget,
        body="Forget",
        gives="CallDetail",
        fails=(*_DECIDING, errors.NotSettled),
    ),
    Route(
        method="POST",
        path="calls/{id}/approve",
        name="approveCall",
        summary="Permit a call that awaits approval: made again, it goes out once",
        handle=_approve,
        body="Decide",
        gives="CallDetail",
        fails=(*_DECIDING, errors.NotAwaiting),
        needs_operator=True,
    ),
    Route(
        method="POST",
        path="calls/{id}/deny",
        name="denyCall",
        summary="Refuse a call that awaits approval",
        handle=_deny,
        body="Decide",
        gives="CallDetail",
        fails=(*_DECIDING, errors.NotAwaiting),
        needs_operator=True,
    ),
    Route(
        method="POST",
        path="calls/{id}/probe",
        name="probeCall",
        summary="Ask the upstream what became of a call in doubt, by the rule's probe",
        handle=_probe,
        body="Decide",
        gives="CallDetail",
        fails=(*_DECIDING, errors.NotInDoubt, errors.StillInDoubt),
    ),
    *RUN_ROUTES,
    Route(
        method="GET",
        path="stats",
        name="showStats",
        summary="How many calls are in which state, the oldest doubt, sizes; of all tenants together",
        handle=_stats,
        gives="Stats",
    ),
    Route(method="GET", path="openapi.json", name="showApi", summary="This document"),
)

# The parameters of an address, by their name in it.
IN_PATH: dict[str, Schema] = {"id": ID, "run": RUN_NAME}


def find(path: str) -> tuple[dict[str, Route], dict[str, str]]:
    """The routes of an address by method, and the names in it. Raises NotFound."""
    parts = path.removeprefix(PREFIX).split("/")
    found: dict[str, Route] = {}
    names: dict[str, str] = {}
    for route in ROUTES:
        wanted = route.path.split("/")
        if len(wanted) != len(parts):
            continue
        pairs = list(zip(wanted, parts, strict=True))
        if all(want == part or want.startswith("{") for want, part in pairs):
            found[route.method] = route
            names = {want.strip("{}"): part for want, part in pairs if want.startswith("{")}
    if not path.startswith(PREFIX) or not found:
        raise errors.NotFound(f"There is nothing at {path[:100]}; {PREFIX}openapi.json lists what there is.")
    return found, names
