"""For the tests of shadow mode: an upstream without a memory, requests drawn by a seed, figures read back.

The upstream answers each request by what is in it alone, so the same requests get the same answers whether
they come once (semel in earnest) or every time (semel looking on).
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.app import App
from proxy.flying import Flights
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.inside import call, until
from tests.origin import reset_on_close

AGENT, OPERATOR = "agent-secret", "operator-secret"
TOKENS = (
    Token(sha256=digest(AGENT), tenant="acme", role=Role.AGENT),
    Token(sha256=digest(OPERATOR), tenant="acme", role=Role.OPERATOR),
)
RESET = 0
RULES = """
  - name: send
    match: {method: POST, path: /send}
    cost: {usd: 0.25}
  - name: guarded
    match: {method: POST, path: /guarded}
    repeat: same
    cost: {usd: 0.5}
  - name: keyed
    match: {method: POST, path: /keyed}
    upstream_key: {header: X-Upstream-Key, retention: 1h}
  - name: probed
    match: {method: POST, path: /probed}
    probe: {request: {path: "/probe/{body.to}"}, found: "found"}
  - name: shared
    match: {method: POST, path: /shared}
    scope: tenant
    cost: {usd: 0.125}
  - name: items
    match: {method: GET, path: "/items/{id}"}
    mode: cache
    cost: {usd: 0.0625}
  - name: asked
    match: {method: POST, path: /asked}
    approval: {when: "to == `0`", wait: 0ms}
  - name: never
    match: {method: POST, path: /never}
    mode: deny
  - name: rest
"""
PATHS = ("send", "send", "guarded", "keyed", "probed", "shared", "items", "asked", "never", "other", "read")


def policy(port: int, *, shadow: bool) -> str:
    rules = re.sub(r"(?m)^(  - name: .*)$", r"\1\n    shadow: true", RULES) if shadow else RULES
    return f"upstream: up\nbase_url: http://127.0.0.1:{port}\nrules:{rules}"


class Asked(NamedTuple):
    path: str
    status: int
    to: int
    run: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    slow: bool = False

    async def __call__(self, port: int) -> None:
        prefix = f"/@{self.run}" if self.run else ""
        headers = {"Semel-Token": AGENT, "Authorization": "Bearer one", **dict(self.headers)}
        said = {"to": self.to, "status": self.status, "slow": self.slow}
        if self.path in ("items", "read"):
            target = f"{prefix}/up/{self.path}/{self.to}?status={self.status}&slow={int(self.slow)}"
            await call(port, "GET", target, headers)
        else:
            headers["Content-Type"] = "application/json"
            await call(port, "POST", f"{prefix}/up/{self.path}", headers, json.dumps(said).encode())


def drawn(seed: int, steps: int) -> list[list[Asked]]:
    """Steps one after the other; the requests of a step overlap, all with the first."""
    chance = random.Random(seed)
    told: list[list[Asked]] = []
    attempts = {"one": 1, "two": 1}
    while len(told) < steps:
        if chance.random() < 0.15:
            attempts[chance.choice(sorted(attempts))] += 1
            continue
        run = chance.choice(["", "", *attempts])
        status = chance.choice([200, 200, 200, 200, 404, 401, 429, 500, RESET])
        headers: list[tuple[str, str]] = []
        if chance.random() < 0.15:
            headers.append(("Idempotency-Key", f"key-{chance.randrange(3)}"))
        if chance.random() < 0.1:
            headers.append(("Semel-Occurrence", str(chance.randrange(1, 3))))
        if chance.random() < 0.1:
            headers.append(("x-stainless-retry-count", str(chance.randrange(2))))
        if chance.random() < 0.05:
            headers.append(("Semel-Refresh", "1"))
        one = Asked(
            path=chance.choice(PATHS),
            status=status,
            to=chance.randrange(3),
            run=f"{run}+a{attempts[run]}" if run else "",
            headers=tuple(headers),
            slow=chance.random() < 0.15,
        )
        told.append([one] * (chance.randrange(2, 4) if one.slow else 1))
        if chance.random() < 0.3:  # again, as an SDK would
            told.append([one])
    return told


@dataclass
class Upstream:
    port: int = 0
    started: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)  # slow answers wait for it
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while True:
                await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        finally:
            self.writers.discard(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
        self.started += 1
        target = head.split(b" ", 2)[1]
        if body:
            said = json.loads(body)
        else:
            query = dict(part.split(b"=") for part in target.partition(b"?")[2].split(b"&") if part)
            said = {name.decode(): int(value) for name, value in query.items()}
        if said.get("slow"):
            await self.gate.wait()
        if said.get("status") == RESET:
            reset_on_close(writer.get_extra_info("socket"))
            writer.transport.abort()
            raise ConnectionResetError
        answer = json.dumps({"target": target.decode(), "found": False}).encode()
        writer.write(
            b"HTTP/1.1 %d Said\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (said.get("status", 200), len(answer), answer)
        )
        await writer.drain()


@asynccontextmanager
async def upstream() -> AsyncIterator[Upstream]:
    one = Upstream()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()
        for writer in list(one.writers):
            writer.transport.abort()
        await until(lambda: not one.writers)


async def play(app: App, at: Upstream, steps: Sequence[Sequence[Asked]], *, shadow: bool) -> None:
    """As a client would: a step is over when its answers are here, and the next follows at once."""
    for step in steps:
        await _overlapping(app, at, step, shadow)
    await until(lambda: not app.shadow.under_way, within=60)


async def _overlapping(app: App, at: Upstream, step: Sequence[Asked], shadow: bool) -> None:
    """Each is sent when those before it have come to rest, and the upstream answers when all have: or chance
    would say who joins whom."""
    at.gate.clear()
    first, before = step[0], at.started
    asks: list[asyncio.Task[None]] = []

    def are_at_rest() -> bool:
        over, arrived = sum(ask.done() for ask in asks), at.started - before
        if not shadow:
            passed = arrived if (first.path, first.run) == ("read", "") else 0
            return over + passed + _waiting(app.flights, first) >= len(asks)
        works, judged = app.shadow.works, len(asks) - app.shadow.under_way
        all_out = over + arrived >= len(asks)
        return all_out and works is not None and judged + _waiting(works.flights, first) >= len(asks)

    for one in step:
        asks.append(asyncio.create_task(one(app.address.port)))
        if first.slow:
            with suppress(TimeoutError):
                await until(are_at_rest, within=1)
    at.gate.set()
    await asyncio.gather(*asks)


def _waiting(flights: Flights, asked: Asked) -> int:
    """How many callers wait. In a run, what is shared is a flight of its own, with callers of its own."""
    callers = [flight.callers for flight in flights.by_key.values()]
    if not asked.run or asked.path not in ("items", "shared"):
        return sum(callers)
    return sum(callers) // 2 if asked.path == "items" else max(callers, default=0)


async def figures(app: App) -> dict[str, Counter[tuple[str, ...]]]:
    """What /metrics has counted: by name, by the values of its labels, which come in the order of the
    alphabet."""
    shown = (await call(app.address.port, "GET", "/metrics", {"Semel-Token": OPERATOR})).body.decode()
    found: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for line in shown.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (.+)", line).groups()  # type: ignore[union-attr]
            values = tuple(re.findall(r'="([^"]*)"', labels or ""))
            if float(value):
                found[name][values] += float(value)  # type: ignore[assignment]
    return found
