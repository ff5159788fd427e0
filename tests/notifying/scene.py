"""Somebody who receives notifications and verifies them, and a semel that tells them."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook

from proxy.app import App
from tests.inside import Answer, call, raw_call, request_bytes, semel, until
from tests.origin import READ_ALL, Close, Origin, Script, Seen, answer

KEY = b"thirty-two bytes of a test's own"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
TAKEN: Script = (*READ_ALL, answer(204))
LOSES: Script = (*READ_ALL, Close())  # an upstream that takes the request and says nothing


def verified(seen: Seen) -> dict[str, Any]:
    """As a receiver does it, with the library that it uses. Raises for a wrong signature."""
    headers = {name.decode(): value.decode() for name, value in seen.headers}
    document: dict[str, Any] = Webhook(SECRET).verify(bytes(seen.body), headers)
    assert document["id"] == headers["webhook-id"]
    return document


@dataclass(slots=True)
class Scene:
    app: App
    origin: Origin
    receiver: Origin
    log: io.StringIO

    @property
    def port(self) -> int:
        return self.app.address.port

    async def post(self, number: int = 0, path: str = "/up/send") -> Answer:
        return await call(self.port, "POST", path, {}, b'{"number": %d}' % number)

    async def look(self, page: str) -> Answer:
        return await raw_call(self.port, request_bytes("GET", page, host=f"127.0.0.1:{self.port}"))

    async def told(self, count: int = 1) -> list[dict[str, Any]]:
        """So many notifications that arrived whole; all of them verified."""
        await until(lambda: len([one for one in self.receiver.requests if one.complete]) >= count)
        return [verified(one) for one in self.receiver.requests]

    async def counted(self, kind: str, result: str) -> int:
        return counted((await self.look("/metrics")).body, kind, result)

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]


def counted(page: bytes, kind: str, result: str) -> int:
    start = f'semel_notifications_total{{result="{result}",type="{kind}"}} '
    lines = [line for line in page.decode().splitlines() if line.startswith(start)]
    return int(float(lines[0].removeprefix(start))) if lines else 0


def settings_for(port: int, **more: object) -> dict[str, object]:
    return {
        "notify.url": f"http://127.0.0.1:{port}/hook?token=in-the-query",
        **{f"notify.{key}": value for key, value in more.items()},
    }


@asynccontextmanager
async def scene(
    tmp_path: Path,
    *answers: Script,
    upstream: tuple[Script, ...] = (LOSES,),
    settings: Mapping[str, object] | None = None,
    rules: str = "",
    store: str | None = None,
    receiver: Origin | None = None,
) -> AsyncIterator[Scene]:
    """`answers`: what the receiver does, one after the other; the last one stays."""
    log = io.StringIO()
    tmp_path.mkdir(exist_ok=True)
    async with Origin(*upstream) as origin, receiver or Origin(*(answers or (TAKEN,))) as hears:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n{rules}"
        given = {**settings_for(hears.port), **(settings or {})}
        async with semel(tmp_path, policy, settings=given, log=log, store=store) as app:
            yield Scene(app, origin, hears, log)
