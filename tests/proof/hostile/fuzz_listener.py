"""Bytes into the listener: semel in this process, real sockets, and an upstream that remembers everything.

The first byte of an input says how the rest is cut up. Whatever it is: every request that a strict reader
finds in it is answered, or the connection ends; what reaches the upstream is among them, each once at most;
and nobody reports a defect.
"""

from __future__ import annotations

import asyncio
import atexit
import io
import logging
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

from tests.inside import semel
from tests.origin import ECHO, LOOPS, Origin, Seen
from tests.proof.hostile.corpus import ORIGIN, SEMEL
from tests.proof.hostile.playing import answers_in, byte_by_byte, line_to, pieces
from tests.proof.hostile.reference import Reading, readings
from tests.proof.hostile.requests import REQUESTS
from tests.proof.hostile.scene import RULES, TROUBLE

# After so many inputs the world is made anew: what is recorded stays in memory.
RENEWED_AFTER = 2000


class World:
    """One semel and one upstream, on a loop of their own."""

    def __init__(self) -> None:
        self._loop = LOOPS["uvloop"]()
        self._inside = AsyncExitStack()
        self._place = tempfile.TemporaryDirectory()
        self._log = io.StringIO()
        self._told: list[str] = []
        self._known: set[int] = set()  # what the upstream has seen so far
        self._loop.set_exception_handler(lambda _, told: self._told.append(repr(told)))
        self._hears = _Hears(self._told)
        logging.getLogger("aiohttp").addHandler(self._hears)
        self._loop.run_until_complete(self._open())
        self.tried = 0

    async def _open(self) -> None:
        self._origin = await self._inside.enter_async_context(Origin(ECHO))
        policy = f"upstream: pay\nbase_url: http://127.0.0.1:{self._origin.port}\n{RULES}"
        app = semel(Path(self._place.name), policy, store="memory", log=self._log)
        self._port = (await self._inside.enter_async_context(app)).address.port

    def close(self) -> None:
        self._loop.run_until_complete(self._inside.aclose())
        self._loop.close()
        self._place.cleanup()
        logging.getLogger("aiohttp").removeHandler(self._hears)

    def hear(self, data: bytes, parts: list[bytes]) -> None:
        self.tried += 1
        self._loop.run_until_complete(self._hear(data, parts))
        said = self._log.getvalue()
        self._log.seek(0)
        self._log.truncate()
        self._told += [line for line in said.splitlines() if any(word in line for word in TROUBLE)]
        assert self._told == []

    async def _hear(self, data: bytes, parts: list[bytes]) -> None:
        asked = readings(data)
        async with asyncio.timeout(20), line_to(self._port) as line:
            await line.send(parts, between=0.0)
            while len(_answers(bytes(line.got), asked)) < len(asked) and not line.ended.is_set():
                line.news.clear()
                await line.news.wait()
            line.finish()
            await line.ended.wait()
        allowed = list(asked)
        for seen in self._origin.requests:
            if id(seen) not in self._known:
                self._known.add(id(seen))
                meant = next((reading for reading in allowed if _is(seen, reading)), None)
                assert meant is not None, (seen.asked, asked)
                allowed.remove(meant)


class _Hears(logging.Handler):
    def __init__(self, told: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told.append(self.format(record))


def _answers(got: bytes, asked: list[Reading]) -> list[Any]:
    return answers_in(got, [reading.method == b"HEAD" for reading in asked])[0]


def _is(seen: Seen, reading: Reading) -> bool:
    """Whether what the upstream saw is this one. Its path is the end of the target."""
    method, path, _ = bytes(seen.head).split(b" ", 2)
    is_same = (method, bytes(seen.body)) == (reading.method, reading.body)
    return is_same and reading.target.endswith(path.lstrip(b"/"))


_worlds: list[World] = []


def one_input(data: bytes) -> None:
    if len(data) < 2:
        return
    if _worlds and _worlds[0].tried >= RENEWED_AFTER:
        close()
    if not _worlds:
        _worlds.append(World())
    how, rest = data[0], data[1:]
    if how < 64:
        parts = [rest]
    elif how < 80 and len(rest) < 500:
        parts = byte_by_byte(rest)
    else:
        parts = pieces(rest, Random(how), 1 + how % 4)
    try:
        _worlds[0].hear(rest, parts)
    except BaseException:
        _worlds.clear()  # in whatever state it is
        raise


@atexit.register
def close() -> None:
    while _worlds:
        _worlds.pop().close()


# ---- where a fuzzer begins ----

SEEDS = tuple(
    bytes([how]) + entry.raw.replace(ORIGIN, b"127.0.0.1:9").replace(SEMEL, b"127.0.0.1:8")
    for entry in REQUESTS.values()
    for how in (0, 130)
    if len(entry.raw) < 1000
)
WORDS = (
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"0\r\n\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n",
    b"Host: semel\r\n", b"POST /pay/x HTTP/1.1\r\n", b"HTTP/1.0", b"Expect: 100-continue\r\n",
    b"Connection: ", b"close", b"Upgrade: websocket\r\n", b"chunked", b"GET ", b"HEAD ", b"Semel-Run: a\r\n",
    b"/@a+b/pay/x",
)  # fmt: skip
