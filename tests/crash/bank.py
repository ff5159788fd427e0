"""An upstream with books: it acts, remembers keys, can be asked what it did, and fails when it is told to.

    POST /b   acts once per Idempotency-Key, and answers the same again; 422 for another body
    POST /c   acts each time, and files what it did under the body's `ref`
    POST /d   acts each time
    GET /c?ref=R   what was filed under R

Whatever a proxy says, `acts` is what really happened.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from aiohttp import web


class Fault(StrEnum):
    """What becomes of the next request, before or after the bank has acted."""

    RESET_BEFORE = "reset before the act"
    RESET_AFTER = "reset after the act"
    SILENT_AFTER = "no answer after the act"
    HEAD_AFTER = "a head and no body after the act"
    ERROR_BEFORE = "500 before the act"
    ERROR_AFTER = "503 after the act"
    BUSY = "429"
    UNPAID = "402"
    STRANGER = "401"
    FORBIDDEN = "403"
    WRONG = "400"
    GONE = "410"
    CONFLICT = "409"
    ELSEWHERE = "302"
    TIMEOUT = "408"


STATUSES = {
    Fault.BUSY: 429, Fault.UNPAID: 402, Fault.STRANGER: 401, Fault.FORBIDDEN: 403, Fault.WRONG: 400,
    Fault.GONE: 410, Fault.CONFLICT: 409, Fault.ELSEWHERE: 302, Fault.TIMEOUT: 408, Fault.ERROR_BEFORE: 500,
}  # fmt: skip


@dataclass
class Bank:
    faults: deque[Fault] = field(default_factory=deque)
    padding: str = ""  # in every answer
    second_half: asyncio.Event | None = None  # answers wait for it in their middle
    acts: list[dict[str, Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)  # what each act was asked with
    posts: int = 0  # that came whole
    keys: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    port: int = 0
    _known: dict[str, tuple[bytes, dict[str, Any]]] = field(default_factory=dict)
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        if request.method == "GET":
            filed = [act for act in self.acts if act.get("ref") == request.query.get("ref")]
            return web.json_response({"items": filed})
        body = await request.read()
        self.posts += 1
        fault = self.faults.popleft() if self.faults else None
        if fault is Fault.RESET_BEFORE:
            return self._cut(request)
        if fault in STATUSES:
            return web.json_response({"said": fault}, status=STATUSES[fault])
        key = request.headers.get("Idempotency-Key", "") if request.path == "/b" else ""
        act = self._acted(key, body)
        if act is None:
            return web.json_response({"error": "this key was used for another request"}, status=422)
        match fault:
            case Fault.RESET_AFTER:
                return self._cut(request)
            case Fault.SILENT_AFTER:
                await self._over.wait()
                return self._cut(request)
            case Fault.HEAD_AFTER:
                response = web.StreamResponse(headers={"Content-Length": "1000"})
                await response.prepare(request)
                return self._cut(request)
            case Fault.ERROR_AFTER:
                return web.json_response({"said": "it may have happened"}, status=503)
        return await self._answer(request, act)

    def _acted(self, key: str, body: bytes) -> dict[str, Any] | None:
        """What it did, now or before under this key; None: the key stands for something else."""
        self.keys.append(key)
        if key in self._known:
            first, act = self._known[key]
            return act if first == body else None
        act = {"id": len(self.acts) + 1, "ref": json.loads(body).get("ref"), "padding": self.padding}
        self.acts.append(act)
        self.asked.append(json.loads(body))
        if key:
            self._known[key] = (body, act)
        return act

    async def _answer(self, request: web.BaseRequest, act: dict[str, Any]) -> web.StreamResponse:
        said = json.dumps(act).encode()
        if self.second_half is None:
            return web.Response(body=said, content_type="application/json")
        response = web.StreamResponse(
            headers={"Content-Length": str(len(said)), "Content-Type": "application/json"}
        )
        await response.prepare(request)
        half = len(said) // 2
        await response.write(said[:half])
        await self.second_half.wait()
        await response.write(said[half:])
        return response

    def _cut(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()
