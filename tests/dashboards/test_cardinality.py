"""However many paths, runs, tools, hosts and tokens there are: which series exist depends on the policies."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.counts import SOAK
from tests.http.shadowing import upstream
from tests.inside import call, read_answer, request_bytes, semel

# So many different ones of everything; after the first part nothing new may appear.
MANY = 10_000 if SOAK or os.environ.get("TEST_EVERY") else 1_000
FIRST = 300
AT_ONCE = 64
# In everything that a caller makes up, and in nothing else.
WORD = "zebra"
AGENTS = [f"agent-{WORD}-{number}" for number in range(10)]
METRICS = "metrics-token"
TOKENS = [
    *(Token(sha256=digest(one), tenant=f"tenant-{one}", role=Role.AGENT) for one in AGENTS),
    Token(sha256=digest(METRICS), tenant=WORD, role=Role.METRICS),
]
POLICY = """\
upstream: up
base_url: http://127.0.0.1:{port}
rules:
  - {{name: send, match: {{method: POST, path: /send/**}}, cost: {{usd: 0.25}}}}
  - {{name: items, match: {{method: GET, path: "/items/{{id}}"}}, mode: cache}}
  - {{name: looked-on, match: {{method: POST, path: /looked-on/**}}, shadow: true}}
  - {{name: never, match: {{path: /never/**}}, mode: deny}}
"""
SETTINGS = {"forward.unknown": "record", "forward.private": "allow"}


def request(number: int) -> bytes:
    """The number-th of all: what it asks for goes in turn, what it makes up is its own."""
    own = f"{WORD}-{number}"
    headers = {"Semel-Token": AGENTS[number % len(AGENTS)], "Semel-Tool": own, "User-Agent": own}
    post = {**headers, "Content-Type": "application/json"}
    body = b'{"status": 200, "n": %d}' % number
    match number % 20:
        case 0:
            return request_bytes("GET", f"/up/{own}", {**headers, "Semel-Token": f"wrong-{own}"})
        case 1:
            return request_bytes("POST", f"/{own}/{own}", post, body)
        case 2:
            return request_bytes("GET", f"/up/{own}", {**headers, f"Semel-{own}": own})
        case (
            3
        ):  # nobody is there; the same word is a host's name in no request, since that would be looked up
            host = f"127.1.{number // 250 % 250}.{number % 250}"
            return request_bytes("GET", f"http://{host}:1/{own}", headers, host=host)
        case 4 | 5:
            return request_bytes("GET", f"/up/items/{own}", headers)
        case 6:
            return request_bytes("GET", f"/up/never/{own}", headers)
        case 7:
            return request_bytes("POST", f"/up/looked-on/{own}", post, body)
        case 8 | 9:
            return request_bytes("GET", f"/up/{own}?{own}={number}", headers)
        case 10 | 11:
            more = {"Idempotency-Key": own, "Semel-Occurrence": str(number)}
            return request_bytes("POST", f"/up/{own}", {**post, **more}, body)
        case _:
            return request_bytes("POST", f"/@{own}+{own}/up/send/{own}", post, body)


async def ask(port: int, numbers: range) -> None:
    """Many at once, each on a connection that is used again as long as it stays."""

    async def lane(start: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers[start::AT_ONCE]:
            writer.write(request(number))
            got = await read_answer(reader)
            assert got.complete, (number, got)
            if got.get("Connection") == "close":
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()

    await asyncio.gather(*map(lane, range(AT_ONCE)))


async def shown(port: int) -> set[str]:
    """The series, without their values."""
    page = (await call(port, "GET", "/metrics", {"Semel-Token": METRICS})).body.decode()
    return {line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")}


async def test_what_callers_make_up_is_no_label(tmp_path: Path) -> None:
    """Nothing new after the first few hundred, and nowhere a word of theirs."""
    async with upstream() as origin:
        policy = POLICY.format(port=origin.port)
        async with semel(tmp_path, policy, settings=SETTINGS, store="memory", tokens=TOKENS) as app:
            port = app.address.port
            await ask(port, range(FIRST))
            first = await shown(port)
            await ask(port, range(FIRST, MANY))
            assert await shown(port) - first == set()
            assert not [line for line in first if WORD in line]
            statuses = ("executed", "passed", "refused")
            assert all(any(f'status="{one}"' in line for line in first) for one in statuses)
            assert any('upstream="unlisted"' in line for line in first)
            assert origin.started > MANY / 2
