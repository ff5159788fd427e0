"""A function that is a tool: it is called as before, and happens once.

Who carries its calls out is asked at each call: a module is imported before anybody has said where semel is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar, cast

from semel.naming import Options, check_name
from semel.spelling import spelling_of

F = TypeVar("F", bound=Callable[..., Any])


class Carrier(Protocol):
    def carry_out(
        self, tool: str, arguments: Mapping[str, object], function: Callable[[], object], options: Options
    ) -> object: ...

    async def carry_out_async(
        self,
        tool: str,
        arguments: Mapping[str, object],
        function: Callable[[], Awaitable[object]],
        options: Options,
    ) -> object: ...


def decorate(
    carrier: Callable[[], Carrier],
    function: F | None,
    name: str | None,
    exclude: Iterable[str],
    options: Options,
) -> F | Callable[[F], F]:
    """Without a function: what takes one, for `@tool(…)`."""
    if function is not None:
        return _decorated(carrier, function, name, exclude, options)
    return lambda found: _decorated(carrier, found, name, exclude, options)


def _decorated(
    carrier: Callable[[], Carrier], function: F, name: str | None, exclude: Iterable[str], options: Options
) -> F:
    if not inspect.isroutine(function) or isinstance(function, classmethod | staticmethod):
        raise TypeError(
            f"A tool is a function, not {function!r}; @semel.tool stands below @classmethod and others."
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__} yields: a tool returns one result, which can be recorded.")
    tool = check_name(name or function.__name__)
    spelling = spelling_of(function, exclude)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def run_async(*args: object, **kwargs: object) -> object:
            arguments = spelling.arguments(args, kwargs)
            return await carrier().carry_out_async(
                tool, arguments, lambda: function(*args, **kwargs), options
            )

        return cast("F", run_async)

    @functools.wraps(function)
    def run(*args: object, **kwargs: object) -> object:
        arguments = spelling.arguments(args, kwargs)
        return carrier().carry_out(tool, arguments, lambda: function(*args, **kwargs), options)

    return cast("F", run)
