"""One table of what can be asked under /_semel/: address, parameters, bodies, what answers, how it can fail.

The API serves from it, checks what arrives against it, and its OpenAPI document is made from it: what is not
in the table does not exist.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from proxy import errors
from proxy.admin.desk import Body, Decision, Desk, Resolution
from proxy.admin.schemas import ID, LARGEST, STATE, Schema
from proxy.admin.views import Json
from proxy.core.intent import State
from proxy.operator import Verdict
from proxy.store.base import Query

PREFIX = "/_semel/"
PAGE_SIZE, LARGEST_PAGE = 100, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that fits its route: the id of the address, the query's values, the body. `by`: who asks."""

    call_id: str = ""
    query: Mapping[str, Any]
    body: Json
    by: str


Handle: TypeAlias = Callable[[Desk, Asked], Awaitable[Json | Body]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    path: str  # behind PREFIX; `{id}` stands for a call's id
    name: str  # the OpenAPI document's operationId
    summary: str
    handle: Handle | None = None  # None: the OpenAPI document itself
    query: Mapping[str, Schema] | None = None
    body: str = ""  # a component of schemas.py
    gives: str = ""  # a component; empty: bytes
    fails: tuple[type[errors.Refusal], ...] = ()  # beside what every route can say


# What every address can say, whatever it does.
COMMON_FAILURES: tuple[type[errors.Refusal], ...] = (
    errors.BadRequest,
    errors.Unauthorized,
    errors.Forbidden,
    errors.CrossSite,
    errors.Misdirected,
    errors.HeadersTooLarge,
    errors.StoreUnavailable,
)
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
        version=_whole(said.get("version")),
        status=_whole(said.get("status")),
        body=body,
        content_type=said.get("content_type"),
    )
    return await desk.resolve(asked.call_id, resolution)


async def _forget(desk: Desk, asked: Asked) -> Json:
    said = asked.body
    decision = Decision(by=asked.by, reason=said["reason"], version=_whole(said.get("version")))
    return await desk.forget(asked.call_id, decision)


async def _stats(desk: Desk, asked: Asked) -> Json:
    return await desk.stats()


def _whole(number: float | None) -> int | None:
    """3.0 is a whole number in JSON."""
    return None if number is None else int(number)


_LIMIT = "Default: 100. A page of large calls holds fewer: it ends where they reach 4 MiB."
_LISTED: dict[str, Schema] = {
    "state": STATE,
    "run": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    "tool": {"type": "string", "minLength": 1, "maxLength": 1000},
    "upstream": {"type": "string", "minLength": 1, "maxLength": 200},
    "limit": {"type": "integer", "minimum": 1, "maximum": LARGEST_PAGE, "description": _LIMIT},
    "after": {
        "type": "integer",
        "minimum": 0,
        "maximum": LARGEST,
        "description": "`next` of the page before.",
    },
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
IN_PATH: dict[str, Schema] = {"id": ID}


def find(path: str) -> tuple[dict[str, Route], str]:
    """The routes of an address by method, and the call's id in it. Raises NotFound."""
    parts = path.removeprefix(PREFIX).split("/")
    found: dict[str, Route] = {}
    call_id = ""
    for route in ROUTES:
        wanted = route.path.split("/")
        if len(wanted) != len(parts):
            continue
        if all(want in ("{id}", part) for want, part in zip(wanted, parts, strict=True)):
            found[route.method] = route
            call_id = parts[wanted.index("{id}")] if "{id}" in wanted else ""
    if not path.startswith(PREFIX) or not found:
        raise errors.NotFound(f"There is nothing at {path[:100]}; {PREFIX}openapi.json lists what there is.")
    return found, call_id
