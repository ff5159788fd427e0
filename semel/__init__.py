"""semel for functions of an agent's own: a decorated function happens once, whatever crashes in between.

    import semel

    @semel.tool
    def refund(order: int, usd: float) -> dict: ...

A call goes downward through these files; only the standard library is used, and nothing of the proxy's.

    client.py       a client at one place; the plain form of a call
    decorating.py   the decorator
    spelling.py     arguments, however the call is spelled
    naming.py       what names a call, checked before anything is sent
    values.py       JSON and nothing else
    place.py        where semel is, and in which run we speak
    performing.py   the driver: begin, run, report; sync and async
    beginning.py    ask until semel says whether to run
    heart.py        signs of life while the function runs
    reporting.py    what came of it
    patience.py     how long something is tried again
    line.py         one connection
    errors.py       what a caller is told
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar, overload

from semel.client import Client
from semel.decorating import decorate
from semel.errors import (
    AwaitingApproval,
    BudgetExceeded,
    Denied,
    Diverged,
    InDoubt,
    InProgress,
    NotConfigured,
    NotExecuted,
    NotRecorded,
    Refused,
    SemelError,
    ToolFailed,
    Unanswered,
    Unreachable,
    UnrecordableResult,
)
from semel.naming import Key, Occurrence, Options

__all__ = [
    "AwaitingApproval",
    "BudgetExceeded",
    "Client",
    "Denied",
    "Diverged",
    "InDoubt",
    "InProgress",
    "NotConfigured",
    "NotExecuted",
    "NotRecorded",
    "Options",
    "Refused",
    "SemelError",
    "ToolFailed",
    "Unanswered",
    "Unreachable",
    "UnrecordableResult",
    "tool",
]

F = TypeVar("F", bound=Callable[..., Any])


@cache
def _default() -> Client:
    """Made by the first call, from the environment."""
    return Client()


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    occurrence: Occurrence = None,
    key: Key = None,
    exclude: Iterable[str] = (),
    not_executed: tuple[type[Exception], ...] = (),
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    occurrence: Occurrence = None,
    key: Key = None,
    exclude: Iterable[str] = (),
    not_executed: tuple[type[Exception], ...] = (),
) -> F | Callable[[F], F]:
    """Makes a function a tool whose every call happens once: `@semel.tool`, or with options.

    `name`          of the tool; the function's own unless given
    `occurrence`    which of several identical calls, 1, 2, …: a number, or a function of the arguments
    `key`           names the call in the arguments' place: a text, or a function of the arguments
    `exclude`       parameters that are no arguments: a session, a logger
    `not_executed`  exceptions that prove that the function had no effect; it may then run again
    """
    options = Options(occurrence=occurrence, key=key, not_executed=not_executed)
    return decorate(_default, function, name, exclude, options)
