"""A TCP relay that breaks things at a given byte: cuts, resets, stalls, ends one direction, slices.

It stands between a client and a server and counts what the client sent, also what it did not pass on. One
`Plan` per connection, in the order they come; the last one stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from tests.origin import reset_on_close


class Act(StrEnum):
    CUT = "cut"  # close both sides
    RESET = "reset"  # the same, with RST to the client
    STALL = "stall"  # pass on nothing more in this direction, keep everything open
    HALF_CLOSE = "half_close"  # an end in this direction, the other one goes on


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` bytes are passed on in this direction, then `act`. Zero: on the first byte that comes."""

    at: int
    act: Act


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    up: Fault | None = None  # from the client to the server
    down: Fault | None = None  # from the server to the client
    slice: int = 65536  # at most this many bytes at a time, each written on its own


@dataclass(slots=True)
class Passage:
    """What one connection brought. `seen_up` counts the client's bytes, passed on or not."""

    plan: Plan
    seen_up: int = 0
    seen_down: int = 0


class Relay:
    """`async with Relay(port, Plan(...)) as relay`; clients connect to `relay.port`."""

    def __init__(self, target: int, *plans: Plan) -> None:
        self._target = target
        self._plans = list(plans or (Plan(),))
        self._tasks: set[asyncio.Task[None]] = set()
        self.passages: list[Passage] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def seen_up(self) -> int:
        return sum(passage.seen_up for passage in self.passages)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plan = self._plans.pop(0) if len(self._plans) > 1 else self._plans[0]
        passage = Passage(plan)
        self.passages.append(passage)
        task = asyncio.get_running_loop().create_task(self._pass(passage, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass(
        self, passage: Passage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        over = asyncio.Event()

        def saw_up(count: int) -> None:
            passage.seen_up += count

        def saw_down(count: int) -> None:
            passage.seen_down += count

        def act(fault: Fault) -> None:
            if fault.act in (Act.RESET, Act.CUT):
                over.set()

        slices = passage.plan.slice
        both = asyncio.gather(
            _one_way(reader, far_writer, passage.plan.up, slices, saw_up, act),
            _one_way(far_reader, writer, passage.plan.down, slices, saw_down, act),
        )
        broken = asyncio.ensure_future(over.wait())
        waiting: list[asyncio.Future[Any]] = [both, broken]
        reset = any(
            fault is not None and fault.act is Act.RESET for fault in (passage.plan.up, passage.plan.down)
        )
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            reset = (reset and over.is_set()) or (both.done() and both.exception() is not None)
        finally:
            both.cancel()
            broken.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            far_writer.transport.abort()
            if reset:
                _reset(writer)
            else:
                writer.close()


async def _one_way(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    fault: Fault | None,
    piece: int,
    saw: Callable[[int], None],
    act: Callable[[Fault], None],
) -> None:
    """Pass on until the end, or until the fault. A stall never returns, and goes on counting."""
    passed = 0
    broken = False
    while data := await reader.read(piece):
        saw(len(data))
        if broken:
            continue
        room = len(data) if fault is None else fault.at - passed
        writer.write(data[:room])
        passed += min(room, len(data))
        await writer.drain()
        if fault is not None and (room < len(data) or (fault.at and passed >= fault.at)):
            broken = True
            if fault.act is Act.HALF_CLOSE:
                writer.write_eof()
            act(fault)
    if broken:
        await asyncio.get_running_loop().create_future()
    if writer.can_write_eof() and not writer.is_closing():
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    reset_on_close(writer.get_extra_info("socket"))
    writer.transport.abort()
