"""What the tests of streams share: a caller who reads as little as asked for, a commit that can be held."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proxy import faults
from proxy.faults import Point
from tests import ambient, mishaps
from tests.inside import Answer, request_bytes, semel, until
from tests.origin import Origin, Script

JSON = {"Content-Type": "application/json"}
RULES = """
rules:
  - {name: read, match: {path: /read}, safe: true, repeat: same}
  - {name: drop, match: {path: /drop}, safe: true, repeat: same, on_disconnect: cancel}
  - {name: shared, match: {path: /shared}, mode: cache}
  - {name: plain, match: {path: /plain}, mode: pass}
  - {name: hasty, match: {path: /hasty}, wait: 300ms}
  - {name: hold, match: {path: /hold}}
"""
RECORDED = ["hold", "read", "shared"]


def policy_of(origin: Origin) -> str:
    return f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n{RULES}"


@asynccontextmanager
async def world(
    tmp_path: Path, *scripts: Script, settings: Mapping[str, object] | None = None
) -> AsyncIterator[tuple[Origin, int]]:
    async with Origin(*scripts) as origin, semel(tmp_path, policy_of(origin), settings=settings) as app:
        yield origin, app.address.port


@dataclass
class Caller:
    """One who reads as little as asked for, so that a test sees what has arrived and what has not."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    got: bytearray = field(default_factory=bytearray)

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(10):
            while text not in self.got:
                data = await self.reader.read(65536)
                assert data, f"the connection ended after {bytes(self.got)!r}"
                self.got += data

    async def nothing_more(self) -> None:
        """What could come has had time to come."""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                self.got += await self.reader.read(65536)

    async def to_the_end(self) -> bytes:
        """Everything until the connection closes, or breaks."""
        async with asyncio.timeout(20):
            try:
                while data := await self.reader.read(65536):
                    self.got += data
            except ConnectionError:
                pass
        return bytes(self.got)

    @property
    def body(self) -> bytes:
        return bytes(self.got).partition(b"\r\n\r\n")[2]


@asynccontextmanager
async def calling(
    port: int, path: str, *, method: str = "POST", body: bytes = b"{}"
) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request_bytes(method, f"/up/{path}", {**JSON, "Connection": "close"}, body))
        yield Caller(reader, writer)
    finally:
        writer.close()


class HeldCommit:
    """Stands before COMMIT until `let_go`: the embedded writer's thread, or the server, which takes no
    writes."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._go_on = threading.Event()
        self._server = ExitStack()

    def stand(self) -> None:
        """Called where the commit begins: in the embedded writer's thread, or before a server is asked."""
        if ambient.store() != ambient.EMBEDDED:
            self._server.enter_context(mishaps.writes_held(ambient.store()))
            self._reached.set()
            return
        self._reached.set()
        assert self._go_on.wait(30)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 10)

    def let_go(self) -> None:
        self._go_on.set()
        self._server.close()


@contextmanager
def next_commit_held() -> Iterator[HeldCommit]:
    held = HeldCommit()
    faults.arm(Point.COMMIT_BEGUN, held.stand, times=1)
    try:
        yield held
    finally:
        held.let_go()
        faults.disarm_all()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
LAST = b"0\r\n\r\n"


FIRST = b'event: delta\ndata: {"text": "hello"}\n\n'


async def seen_by(origin: Origin, number: int) -> None:
    await until(lambda: sum(seen.complete for seen in origin.requests) >= number)


def unchunked(body: bytes) -> bytes:
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        out += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return out


def assert_in_progress(got: Answer) -> None:
    assert (got.status, json.loads(got.body)["type"]) == (409, "urn:semel:in-progress")
    assert got.get("Retry-After") == "1"
    assert got.semel == "refused"
