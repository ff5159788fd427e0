"""A loop whose time passes only when nothing else is left to do: waits cost nothing and nothing flickers.

Where a real loop would sleep until the next timer, this one moves its clock there. If there is no timer
either, the test hangs for good, and says so.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
EPOCH = 1_700_000_000.0


class NothingLeftToHappen(BaseException):
    """Everybody waits for somebody else: a deadlock."""


class _Selector(selectors.BaseSelector):
    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return []  # there is something to do: what comes from outside is looked at after that
        ready = self._real.select(0)
        if not ready:
            if timeout is None:
                raise NothingLeftToHappen
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


class VirtualClock:
    """proxy.clock.Clock on the running loop's time. `offset` sets the wall clock forward or back."""

    def __init__(self) -> None:
        self.offset = 0.0

    def now(self) -> float:
        return EPOCH + self.offset + asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def within(self, seconds: float, awaitable: Awaitable[object]) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await awaitable
        except TimeoutError:
            return False
        return True


def run(story: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            return runner.run(story)
        except NothingLeftToHappen:
            raise AssertionError("a deadlock: everybody waits for somebody else") from None


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """An async test, run in virtual time."""

    @functools.wraps(test)
    def told(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return told
