"""The upstream of the busy agent: it counts everything, and says what a call did if somebody has to know."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

from aiohttp import web

POLICY = """
upstream: up
base_url: http://127.0.0.1:{port}
rules:
  - name: model
    match: {{method: POST, path: /model}}
    safe: true
  - name: guarded
    match: {{method: POST, path: /guarded}}
    repeat: same
  - name: charge
    match: {{method: POST, path: /charge}}
  - name: mail
    match: {{method: POST, path: /mail}}
"""
POLLS = 3  # a job is done at the third look


class BusyWorld:
    """`async with BusyWorld() as world:`; `asked` counts requests by what they ask and how that was answered,
    `done` effects, `regrets` what was asked though an effect had been made because of its first answer."""

    def __init__(self, *, slow: float = 0.0) -> None:
        self.asked: Counter[str] = Counter()
        self.done: dict[str, list[bytes]] = {}  # by call: what it answered, each time it took effect
        self.regrets: list[str] = []
        self.port = 0
        self._slow = slow
        self._things: set[str] = set()
        self._polls: Counter[str] = Counter()

    async def __aenter__(self) -> BusyWorld:
        loop = asyncio.get_running_loop()
        self._handler = web.Server(self._serve, access_log=None)
        self._server = await loop.create_server(self._handler, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._handler.shutdown(1.0)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        name = f"{request.method} {request.raw_path} {body.decode()}"
        path = request.raw_path.split("?")[0].split("/")[1]
        answer: web.StreamResponse = await getattr(self, "_" + path.replace("-", "_"))(request, name, body)
        self.asked[f"{name} -> {answer.status}"] += 1
        return answer

    async def _model(self, request: web.BaseRequest, name: str, body: bytes) -> web.StreamResponse:
        asked = json.loads(body)
        said = f"{len(asked['messages'])} messages, the last: {asked['messages'][-1]['content'][:40]}"
        if not asked["stream"]:
            await asyncio.sleep(self._slow)
            return _json({"text": said})
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        for word in said.split(" "):
            await reply.write(b"data: " + json.dumps({"delta": word + " "}).encode() + b"\n\n")
            await asyncio.sleep(self._slow / 10)
        await reply.write(b"data: [DONE]\n\n")
        await reply.write_eof()
        return reply

    async def _search(self, request: web.BaseRequest, name: str, body: bytes) -> web.StreamResponse:
        await asyncio.sleep(self._slow)
        return _json({"result": f"found {request.raw_path}"})

    _sample = _other = _search

    async def _job(self, request: web.BaseRequest, name: str, body: bytes) -> web.StreamResponse:
        self._polls[name] += 1
        return _json({"state": "done" if self._polls[name] >= POLLS else "running"})

    async def _effect(self, request: web.BaseRequest, name: str, body: bytes) -> web.StreamResponse:
        answer = json.dumps({"done": json.loads(body)}).encode()
        await asyncio.sleep(self._slow)
        self.done.setdefault(name, []).append(answer)
        await asyncio.sleep(self._slow)
        return web.Response(body=answer, content_type="application/json")

    _charge = _mail = _remind = _guarded = _provider_b = _effect

    async def _provider_a(self, request: web.BaseRequest, name: str, body: bytes) -> web.StreamResponse:
        """Always busy. Once the other one was used because of that, nobody may ask again."""
        number = json.loads(body)["round"]
        if any(f'"round": {number},' in name for name in self.done if "/provider-b" in name):
            self.regrets.append(name)
        return _json({"error": "busy"}, status=429)

    async def _thing(self, request: web.BaseRequest, name: str, body: bytes) -> web.StreamResponse:
        if request.method == "POST":
            self._things.add(json.loads(body)["name"])
            return await self._effect(request, name, body)
        known = request.raw_path.rsplit("/", 1)[1] in self._things
        return _json({"thing": request.raw_path} if known else {"error": "none"}, 200 if known else 404)


def _json(said: Any, status: int = 200) -> web.Response:
    return web.Response(body=json.dumps(said).encode(), status=status, content_type="application/json")
