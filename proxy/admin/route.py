"""What a route is: an address, what it takes, what answers, how it can fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from proxy import errors
from proxy.admin.desk import Body, Desk
from proxy.admin.shapes import LARGEST, Schema
from proxy.admin.views import Json

PREFIX = "/_semel/"
PAGE_SIZE, LARGEST_PAGE = 100, 1000


class Lines(NamedTuple):
    """JSON Lines, as they come."""

    parts: AsyncIterator[bytes]
    name: str  # of the file that a browser would make of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that fits its route: the names in the address, the query's values, the body. `by`: who."""

    call_id: str = ""
    run: str = ""
    query: Mapping[str, Any]
    body: Json
    by: str


Handle: TypeAlias = Callable[[Desk, Asked], Awaitable[Json | Body | Lines]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    path: str  # behind PREFIX; `{id}` stands for a call's id, `{run}` for a run's name
    name: str  # the OpenAPI document's operationId
    summary: str
    handle: Handle | None = None  # None: the OpenAPI document itself
    query: Mapping[str, Schema] | None = None
    body: str = ""  # a component of schemas.py
    gives: str = ""  # a component; empty: bytes
    lines: bool = False  # what it gives comes as JSON Lines
    needs_operator: bool = False  # also where no tokens are configured, and everybody may do the rest
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

AFTER: Schema = {
    "type": "integer",
    "minimum": 0,
    "maximum": LARGEST,
    "description": "`next` of the page before.",
}


def page_size(about: str) -> Schema:
    return {"type": "integer", "minimum": 1, "maximum": LARGEST_PAGE, "description": about}


def whole(number: float | None) -> int | None:
    """3.0 is a whole number in JSON."""
    return None if number is None else int(number)
