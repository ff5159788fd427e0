"""Two tenants ask the same, in runs of the same name and outside: nobody sees an answer made for the other.

What they send differs only in a header that names nobody's call (X-Request-Id). The upstream writes it into
all it says, so every answer tells whom it was made for. Some send the very same bytes; for these the name of
the call must differ.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.conftest import STORES
from tests.counts import count
from tests.inside import Answer, call, semel

pytestmark = [
    pytest.mark.usefixtures("any_store"),
    pytest.mark.parametrize("any_store", [*STORES, "memory"], indirect=True),
]

PAIRS = count(test=400, soak=10_000)
TENANTS = {"acme": "semel_ann", "zenith": "semel_zoe"}
TOKENS = [Token(sha256=digest(token), tenant=name, role=Role.AGENT) for name, token in TENANTS.items()]
POLICY = """
upstream: up
base_url: http://127.0.0.1:{port}
rules:
  - {{name: cached, match: {{path: "/cached/*"}}, mode: cache, ttl: 1h}}
  - {{name: shared, match: {{path: "/shared/*"}}, mode: once, scope: tenant}}
  - {{name: same, match: {{path: "/same/*"}}, mode: once, repeat: same}}
  - {{name: said, match: {{method: POST, path: "/said/*"}}, mode: once, safe: true}}
  - {{name: open, match: {{path: "/open/*"}}, mode: once, key: {{credential: exclude}}}}
  - {{name: keyed, match: {{path: "/keyed/*"}}, mode: once, key: {{include: [text]}}}}
"""
KINDS = ("cached", "shared", "same", "said", "open", "keyed", "plain")  # for the last there is no rule
KNOWN = ("executed", "replayed", "joined", "passed", "refused")


class Upstream:
    """Every answer, good or bad, says in headers and body for whom it was made. Some fail."""

    def __init__(self, chance: random.Random) -> None:
        self.port = 0
        self._chance = chance

    async def __aenter__(self) -> Upstream:
        self._handler = web.Server(self._serve, access_log=None)
        self._server = await asyncio.get_running_loop().create_server(self._handler, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._handler.shutdown(1.0)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        asker = request.headers["X-Request-Id"]
        await asyncio.sleep(self._chance.choice([0, 0, 0.002]))  # long enough to be joined
        status = self._chance.choices([200, 404, 429, 500], [16, 1, 1, 1])[0]
        headers = {"X-Made-For": asker, "Set-Cookie": f"session={asker}", "ETag": f'"{asker}"'}
        if self._chance.random() < 0.5:
            return web.Response(status=status, headers=headers, text=f"made for {asker}")
        reply = web.StreamResponse(status=status, headers=headers | {"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        await reply.write(f"data: made for {asker}\n\n".encode())
        await reply.write(b"data: [DONE]\n\n")
        await reply.write_eof()
        return reply


@dataclass
class Seen:
    """What was answered to whom."""

    calls: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in TENANTS})
    how: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # run or not, kind, Semel-Status


@dataclass(frozen=True)
class Request:
    """What both ask. `attempts`: in which each asks it, one after the other; empty names outside runs."""

    method: str
    kind: str
    path: str
    body: bytes
    headers: dict[str, str]
    run: str
    attempts: tuple[str, ...]
    twin: str  # in a run: the X-Request-Id of both, who then differ in nothing but the token in their address


def drawn(chance: random.Random, number: int) -> Request:
    kind = chance.choice(KINDS)
    method = chance.choice(["GET", "POST", "POST"])
    headers = {"Authorization": "Bearer shared", "Content-Type": "application/json"}
    if chance.random() < 0.2:
        headers["Idempotency-Key"] = f"key-{kind}-{chance.randrange(5)}"
    if chance.random() < 0.1:
        headers["Semel-Occurrence"] = str(chance.randrange(1, 3))
    if chance.random() < 0.1:
        headers["Semel-Refresh"] = "1"
    times = chance.randrange(1, 4)
    run = f"run-{number}" if chance.random() < 0.5 else ""
    return Request(
        method=method,
        kind=kind,
        path=f"/{kind}/{chance.randrange(6)}",
        body=b'{"text": "%d"}' % chance.randrange(3) if method == "POST" else b"",
        headers=headers,
        run=run,
        attempts=tuple(sorted(chance.choice(["", "one", "two"]) for _ in range(times)))
        if run
        else ("",) * times,
        twin=f"twins-{number}" if run and chance.random() < 0.3 else "",
    )


class Pair:
    """One request, asked by two tenants at the same time or in turn, by any of the ways to say who speaks."""

    def __init__(self, ports: tuple[int, int], asked: Request, chance: random.Random, seen: Seen) -> None:
        self._semel, self._upstream = ports
        self._asked, self._chance, self._seen = asked, chance, seen

    async def play(self) -> None:
        tenants = self._chance.sample(list(TENANTS), 2)
        if self._chance.random() < 0.5:
            await asyncio.gather(*map(self._all_of, tenants))
        else:
            for tenant in tenants:
                await self._all_of(tenant)

    async def _all_of(self, tenant: str) -> None:
        attempts = self._asked.attempts
        if self._chance.random() < 0.3:
            answers = await asyncio.gather(*(self._ask(tenant, attempt) for attempt in attempts))
        else:
            answers = [await self._ask(tenant, attempt) for attempt in attempts]
        for answer in answers:
            self._check(tenant, answer)

    async def _ask(self, tenant: str, attempt: str) -> Answer:
        asked, token = self._asked, TENANTS[tenant]
        mark = asked.twin or f"{tenant}-{self._chance.randrange(10**9)}"
        headers = {**asked.headers, "X-Request-Id": mark}
        reference = f"{asked.run}+{attempt}" if attempt else asked.run
        target = f"/up{asked.path}"
        way = "address" if asked.twin else self._chance.choice(["header", "address", "proxy"])
        if way == "address" and asked.run:
            target = f"/@{reference}:{token}{target}"
        elif way == "proxy":
            user = base64.b64encode(f"{reference}:{token}".encode()).decode()
            headers["Proxy-Authorization"] = f"Basic {user}"
            target = f"http://127.0.0.1:{self._upstream}{asked.path}"
        else:
            headers["Semel-Token"] = token
            if asked.run:
                headers |= {"Semel-Run": asked.run} | ({"Semel-Attempt": attempt} if attempt else {})
        return await call(self._semel, asked.method, target, headers, asked.body)

    def _check(self, tenant: str, answer: Answer) -> None:
        (other,) = TENANTS.keys() - {tenant}
        whole = b"\n".join([*(b"%b: %b" % pair for pair in answer.headers), answer.body])
        assert other.encode() not in whole, f"{tenant} was shown {other}'s: {self._asked} {answer}"
        assert answer.complete
        assert answer.semel in KNOWN
        if answer.semel != "refused":
            assert tenant.encode() in answer.body or b"twins-" in answer.body
        if identifier := answer.get("Semel-Call"):
            self._seen.calls[tenant].add(identifier)
        self._seen.how["run" if self._asked.run else "outside", self._asked.kind, str(answer.semel)] += 1


@pytest.mark.timeout(1800)
async def test_nobody_sees_an_answer_made_for_another(tmp_path: Path) -> None:
    """Cached, shared, guarded, joined, replayed, failed, in doubt: an answer is its tenant's alone."""
    seed = int(os.environ.get("SEMEL_SEED", "0")) or random.randrange(2**32)
    print(f"SEMEL_SEED={seed}")
    chance, seen = random.Random(seed), Seen()
    async with Upstream(random.Random(seed)) as upstream:
        policy = POLICY.format(port=upstream.port)
        async with semel(tmp_path, policy, tokens=TOKENS) as app:
            ports = app.address.port, upstream.port
            for number in range(PAIRS // 2):  # on each of two stores, or more
                await Pair(ports, drawn(chance, number), chance, seen).play()
    assert not seen.calls["acme"] & seen.calls["zenith"], "a call has one tenant"
    assert all(seen.calls.values())
    # Not in vain: answers were given again and shared, everywhere where they could have been another's.
    for where in ("run", "outside"):
        for kind in KINDS:
            again = seen.how[where, kind, "replayed"] + seen.how[where, kind, "joined"]
            assert again or (where, kind) == ("outside", "said"), (where, kind, seen.how)
