"""A proxy with runs in its record, made by agents that call through it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from proxy.settings import Token
from tests.admin.scene import FINE, JSON, LOST, Scene
from tests.inside import Answer, call, semel
from tests.origin import READ_ALL, Origin, Script, answer

SEEN: Script = (*READ_ALL, answer(200, b'{"seen": true}', (b"Content-Type", b"application/json")))
POLICY = """upstream: pay
base_url: http://127.0.0.1:{port}
rules:
  - {{name: charge, match: {{method: POST, path: /charge}}, tool: charge_card, cost: {{usd: 0.25}}}}
  - {{name: mail, match: {{method: POST, path: /mail}}, tool: send_mail}}
  - name: owned
    match: {{method: GET, path: "/by/{{api_token}}/{{thing}}"}}
    key: {{include: [query.page]}}
"""


@asynccontextmanager
async def run_scene(
    tmp_path: Path,
    *scripts: Script,
    tokens: Sequence[Token] = (),
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[Scene]:
    async with Origin(*scripts) as origin:
        policy = POLICY.format(port=origin.port)
        async with semel(tmp_path, policy, tokens=tokens, settings=settings) as app:
            yield Scene(app, origin, tmp_path / "policies")


async def ask(
    world: Scene,
    ref: str,
    method: str,
    path: str,
    said: object = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """`ref` is RUN+ATTEMPT."""
    body = b"" if said is None else json.dumps(said).encode()
    given = dict(JSON if said is not None else {}) | dict(headers or {})
    return await call(world.port, method, f"/@{ref}/pay{path}", given, body)


async def charge(world: Scene, ref: str, usd: int, **headers: str) -> Answer:
    return await ask(world, ref, "POST", "/charge", {"usd": usd}, headers)


async def two_attempts(world: Scene, run: str = "r") -> None:
    """a1: charge 1, read, charge 2, mail (in doubt). a2: charge 1 and read again, then it stops.
    The origin plays FINE, SEEN, FINE, LOST for it."""
    first, second = f"{run}+a1", f"{run}+a2"
    await charge(world, first, 1)
    await ask(world, first, "GET", "/look")
    await charge(world, first, 2)
    assert (await ask(world, first, "POST", "/mail", {"to": "ann"})).status == 409
    assert (await charge(world, second, 1)).get("Semel-Status") == "replayed"
    assert (await ask(world, second, "GET", "/look")).get("Semel-Status") == "replayed"


TWO_ATTEMPTS: tuple[Script, ...] = (FINE, SEEN, FINE, LOST)


async def decide(world: Scene, path: str, **said: Any) -> Answer:
    return await world.ask("POST", f"runs/{path}", said)
