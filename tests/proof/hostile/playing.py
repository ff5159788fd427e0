"""One entry on one connection: cut up or not, an innocent request behind it, and all that comes back.

What comes back must be whole answers and nothing else. The innocent one says who it is, and the upstream
echoes that: an answer that belongs to another request is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple

_NUMBERS = itertools.count()
_BETWEEN = 0.0005  # between two pieces: the next one comes by itself


def seeded() -> Random:
    """Told, so that a run can be had again."""
    seed = int(os.environ.get("TEST_SEED") or random.randrange(2**32))
    print(f"seed {seed} (set TEST_SEED to use it again)")
    return Random(seed)


class Got(NamedTuple):
    status: int
    semel: str
    body: bytes


class Played(NamedTuple):
    answers: tuple[Got, ...]
    rest: bytes  # what is no whole answer
    ended: bool  # by semel, before we did


def innocent() -> tuple[bytes, bytes]:
    """The request, and the answer it alone can have, but for the path before it."""
    body = b"innocent %d" % next(_NUMBERS)
    head = b"POST /pay/innocent HTTP/1.1\r\nHost: semel\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body, b"/innocent|" + body


def pieces(data: bytes, dice: Random, number: int) -> list[bytes]:
    """Cut at random places, often beside each other and beside the ends of lines."""
    places = {dice.randrange(1, len(data)) for _ in range(number)} if len(data) > 1 else set()
    edges = [at + shift for at in range(len(data)) if data[at : at + 1] in b"\r\n" for shift in (0, 1)]
    places |= set(dice.sample(edges, min(number, len(edges))))
    cuts = [0, *sorted(places - {0, len(data)}), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(cuts)]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


class Line:
    """A socket that reads on while it writes, whatever becomes of the writing."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self.got = bytearray()
        self.ended = asyncio.Event()
        self.news = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self._loop.sock_recv(self._sock, 65536):
                self.got += data
                self.news.set()
        self.ended.set()
        self.news.set()

    async def send(self, parts: Sequence[bytes], *, between: float = _BETWEEN) -> None:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                await self._loop.sock_sendall(self._sock, part)
                if len(parts) > 1:
                    await asyncio.sleep(between)

    async def until(self, text: bytes) -> bool:
        """False: it ended before."""
        while text not in self.got and not self.ended.is_set():
            self.news.clear()
            await self.news.wait()
        return text in self.got

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._sock.close()


@asynccontextmanager
async def line_to(port: int, connect: bytes = b"") -> AsyncIterator[Line]:
    """`connect`: an authority to be connected with first, through semel."""
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line = Line(sock)
    try:
        if connect:
            await line.send([b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (connect, connect)])
            assert await line.until(b"\r\n\r\n")
            assert line.got.startswith(b"HTTP/1.1 200 ")
            line.got.clear()
        yield line
    finally:
        await line.close()


async def play(port: int, parts: Sequence[bytes], marked: bytes, *, connect: bytes = b"") -> Played:
    """Send the parts; `marked` ends the answer to the last request among them, if it is served."""
    async with asyncio.timeout(30), line_to(port, connect) as line:
        await line.send(parts)
        served = await line.until(marked)
        line.finish()
        await line.ended.wait()
        answers, rest = answers_in(bytes(line.got))
        return Played(tuple(answers), rest, ended=not served)


def answers_in(data: bytes, to_head: Sequence[bool] = ()) -> tuple[list[Got], bytes]:
    """Final answers, one after another; the rest is none. `to_head`: which have no body, whatever they say.
    A simple reader: it takes a 204 that has a length at its word."""
    found: list[Got] = []
    while True:
        head, mark, behind = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        if not mark or not first.startswith(b"HTTP/1.1 "):
            return found, data
        status = int(first.split(b" ")[1])
        fields = {name.lower(): value.strip() for name, _, value in (one.partition(b":") for one in lines)}
        if status < 200:
            data = behind
            continue
        if b"transfer-encoding" in fields and not any(to_head[len(found) : len(found) + 1]):
            body, rest = _dechunked(behind)
            if body is None:
                return found, data
            found.append(Got(status, fields.get(b"semel-status", b"").decode(), body))
            data = rest
            continue
        is_bare = any(to_head[len(found) : len(found) + 1])
        length = 0 if is_bare else int(fields.get(b"content-length", b"0"))
        if len(behind) < length:
            return found, data
        found.append(Got(status, fields.get(b"semel-status", b"").decode(), behind[:length]))
        data = behind[length:]


def _dechunked(data: bytes) -> tuple[bytes | None, bytes]:
    """The body, None where it is not whole, and what follows it."""
    body = b""
    while True:
        size, mark, data = data.partition(b"\r\n")
        if not mark:
            return None, b""
        length = int(size, 16)
        if len(data) < length + 2:
            return None, b""
        body, data = body + data[:length], data[length + 2 :]
        if length == 0:
            return body, data
