"""How a process on stage sends where nothing has to be awaited: by its upstream all the same, in a task of
which it is told as the network would tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from functools import partial

from proxy.upstream.base import Hears, NotSent, Outgoing, Result, UnderWay, UpstreamClient, WholeSink


class Manner(Enum):
    TOLD = "of the end"
    GOES_ON = "that it has begun, and has to be awaited"
    AWAITED = "nothing: there is no connection"


class Sending:
    """One send. Whoever abandons it hears no more of it."""

    def __init__(self, task: asyncio.Task[Result]) -> None:
        self.task = task
        self._abandoned = False

    def abandon(self) -> None:
        self._abandoned = True
        self.task.cancel()

    def tell(self, hears: Hears, task: asyncio.Task[Result]) -> None:
        if self._abandoned or task.cancelled():
            return
        if task.exception() is None:
            hears.answered(task.result())
        else:
            hears.goes_on(task)


def send_soon(
    upstream: UpstreamClient,
    manner: Callable[[], Manner],
    out: Outgoing,
    sink: WholeSink,
    may_send: Callable[[], bool],
    hears: Hears,
    sends: dict[asyncio.Task[Result], None],
) -> UnderWay | NotSent | None:
    """`sends`: those under way, which end with their process."""
    chosen = manner()
    if chosen is Manner.AWAITED:
        return None
    loop = asyncio.get_running_loop()
    task = loop.create_task(_sent(upstream, out, sink, may_send))
    sends[task] = None
    task.add_done_callback(sends.pop)
    sending = Sending(task)
    if chosen is Manner.TOLD:
        task.add_done_callback(partial(sending.tell, hears))
    else:
        loop.call_soon(hears.goes_on, task)
    return sending


async def _sent(
    upstream: UpstreamClient, out: Outgoing, sink: WholeSink, may_send: Callable[[], bool]
) -> Result:
    return await upstream.send(out, sink, may_send)
