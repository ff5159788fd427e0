"""The workers of one `semel serve`: each counts for itself, whoever is asked tells the sum.

A sum must never fall, or it is taken for a restart. So what is told was written down first: each worker keeps
its figures in a file of its own, and whoever takes a dead worker's place goes on counting where it ended. A
worker that does not answer in time is told as it was when it last wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import orjson

from proxy.metrics import Figures

# How long a worker may take to tell its figures: longer, and it stands still.
PATIENCE = 1.0
# How often they are written down unasked: so much is lost when a worker is killed.
WRITTEN_EVERY = 1.0


class Place(NamedTuple):
    """Which of the workers this is. `directory` is theirs alone."""

    directory: Path
    number: int
    of: int

    def socket_of(self, number: int) -> Path:
        return self.directory / f"{number}.sock"

    def figures_of(self, number: int) -> Path:
        return self.directory / f"{number}.json"


class Siblings:
    def __init__(self, place: Place, figures: Callable[[], Figures]) -> None:
        self._place = place
        self._figures = figures
        self._server: asyncio.Server | None = None
        self._writing: asyncio.Task[None] | None = None

    def inherited(self) -> Figures:
        """What the worker before, in the same place, had counted."""
        return _read(self._place.figures_of(self._place.number))

    async def start(self) -> None:
        own = self._place.socket_of(self._place.number)
        own.unlink(missing_ok=True)  # the one before may have been killed
        self._server = await asyncio.start_unix_server(self._answer, own)
        self._writing = asyncio.create_task(self._write_now_and_then())

    async def stop(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writing
        if self._server is not None:
            self._server.close()
        self.write()

    async def others(self) -> list[Figures]:
        """Of all other workers. This one's are written down: whoever asked tells them before it awaits."""
        numbers = [n for n in range(self._place.of) if n != self._place.number]
        figures = await asyncio.gather(*map(self._ask, numbers))
        with contextlib.suppress(OSError):  # told all the same
            self.write()
        return list(figures)

    async def _ask(self, number: int) -> Figures:
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_unix_connection(self._place.socket_of(number))
                try:
                    return _parsed(await reader.read())
                finally:
                    writer.close()
        except (OSError, TimeoutError, ValueError):
            return _read(self._place.figures_of(number))

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):  # a full disk, or somebody who has given up waiting
                writer.write(self.write())
                await writer.drain()
        finally:
            writer.close()

    async def _write_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(WRITTEN_EVERY)
            with contextlib.suppress(OSError):  # a full disk: what is told next tries again
                self.write()

    def write(self) -> bytes:
        """Whole or not at all. Without fsync: they live as long as the workers do."""
        text = orjson.dumps(self._figures())
        path = self._place.figures_of(self._place.number)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(text)
        os.replace(fresh, path)  # noqa: PTH105 (says what it is)
        return text


def _read(path: Path) -> Figures:
    try:
        return _parsed(path.read_bytes())
    except (OSError, ValueError):
        return {}  # it has not counted anything yet


def _parsed(text: bytes) -> Figures:
    figures: Figures = orjson.loads(text)
    return figures
