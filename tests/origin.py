"""An upstream that does exactly what a script says, and remembers every byte that reached it.

A script is a list of steps for one request: bytes are sent, everything else is one of the steps below. When
the steps are over and the connection is still open, the next request on it gets the next script. Since the
origin reads whatever arrives, in the background, `started` is the number of requests of which at least one
byte came: the number that "at most once" is about.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, cast

import uvloop

T = TypeVar("T")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
# Self-signed, for the name localhost and no other, valid for a hundred years; it protects nothing.
CERTIFICATE = Path(__file__).with_name("localhost.pem")


def run_on(loop: str, scenario: Coroutine[Any, Any, T], *, within: float = 30.0) -> T:
    """Run a scenario on the named loop, and fail rather than hang."""

    async def bounded() -> T:
        async with asyncio.timeout(within):
            return await scenario

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(bounded())


@dataclass(frozen=True, slots=True)
class ReadHead:
    """Wait until the request's head is here."""


@dataclass(frozen=True, slots=True)
class ReadBody:
    """Wait until this many bytes of the body are here; None: all of it."""

    count: int | None = None


@dataclass(frozen=True, slots=True)
class ReadByte:
    """Wait for the first byte of the request."""


@dataclass(frozen=True, slots=True)
class Echo:
    """Answer with what was asked: "METHOD /path|body"."""


@dataclass(frozen=True, slots=True)
class StopReading:
    """Leave what comes from now on in the kernel: the sender meets a full window."""


@dataclass(frozen=True, slots=True)
class Wait:
    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Stall:
    """Do nothing more until the test is over."""


@dataclass(frozen=True, slots=True)
class Close:
    """Send the end, and close."""


@dataclass(frozen=True, slots=True)
class HalfClose:
    """Send the end, and go on reading."""


@dataclass(frozen=True, slots=True)
class EndBelowTls:
    """End the TCP stream without TLS saying so, as somebody on the way could."""


@dataclass(frozen=True, slots=True)
class Reset:
    """RST instead of FIN."""


Step: TypeAlias = (
    bytes
    | ReadHead
    | ReadBody
    | ReadByte
    | Echo
    | StopReading
    | Wait
    | Stall
    | Close
    | HalfClose
    | EndBelowTls
    | Reset
)
Script: TypeAlias = Sequence[Step]
READ_ALL: Script = (ReadHead(), ReadBody())


def answer(status: int = 200, body: bytes = b"", *headers: tuple[bytes, bytes]) -> bytes:
    lines = [b"HTTP/1.1 %d Whatever" % status, *(b"%b: %b" % pair for pair in headers)]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", b""]) + body


OK: Script = (*READ_ALL, answer(200, b"ok"))
ECHO: Script = (*READ_ALL, Echo())


class Seen:
    """One request as it came, growing while it comes."""

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self.head = bytearray()
        self.body = bytearray()
        self.length: int | None = None  # known with the whole head

    @property
    def asked(self) -> bytes:
        """In short, as one reader of it has it."""
        return b" ".join(bytes(self.head).split(b" ", 2)[:2]) + b"|" + bytes(self.body)

    @property
    def complete(self) -> bool:
        return self.length == len(self.body)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        lines = bytes(self.head).removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]
        return [
            (name, value.removeprefix(b" ")) for name, _, value in (line.partition(b":") for line in lines)
        ]

    def take(self, data: bytes) -> bytes:
        """Keep what belongs to this request; the rest belongs to the next."""
        if self.length is None:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return b""
            data = bytes(self.head[end + 4 :])
            del self.head[end + 4 :]
            found = re.search(rb"(?im)^content-length: *(\d+) *\r$", self.head)
            self.length = int(found[1]) if found else 0
        room = self.length - len(self.body)
        self.body += data[:room]
        return data[room:]


def reset_on_close(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class _Visitor(asyncio.Protocol):
    """One connection: collects what comes, runs the scripts."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.received = 0
        self.requests: list[Seen] = []
        self.gone = asyncio.Event()
        self.news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.number = len(self.origin.visitors)
        self.origin.visitors.append(self)
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        while data:
            if not self.requests or self.requests[-1].complete:
                self.requests.append(Seen(self.number))
            data = self.requests[-1].take(data)
        self.news.set()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self.task.cancel()

    async def _serve(self) -> None:
        index = 0
        while not self.gone.is_set():
            if self.origin.waits_for_a_request():
                await self._until(lambda: len(self.requests) > index)  # noqa: B023 (awaited at once)
            for step in self.origin.next_script():
                await self._do(step, index)
            index += 1

    async def _do(self, step: Step, index: int) -> None:
        match step:
            case bytes():
                self.transport.write(step)
            case ReadByte():
                await self._until(lambda: len(self.requests) > index)
            case ReadHead():
                await self._until(lambda: self.requests[index].length is not None)
            case ReadBody(count=None):
                await self._until(lambda: self.requests[index].complete)
            case ReadBody(count=int() as count):
                await self._until(lambda: len(self.requests[index].body) >= count)
            case Echo():
                self.transport.write(answer(200, self.requests[index].asked))
            case StopReading():
                self.transport.pause_reading()
            case Wait(event=event):
                await event.wait()
            case Stall():
                await self._for_ever()
            case HalfClose():
                self.transport.write_eof()
            case EndBelowTls():
                fd = self.transport.get_extra_info("socket").fileno()
                with socket.socket(fileno=os.dup(fd)) as below:
                    below.shutdown(socket.SHUT_WR)
            case Close():
                self.transport.close()
                await self._for_ever()
            case Reset():
                reset_on_close(self.transport.get_extra_info("socket"))
                self.transport.abort()
                await self._for_ever()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.news.clear()
            await self.news.wait()

    async def _for_ever(self) -> None:
        await asyncio.get_running_loop().create_future()


class Origin:
    """`async with Origin(script) as origin`. `scripts` are used up one per request; the last one stays.
    `port`: one that the test has reserved, for an upstream that comes back."""

    def __init__(self, *scripts: Script, tls: bool = False, port: int = 0) -> None:
        self._scripts = list(scripts or (OK,))
        self._tls = tls
        self.port = port
        self.visitors: list[_Visitor] = []

    async def __aenter__(self) -> Self:
        context = None
        if self._tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Visitor(self), "127.0.0.1", self.port, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for visitor in self.visitors:
            visitor.task.cancel()
            visitor.transport.abort()
        await asyncio.gather(*(visitor.task for visitor in self.visitors), return_exceptions=True)
        await asyncio.gather(*(visitor.gone.wait() for visitor in self.visitors))

    def waits_for_a_request(self) -> bool:
        """A script that begins with reading is not begun before there is something to read."""
        return isinstance(self._scripts[0][0], ReadHead | ReadBody | ReadByte)

    def then(self, script: Script) -> None:
        """For the next request, before the script that stays."""
        self._scripts.insert(len(self._scripts) - 1, script)

    def next_script(self) -> Script:
        return self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]

    @property
    def connections(self) -> int:
        return len(self.visitors)

    @property
    def requests(self) -> list[Seen]:
        return [seen for visitor in self.visitors for seen in visitor.requests]

    @property
    def started(self) -> int:
        return len(self.requests)

    @property
    def received(self) -> int:
        """Bytes, over all connections."""
        return sum(visitor.received for visitor in self.visitors)
