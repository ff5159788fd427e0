"""A relay that keeps every byte, in both directions, and cuts all connections when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.inside import Answer, read_answer
from tests.origin import Seen


@dataclass(slots=True)
class Passage:
    """One connection."""

    number: int
    up: bytearray = field(default_factory=bytearray)  # from the client
    down: bytearray = field(default_factory=bytearray)  # from the server
    writers: list[asyncio.StreamWriter] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and what came of it."""

    request: Seen
    answer: Answer

    @property
    def method(self) -> str:
        return bytes(self.request.head).partition(b" ")[0].decode()


class Tap:
    """`async with Tap(port) as tap`; clients connect to `tap.port`."""

    def __init__(self, target: int) -> None:
        self._target = target
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
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Everything that is open now. Whoever connects afterwards is served."""
        for passage in self.passages:
            for writer in passage.writers:
                writer.transport.abort()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sent_up(self) -> bytes:
        return b"".join(passage.up for passage in self.passages)

    async def exchanges(self) -> list[Exchange]:
        """All that were begun, connection by connection."""
        return [each for passage in self.passages for each in await _exchanges(passage)]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = Passage(len(self.passages), writers=[writer])
        self.passages.append(passage)
        task = asyncio.get_running_loop().create_task(self._pass(passage, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass(
        self, passage: Passage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        passage.writers.append(far_writer)
        try:
            await asyncio.gather(
                _one_way(reader, far_writer, passage.up.extend),
                _one_way(far_reader, writer, passage.down.extend),
            )
        except OSError:
            pass
        finally:
            for end in (writer, far_writer):
                end.transport.abort()


async def _one_way(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, saw: Callable[[bytes], None]
) -> None:
    while data := await reader.read(65536):
        saw(data)
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof() and not writer.is_closing():
        with suppress(OSError):
            writer.write_eof()


async def _exchanges(passage: Passage) -> list[Exchange]:
    requests: list[Seen] = []
    rest = bytes(passage.up)
    while rest:
        requests.append(Seen(passage.number))
        rest = requests[-1].take(rest)
    reader = asyncio.StreamReader(limit=2**24)
    reader.feed_data(bytes(passage.down))
    reader.feed_eof()
    return [Exchange(request, await read_answer(reader)) for request in requests]
