"""Where a developer begins: a client at one place, and the plain form of a call.

Everything that can be refused without semel (a name, arguments that are no JSON, a key) is refused before
anything is sent.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from semel.decorating import decorate
from semel.naming import Key, Occurrence, Options, check_name, question
from semel.performing import Performer
from semel.place import Said, place_of

F = TypeVar("F", bound=Callable[..., Any])

# Longer than a rule's `wait`, and than most functions of others that a call may have to wait for.
TIMEOUT = 300.0


class Client:
    """semel at one place, in one run. What is not given is read from SEMEL_URL, SEMEL_RUN, SEMEL_ATTEMPT and
    SEMEL_TOKEN, as `semel run` sets them. `timeout`: for how many seconds a call waits for the same one
    of somebody else, and tries to deliver a result. Any number of threads and tasks may share one."""

    def __init__(
        self,
        url: str | None = None,
        *,
        run: str | None = None,
        attempt: str | None = None,
        token: str | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        place = place_of(Said(url, run, attempt, token), os.environ)
        self._performer = None if place is None else Performer(place, timeout)

    def call(
        self,
        name: str,
        arguments: Mapping[str, object],
        function: Callable[..., object],
        *,
        options: Options = Options(),  # noqa: B008 (frozen)
    ) -> Any:  # noqa: ANN401 (JSON; the caller knows which)
        """`function(**arguments)`, once: its result, or the recorded one."""
        return self.carry_out(check_name(name), arguments, lambda: function(**arguments), options)

    async def call_async(
        self,
        name: str,
        arguments: Mapping[str, object],
        function: Callable[..., Awaitable[object]],
        *,
        options: Options = Options(),  # noqa: B008 (frozen)
    ) -> Any:  # noqa: ANN401 (JSON; the caller knows which)
        """The same for a coroutine function. The event loop goes on meanwhile."""
        return await self.carry_out_async(check_name(name), arguments, lambda: function(**arguments), options)

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        occurrence: Occurrence = None,
        key: Key = None,
        exclude: Iterable[str] = (),
        not_executed: tuple[type[Exception], ...] = (),
    ) -> Callable[[F], F]: ...
    def tool(
        self,
        function: F | None = None,
        /,
        *,
        name: str | None = None,
        occurrence: Occurrence = None,
        key: Key = None,
        exclude: Iterable[str] = (),
        not_executed: tuple[type[Exception], ...] = (),
    ) -> F | Callable[[F], F]:
        """As `semel.tool`, at this client's place."""
        options = Options(occurrence=occurrence, key=key, not_executed=not_executed)
        return decorate(lambda: self, function, name, exclude, options)

    # ---- for decorated functions: the name is checked, the function knows its arguments ----

    def carry_out(
        self, tool: str, arguments: Mapping[str, object], function: Callable[[], object], options: Options
    ) -> object:
        if self._performer is None:
            return function()
        asked = question(tool, arguments, options, in_run=bool(self._performer.place.run))
        return self._performer.perform(asked, function)

    async def carry_out_async(
        self,
        tool: str,
        arguments: Mapping[str, object],
        function: Callable[[], Awaitable[object]],
        options: Options,
    ) -> object:
        if self._performer is None:
            return await function()
        asked = question(tool, arguments, options, in_run=bool(self._performer.place.run))
        return await self._performer.perform_async(asked, function)
