"""A semel between clients that use it as a proxy and an origin on localhost, with TLS or without."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from proxy.app import App
from proxy.ca import load_or_make
from proxy.settings import Token
from tests.inside import Answer, read_answer, request_bytes, semel
from tests.origin import Origin, Script


@dataclass(slots=True)
class Scene:
    app: App
    origin: Origin
    state: Path
    log: io.StringIO

    @property
    def port(self) -> int:
        return self.app.address.port

    @property
    def authority(self) -> str:
        return f"localhost:{self.origin.port}"

    @property
    def ca(self) -> Path:
        return load_or_make(self.state).path

    def told(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context


@asynccontextmanager
async def scene(
    tmp_path: Path,
    *scripts: Script,
    tls: bool = True,
    path: str = "",
    more: str = "",
    settings: Mapping[str, object] | None = None,
    tokens: Sequence[Token] = (),
) -> AsyncIterator[Scene]:
    """The upstream `up` is the origin; `path` and `more` are for its policy."""
    log = io.StringIO()
    async with Origin(*scripts, tls=tls) as origin:
        scheme = "https" if tls else "http"
        policy = f"upstream: up\nbase_url: {scheme}://localhost:{origin.port}{path}\n{more}"
        async with semel(tmp_path, policy, settings=settings, tokens=tokens, log=log) as app:
            yield Scene(app, origin, tmp_path / "state", log)


@dataclass(slots=True)
class Client:
    """A connection to semel, and what a CONNECT on it has become."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, raw: bytes, *, is_head: bool = False) -> Answer:
        self.writer.write(raw)
        return await read_answer(self.reader, is_head=is_head)

    async def connect(self, authority: str, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer to a CONNECT; a good one has no body."""
        self.writer.write(request_bytes("CONNECT", authority, headers, host=authority))
        return await read_answer(self.reader, is_head=True)

    async def secure(self, context: ssl.SSLContext, name: str = "localhost") -> None:
        await self.writer.start_tls(context, server_hostname=name)

    async def ended(self) -> bytes:
        """Everything until the end, however it comes."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


@asynccontextmanager
async def client(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def through(there: Scene, headers: Mapping[str, str] | None = None) -> AsyncIterator[Client]:
    """Inside TLS with semel in the origin's place."""
    context = there.context()
    async with client(there.port) as inside:
        answered = await inside.connect(there.authority, headers)
        assert answered.status == 200, answered
        await inside.secure(context)
        yield inside
