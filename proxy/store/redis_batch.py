"""Swaps that come at the same time, as one script: one entry of the server's log, one fsync for all of them.

A pipeline would not do: a server reads sixteen kilobytes from a connection, runs what it has read, and syncs
its log before it reads on. So what comes while swaps are under way waits for the next script. Each swap in
one is on its own: it wins, loses or fails for itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from proxy.errors import StoreUnavailable
from proxy.faults import Point, reach
from proxy.store.base import Batched, uncounted
from proxy.store.redis_pipe import Pipe, unavailable
from proxy.store.redis_wire import Part, Reply

# A script holds up everybody else for as long as it takes: so many swaps, so many bytes.
MOST, MOST_BYTES = 64, 1024 * 1024
# While one is being synced the next is being made ready.
UNDER_WAY = 2
# How many arguments swaps.lua takes for each.
WIDTH = 23


class Waiting(NamedTuple):
    args: tuple[Part, ...]
    size: int
    unless: Callable[[], str | None]  # asked when there is a connection: a reason not to
    told: asyncio.Future[list[Reply]]


class Batch:
    def __init__(self, pipe: Pipe, batched: Batched = uncounted) -> None:
        self._pipe = pipe
        self._batched = batched
        self._queue: deque[Waiting] = deque()
        self._flights: set[asyncio.Task[None]] = set()
        self._soon = False

    def swap(
        self, args: tuple[Part, ...], size: int, unless: Callable[[], str | None]
    ) -> asyncio.Future[list[Reply]]:
        """What swaps.lua says of this one. Who leaves does not stop it."""
        assert len(args) == WIDTH
        loop = asyncio.get_running_loop()
        told: asyncio.Future[list[Reply]] = loop.create_future()
        self._queue.append(Waiting(args, size, unless, told))
        if not self._soon and len(self._flights) < UNDER_WAY:
            self._soon = True
            loop.call_soon(self._take_off)
        return told

    def _take_off(self) -> None:
        self._soon = False
        while self._queue and len(self._flights) < UNDER_WAY:
            flight = asyncio.ensure_future(self._fly(self._take()))
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _take(self) -> list[Waiting]:
        taken = [self._queue.popleft()]
        size = taken[0].size
        while self._queue and len(taken) < MOST and (size := size + self._queue[0].size) <= MOST_BYTES:
            taken.append(self._queue.popleft())
        return taken

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._take_off()

    async def _fly(self, taken: list[Waiting]) -> None:
        def args() -> tuple[Part, ...]:
            for each in list(taken):
                if why := each.unless():
                    taken.remove(each)
                    _fail(each, StoreUnavailable(why))
            return tuple(part for each in taken for part in each.args)

        try:
            reach(Point.COMMIT_BEGUN)
            replies = await self._pipe.run_in_time("swaps", args)
            reach(Point.COMMITTED)
            self._batched(len(taken))
            for each, reply in zip(list(taken), replies, strict=True):
                if not each.told.done():
                    each.told.set_result(reply)
        except StoreUnavailable as error:
            # Those that wait have not been sent; whoever waits longer waits for too long.
            for each in (*taken, *self._queue):
                _fail(each, error)
            self._queue.clear()
        except BaseException as error:
            for each in taken:
                _fail(each, unavailable(type(error).__name__))
            raise

    async def close(self) -> None:
        """What is under way or waits is done first, or has failed."""
        while self._queue or self._flights or self._soon:
            await asyncio.gather(*self._flights, asyncio.sleep(0), return_exceptions=True)


def _fail(each: Waiting, error: StoreUnavailable) -> None:
    if not each.told.done():
        each.told.set_exception(error)
        each.told.exception()  # perhaps nobody waits any more
