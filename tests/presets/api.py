"""An API for all scenarios at once: it answers each case from that case's own list, and keeps what it got.

A request says which case it belongs to in a header that names no call. Without an answer in its list a
request is left waiting, as by an API that has not answered yet.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from tests.presets.cases import Told

CASE = "X-Case"
NUMBERS = itertools.count(1)


def new_case() -> str:
    return f"case-{next(NUMBERS)}"


@dataclass(frozen=True, slots=True)
class Received:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    def key(self, place: str) -> str | None:
        """`place`: "header NAME" or "body FIELD"."""
        kind, _, name = place.partition(" ")
        if kind == "header":
            return self.headers.get(name.lower())
        node: Any = json.loads(self.body)
        for step in name.split("."):
            node = node.get(step) if isinstance(node, dict) else None
        return None if node is None else str(node)


class Api:
    """`async with Api() as api`."""

    def __init__(self) -> None:
        self.port = 0
        self.answers: defaultdict[str, deque[Told]] = defaultdict(deque)
        self.received: defaultdict[str, list[Received]] = defaultdict(list)
        self.total = 0
        self._over = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        case = request.headers[CASE]
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received[case].append(Received(request.method, request.raw_path, headers, body))
        self.total += 1
        if not self.answers[case]:
            await self._over.wait()
            return web.Response(status=503)
        told = self.answers[case].popleft()
        return web.Response(status=told.status, headers=told.all_headers, body=told.body)

    def policies(self, directory: Path, presets: list[str]) -> Path:
        """Of each preset a file of one's own, that only says where it is."""
        directory.mkdir(exist_ok=True)
        for name in presets:
            text = f"upstream: {name}\nextends: {name}\nbase_url: http://127.0.0.1:{self.port}/{name}\n"
            (directory / f"{name}.yaml").write_text(text)
        return directory
