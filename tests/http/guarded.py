"""A semel whose names lead where the test says, and listeners on this machine that must not be reached.

No byte leaves loopback: an address elsewhere is dialled only in the book, unless the test has laid a road
from it to a port on this machine.
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proxy.app import App
from proxy.core.reachable import literal
from proxy.upstream.reaching import Found, Ways
from tests.inside import Answer, semel, until
from tests.origin import OK, Origin

PUBLIC, PUBLIC_6 = "93.184.216.34", "2606:2800:220:1::1"
LOCAL = ("127.0.0.1", "127.0.0.2", "::1")


@dataclass(slots=True)
class Net:
    """`names`: the answers to a name, one after the other, the last one for good. `roads`: from an address
    to a port here."""

    names: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    roads: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    dialled: list[str] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> list[Found]:
        self.asked.append(host)
        answers = self.names.get(host)
        given = [host] if answers is None else answers.pop(0) if len(answers) > 1 else answers[0]
        if given == ["localhost"]:
            given = ["127.0.0.1", "::1"]
        found: list[Found] = []
        for address in given:
            # Numbers in all their old spellings too, and no question to anybody.
            for family, _, _, _, sockaddr in socket.getaddrinfo(
                address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            ):
                found.append(Found(family, sockaddr))  # type: ignore[arg-type]
        return found

    async def connect(self, found: Found, real: object) -> socket.socket:
        host = found.sockaddr[0]
        self.dialled.append(host)
        if host in self.roads:
            found = Found(socket.AF_INET, ("127.0.0.1", self.roads[host]))
        else:
            address = literal(host)
            if address is None or not address.is_loopback:
                raise ConnectionRefusedError(111, "nobody is there")
        assert callable(real)
        connected = await real(Ways(), found)
        assert isinstance(connected, socket.socket)
        return connected


@dataclass(slots=True)
class Guarded:
    app: App
    net: Net
    origin: Origin  # at the end of the road from both public addresses
    port: int  # where nobody may be reached
    reached: list[str]
    log: io.StringIO

    def told(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]

    @property
    def at(self) -> int:
        return self.app.address.port

    async def nobody_came(self) -> None:
        """A connection of our own stands behind all that came before: it is the only one."""
        for address in LOCAL:
            with socket.create_connection((address, self.port), timeout=5):
                await until(lambda address=address: address in self.reached)  # type: ignore[misc]
        assert sorted(self.reached) == sorted(LOCAL)


@asynccontextmanager
async def listeners(reached: list[str]) -> AsyncIterator[int]:
    """On all local addresses at one port; every connection is noted."""
    sockets: list[socket.socket] = []
    for _ in range(20):
        sockets = [socket.create_server(("127.0.0.1", 0))]
        port = sockets[0].getsockname()[1]
        try:
            sockets.append(socket.create_server(("127.0.0.2", port)))
            sockets.append(socket.create_server(("::1", port), family=socket.AF_INET6))
            break
        except OSError:  # taken there by somebody else
            for each in sockets:
                each.close()
    else:
        raise AssertionError("no port is free on all of them")

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(str(writer.get_extra_info("sockname")[0]))
        writer.transport.abort()

    servers = [await asyncio.start_server(note, sock=each) for each in sockets]
    try:
        yield port
    finally:
        for server in servers:
            server.close()


@asynccontextmanager
async def guarded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: str = "upstream: up\nbase_url: http://api.example\n",
    settings: Mapping[str, object] | None = None,
    names: Mapping[str, Sequence[Sequence[str]]] | None = None,
    origin: Origin | None = None,
    store: str = "memory",
) -> AsyncIterator[Guarded]:
    """`{port}` in the policy is where the listeners are."""
    net = Net({name: list(answers) for name, answers in (names or {}).items()})
    reached: list[str] = []
    log, real = io.StringIO(), Ways.connect

    async def resolve(_: Ways, host: str, port: int) -> list[Found]:
        return await net.resolve(host, port)

    async def connect(_: Ways, found: Found) -> socket.socket:
        return await net.connect(found, real)

    monkeypatch.setattr(Ways, "resolve", resolve)
    monkeypatch.setattr(Ways, "connect", connect)
    async with listeners(reached) as port, origin or Origin(OK) as there:
        net.roads = {PUBLIC: there.port, PUBLIC_6: there.port}
        written = policy.replace("{port}", str(port))
        async with semel(tmp_path, written, settings=settings, store=store, log=log) as app:
            yield Guarded(app, net, there, port, reached, log)


def problem(got: Answer) -> str:
    """Its name, or nothing if this is no problem of semel's."""
    if got.get("Content-Type") != "application/problem+json":
        return ""
    return str(json.loads(got.body)["type"]).removeprefix("urn:semel:")
