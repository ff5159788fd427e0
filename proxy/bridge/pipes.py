"""Lines in and out: one JSON-RPC message each. A line that is too long is said to be so, and skipped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Protocol

from proxy.errors import ConfigurationError

CHUNK = 64 * 1024


class Readable(Protocol):
    async def read(self, n: int) -> bytes: ...


class TooLong:
    """What stands for a line that is over the limit."""


async def lines(pipe: Readable, limit: int) -> AsyncIterator[bytes | TooLong]:
    """Without what ends them. What comes after the last line end is no message."""
    pending = bytearray()
    skipping = False
    while chunk := await pipe.read(CHUNK):
        start = len(pending)
        pending += chunk
        while (end := pending.find(b"\n", start)) >= 0:
            line = bytes(pending[:end])
            del pending[: end + 1]
            start = 0
            if skipping or len(line) > limit:
                yield TooLong()
            elif line.strip():
                yield line
            skipping = False
        if len(pending) > limit:
            skipping = True
            pending.clear()


class Out:
    """Whole lines, one after the other, as fast as they are read. `gone`: nobody reads them any more."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._lock = asyncio.Lock()
        self.gone = False

    async def write(self, line: bytes) -> bool:
        """Whether it was handed to whoever reads."""
        async with self._lock:
            if self.gone:
                return False
            try:
                self._writer.write(line + b"\n")
                await self._writer.drain()
            except OSError:
                self.gone = True
            return not self.gone

    def close(self) -> None:
        self.gone = True
        self._writer.close()


async def standard_pipes() -> tuple[asyncio.StreamReader, Out]:
    """stdin and stdout, which are the client's. Nothing else of this process may write there from now on."""
    loop = asyncio.get_running_loop()
    own_in, own_out = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    reader = asyncio.StreamReader()
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(own_in, "rb"))
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(own_out, "wb")
        )
    except (ValueError, OSError) as error:
        raise ConfigurationError(
            f"semel mcp speaks with its client through pipes, and has none ({error}): the client starts it."
        ) from None
    return reader, Out(asyncio.StreamWriter(transport, protocol, None, loop))
