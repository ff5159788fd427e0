"""An operator's probe: what is found settles; what is hidden, or elsewhere, proves nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from proxy.app import App
from tests.crash.bank import Bank, Fault
from tests.http.test_approval import AGENT, OPERATOR, TOKENS, id_in, own, told
from tests.inside import Answer, call, raw_call, semel

POLICY = """\
upstream: api
base_url: http://127.0.0.1:{port}
hosts: ["127.0.0.1:{port}", "127.0.0.1:{other}"]
{inject}
timeout: {{connect: 300ms, idle: 300ms, total: 400ms}}
rules:
  - name: c
    match: {{method: POST, path: /c}}
    probe: {{request: {{path: "/c?ref={{body.ref}}"}}, found: "length(items) > `0`", settle: 0s}}
"""
JSON = {"Content-Type": "application/json", "Semel-Token": AGENT}
BODY = b'{"ref": "x"}'


async def probe(app: App, call_id: str) -> Answer:
    headers = {"Content-Type": "application/json", "Semel-Token": OPERATOR}
    return await own(app, "POST", f"{call_id}/probe", headers, b'{"reason": "r"}')


async def test_another_host_of_the_upstream_is_not_asked(tmp_path: Path) -> None:
    """Sent through the forward proxy to the second host; the first does not have it."""
    async with Bank() as one, Bank() as two:
        text = POLICY.format(port=one.port, other=two.port, inject="")
        async with semel(tmp_path, text, tokens=TOKENS) as app:
            place = f"127.0.0.1:{two.port}"
            head = f"POST http://{place}/c HTTP/1.1\r\nHost: {place}\r\nContent-Type: application/json\r\n"
            request = f"{head}Semel-Token: {AGENT}\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
            two.faults.append(Fault.RESET_AFTER)
            held = await raw_call(app.address.port, request)
            assert told(held) == "in-doubt"
            await asyncio.sleep(0.5)  # what was on its way has had its time
            refused = await probe(app, id_in(held))
            assert told(refused) == "still-in-doubt"
            assert "another address" in json.loads(refused.body)["detail"]
            assert told(await raw_call(app.address.port, request)) == "replayed 200"
    assert (len(one.acts), len(two.acts)) == (0, 1)


@asynccontextmanager
async def discreet(acts: list[object], status: int) -> AsyncIterator[int]:
    """An upstream that shows nothing to nobody."""

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            if request.headers.get("Authorization") == "good":
                return web.json_response({"items": acts})
            return web.json_response({"items": []}, status=status)
        acts.append(await request.json() if request.can_read_body else None)
        if len(acts) == 1:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({})

    runner = web.ServerRunner(web.Server(serve), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [200, 404])
async def test_without_a_credential_nothing_is_absent(
    tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstreams hide what they have from nobody; with the credential that semel holds it is found."""
    acts: list[object] = []
    monkeypatch.setenv("API_KEY", "good")
    async with discreet(acts, status) as port:
        text = POLICY.format(port=port, other=1, inject="")
        async with semel(tmp_path, text, tokens=TOKENS) as app:
            headers = {**JSON, "Authorization": "good"}
            held = id_in(await call(app.address.port, "POST", "/api/c", headers, BODY))
            await asyncio.sleep(0.5)
            refused = await probe(app, held)
            assert told(refused) == "still-in-doubt"
            assert "without a credential" in json.loads(refused.body)["detail"]
            inject = "inject: {header: Authorization, value_env: API_KEY}"
            held_by_semel = POLICY.format(port=port, other=1, inject=inject)
            (tmp_path / "policies" / "test.yaml").write_text(held_by_semel)
            assert await app.watch.check_now()
            assert (await probe(app, held)).status == 200
    assert len(acts) == 1
