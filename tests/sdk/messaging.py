"""Small APIs for mail and messages, as Resend, Slack and Twilio document theirs, with TLS and without.

Each keeps what it really sent, and can fail: before it acts, or after.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from tests.sdk.scene import Served

CUT = "cut"  # done, but nobody hears of it
# Slack's own words: "It's possible some aspect of the operation succeeded before the error was raised".
DONE_ALL_THE_SAME = (CUT, "fatal_error")


class Api(Served):
    """`async with Mails() as mails`; the next requests get `faults`: a status, CUT, or an API's own error."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: deque[int | str] = deque()
        self.asked = 0
        self.sent: list[str] = []  # the texts

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        body = await request.read()
        fault = self.faults.popleft() if self.faults else None
        done = self.act(request, body) if fault is None or fault in DONE_ALL_THE_SAME else None
        if fault == CUT and request.transport is not None:
            request.transport.abort()
        return self.refuse(fault) if done is None or fault not in (None, CUT) else done

    def act(self, request: web.Request, body: bytes) -> web.Response:
        raise NotImplementedError

    def refuse(self, fault: int | str | None) -> web.Response:
        raise NotImplementedError


class Mails(Api):
    """Resend: POST /emails. The same key and payload give the same answer, and nothing is sent
    (https://resend.com/docs/dashboard/emails/idempotency-keys)."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str | None] = []
        self._by_key: dict[str, tuple[bytes, dict[str, str]]] = {}

    def act(self, request: web.Request, body: bytes) -> web.Response:
        assert (request.method, request.path) == ("POST", "/emails")
        key = request.headers.get("Idempotency-Key")
        self.keys.append(key)
        if key is not None and key in self._by_key:
            before, answer = self._by_key[key]
            return web.json_response(answer) if before == body else self.refuse("invalid_idempotent_request")
        self.sent.append(str(json.loads(body)["text"]))
        answer = {"id": f"49a3999c-0ce1-4ea6-ab68-{len(self.sent):012}"}
        if key is not None:
            self._by_key[key] = (body, answer)
        return web.json_response(answer)

    def refuse(self, fault: int | str | None) -> web.Response:
        names = {429: "rate_limit_exceeded", 500: "internal_server_error"}
        status, name = (
            (409, fault) if isinstance(fault, str) else (fault or 500, names.get(fault or 500, "…"))
        )
        told = {"statusCode": status, "name": name, "message": "…"}
        return web.json_response(told, status=status, headers={"retry-after": "0"} if status == 429 else {})


class Channel(Api):
    """Slack: POST /api/chat.postMessage (https://docs.slack.dev/reference/methods/chat.postMessage), with a
    form too; one method that reads; incoming webhooks."""

    def act(self, request: web.Request, body: bytes) -> web.Response:
        if request.path == "/api/conversations.list":
            return web.json_response({"ok": True, "channels": [{"id": "C1", "name": f"n{self.asked}"}]})
        is_form = request.content_type == "application/x-www-form-urlencoded"
        message = dict(parse_qsl(body.decode())) if is_form else json.loads(body)
        self.sent.append(str(message["text"]))
        if request.path.startswith("/services/"):
            return web.Response(text="ok")
        assert (request.method, request.path) == ("POST", "/api/chat.postMessage")
        ts = f"1503435956.{len(self.sent):06}"
        posted = {"type": "message", "text": message["text"], "ts": ts}
        told = {"ok": True, "channel": message["channel"], "ts": ts, "message": posted}
        return web.json_response(told)

    def refuse(self, fault: int | str | None) -> web.Response:
        if fault == 429:
            told = {"ok": False, "error": "ratelimited"}
            return web.json_response(told, status=429, headers={"Retry-After": "0"})
        if isinstance(fault, int):
            return web.Response(status=fault, text="<html></html>", content_type="text/html")
        return web.json_response({"ok": False, "error": fault})


class Texts(Api):
    """Twilio: POST …/Messages.json (https://www.twilio.com/docs/messaging/api/message-resource)."""

    def act(self, request: web.Request, body: bytes) -> web.Response:
        _, version, accounts, account, resource = request.path.split("/")
        assert (version, accounts, resource) == ("2010-04-01", "Accounts", "Messages.json")
        form = dict(parse_qsl(body.decode()))
        self.sent.append(form["Body"])
        told: dict[str, Any] = {"sid": f"SM{len(self.sent):032}", "account_sid": account, "status": "queued"}
        told |= {"to": form["To"], "from": form["From"], "body": form["Body"], "api_version": version}
        return web.json_response(told, status=201)

    def refuse(self, fault: int | str | None) -> web.Response:
        status = int(fault or 500)
        code = {429: 20429, 500: 20500}[status]
        told = {"code": code, "message": "…", "status": status}
        return web.json_response(told, status=status)
