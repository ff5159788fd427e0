"""Swaps whose end is told and not awaited, for stores that have no shorter way: each takes a task."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from functools import partial

from proxy.core.intent import Call, Entry
from proxy.store.base import Swap, Told


class TellsByTask:
    _telling: dict[asyncio.Task[Swap], None]  # nobody else holds them

    @abstractmethod
    async def swap(self, call: Call, entry: Entry, *, expected: int) -> Swap: ...

    def swap_soon(self, call: Call, entry: Entry, *, expected: int, told: Told) -> None:
        task = asyncio.get_running_loop().create_task(self.swap(call, entry, expected=expected))
        telling: dict[asyncio.Task[Swap], None] = self.__dict__.setdefault("_telling", {})
        telling[task] = None
        task.add_done_callback(telling.pop)
        task.add_done_callback(partial(tell, told))


def tell(told: Told, future: asyncio.Future[Swap]) -> None:
    if told.done() or future.cancelled():
        return
    error = future.exception()
    if error is None:
        told.set_result(future.result())
    else:
        told.set_exception(error)
