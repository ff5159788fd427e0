"""A proxy with calls in its record, made through real exchanges, and a way to ask its desk."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from proxy.app import App
from proxy.settings import Token
from proxy.store.database import FILE_NAME
from tests.inside import Answer, call, raw_call, request_bytes, semel
from tests.origin import READ_ALL, Origin, Reset, Script, answer

JSON = {"Content-Type": "application/json"}
CHARGED = b'{"charge": "ch_1"}'
FINE: Script = (*READ_ALL, answer(201, CHARGED, (b"Content-Type", b"application/json")))
LOST: Script = (*READ_ALL, Reset())
POLICY = """upstream: pay
base_url: http://127.0.0.1:{port}
rules:
  - {{name: charge, match: {{method: POST, path: /charge}}, tool: charge_card, ttl: 3h}}
  - {{name: owned, match: {{path: "/by/{{api_token}}/{{thing}}"}}}}
"""


@dataclass(frozen=True, slots=True)
class Scene:
    app: App
    origin: Origin
    policies: Path

    @property
    def port(self) -> int:
        return self.app.address.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def charge(
        self, number: int = 1, path: str = "/charge", headers: Mapping[str, str] = JSON
    ) -> Answer:
        return await call(self.port, "POST", f"/pay{path}", headers, b'{"usd": %d}' % number)

    async def charged(self, number: int = 1, path: str = "/charge") -> str:
        """The call's id."""
        return str((await self.charge(number, path)).get("Semel-Call"))

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        host: str = "",
    ) -> Answer:
        """`path` behind /_semel/."""
        said = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        given = dict(JSON if body is not None else {}) | dict(headers or {})
        request = request_bytes(method, f"/_semel/{path}", given, said, host=host or f"127.0.0.1:{self.port}")
        return await raw_call(self.port, request, is_head=method == "HEAD")

    async def document(self, path: str) -> Any:
        got = await self.ask("GET", path)
        assert got.status == 200, got.body
        return json.loads(got.body)


@asynccontextmanager
async def scene(
    tmp_path: Path,
    *scripts: Script,
    tokens: Sequence[Token] = (),
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[Scene]:
    async with Origin(*(scripts or (FINE,))) as origin:
        policy = POLICY.format(port=origin.port)
        async with semel(tmp_path, policy, tokens=tokens, settings=settings) as app:
            yield Scene(app, origin, tmp_path / "policies")


def problem(got: Answer) -> tuple[int, str]:
    assert got.get("Content-Type") == "application/problem+json", got
    members = json.loads(got.body)
    assert members["status"] == got.status
    return got.status, members["type"].removeprefix("urn:semel:")


def damage(state: Path, call_id: str, change: str = "state = 'nonsense'") -> None:
    """Another hand in the database."""
    connection = apsw.Connection(str(state / FILE_NAME))
    connection.execute(f"UPDATE calls SET {change} WHERE key = ?", (bytes.fromhex(call_id),))
    connection.close()


def detail_of(got: Answer) -> str:
    return str(json.loads(got.body)["detail"])
