"""Lines in and out: one JSON-RPC message each. A line that is too long is said to be so, and skipped."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from proxy.errors import ConfigurationError

CHUNK = 64 * 1024
# Whoever has said that it ends may still read, but nobody waits longer for that (seconds).
LAST_WORDS = 1.0


class Readable(Protocol):
    async def read(self, n: int) -> bytes: ...


class TooLong:
    """What stands for a line that is over the limit."""


async def lines(pipe: Readable, limit: int) -> AsyncIterator[bytes | TooLong]:
    """Without what ends them. What comes after the last line end is no message."""
    pending = bytearray()
    skipping = False
    while chunk := await _read(pipe):
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


async def _read(pipe: Readable) -> bytes:
    """A connection that breaks is one that ends."""
    try:
        return await pipe.read(CHUNK)
    except OSError:
        return b""


def _always() -> bool:
    return True


class Out:
    """Whole lines, one after the other, as fast as they are read. `gone`: nobody reads them any more."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._lock = asyncio.Lock()
        self._waits: asyncio.Timeout | None = None
        self._left = False
        self.gone = False
        writer.transport.set_write_buffer_limits(high=0)  # what was written is with the kernel, not with us

    async def write(self, line: bytes, may: Callable[[], bool] = _always) -> bool | None:
        """Whether it was handed to whoever reads; None: surely not a byte of it was. `may` is asked directly
        before the first."""
        async with self._lock:
            if self.gone or not may():
                return None
            try:
                self._writer.write(line + b"\n")
                await self._drained()
            except OSError:
                self.gone = True
            return not self.gone

    async def _drained(self) -> None:
        try:
            async with asyncio.timeout(LAST_WORDS if self._left else None) as self._waits:
                await self._writer.drain()
        except TimeoutError:
            self.gone = True
            self._writer.transport.abort()
        finally:
            self._waits = None

    @property
    def is_busy(self) -> bool:
        return self._lock.locked()

    def leave(self) -> None:
        """Whoever reads has said that it ends: from now on nothing waits for it for long."""
        self._left = True
        if self._waits is not None:
            self._waits.reschedule(asyncio.get_running_loop().time() + LAST_WORDS)

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
        if _is_null(own_in):  # it cannot be waited for, and has an end at once
            os.close(own_in)
            reader.feed_eof()
        else:
            await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(own_in, "rb")
            )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(own_out, "wb")
        )
    except (ValueError, OSError) as error:
        raise ConfigurationError(
            f"semel mcp speaks with its client through pipes, and has none ({error}): the client starts it."
        ) from None
    return reader, Out(asyncio.StreamWriter(transport, protocol, None, loop))


def _is_null(fd: int) -> bool:
    return stat.S_ISCHR(os.fstat(fd).st_mode) and not os.isatty(fd)
