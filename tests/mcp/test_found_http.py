"""What an attack on MCP over HTTP found."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.inside import call as http
from tests.mcp.bank import Bank
from tests.mcp.scene import inside

PAY = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "pay", "arguments": {"order": "1"}},
}
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@pytest.mark.parametrize("method", ["PUT", "PATCH", "post", "Post", "GET", "DELETE", "OPTIONS", "QUERY"])
async def test_a_call_by_another_method(tmp_path: Path, method: str) -> None:
    """A server that does not look at the method would make the call, and nobody would have it on record."""
    async with Bank() as bank, inside(tmp_path, bank.port) as semel:
        await http(semel.port, method, semel.path(), JSON, json.dumps(PAY).encode())
        assert len(bank.paid) == len(await semel.calls()) or not bank.paid


@asynccontextmanager
async def server(serve: Any) -> AsyncIterator[int]:
    runner = web.ServerRunner(web.Server(serve), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def test_a_list_of_tools_that_is_compressed(tmp_path: Path) -> None:
    """What a server says of its tools counts, however it is written."""
    made: list[str] = []

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        said = json.loads(await request.read())
        if said["method"] == "tools/list":
            result: Any = {"tools": [{"name": "wipe", "annotations": {"destructiveHint": True}}]}
        else:
            made.append(said["params"]["name"])
            result = {"content": []}
        body = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}).encode())
        return web.Response(
            body=body, headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}
        )

    more = "rules:\n  - name: all\n    match: {tool: '*'}\n    safe: true"
    async with server(serve) as port, inside(tmp_path, port, more) as semel:
        for body in (
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wipe"}},
            {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "wipe"}},
        ):
            await http(
                semel.port,
                "POST",
                semel.path(),
                {**JSON, "Accept-Encoding": "gzip"},
                json.dumps(body).encode(),
            )
    assert made == ["wipe"]


async def test_arguments_that_stand_in_headers_too(tmp_path: Path) -> None:
    """2026-07-28 has arguments repeated in headers. What a rule hides is hidden there as well."""
    more = "rules:\n  - name: all\n    match: {tool: '*'}\n    redact: {args: [ssn]}"
    async with Bank() as bank, inside(tmp_path, bank.port, more) as semel:
        said = {**PAY, "params": {"name": "pay", "arguments": {"order": "1", "ssn": "123-45-6789"}}}
        headers = {**JSON, "Mcp-Param-Ssn": "123-45-6789", "Mcp-Name": "pay"}
        await http(semel.port, "POST", semel.path(), headers, json.dumps(said).encode())
        (call,) = await semel.calls()
        shown = await semel.own("GET", f"calls/{call['id']}")
        assert b"123-45" not in shown.body
    for file in (tmp_path / "state").rglob("*"):
        if file.is_file():
            assert b"123-45-6789" not in file.read_bytes(), file


@pytest.mark.parametrize("events", [True, False])
async def test_a_response_in_an_array(tmp_path: Path, events: bool) -> None:
    """Of 2025-03-26: a server may put several messages together."""
    made: list[str] = []

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        said = json.loads(await request.read())
        made.append(said["params"]["name"])
        text = json.dumps([{"jsonrpc": "2.0", "id": said["id"], "result": {"content": []}}])
        if events:
            return web.Response(text=f"data: {text}\n\n", content_type="text/event-stream")
        return web.Response(text=text, content_type="application/json")

    async with server(serve) as port, inside(tmp_path, port) as semel:
        first = await http(semel.port, "POST", semel.path(), JSON, json.dumps(PAY).encode())
        assert first.semel == "executed"
        second = await http(semel.port, "POST", semel.path(), JSON, json.dumps({**PAY, "id": 2}).encode())
    assert (second.semel, len(made)) == ("replayed", 1)
    assert second.body == first.body.replace(b'"id": 1', b'"id": 2')


@pytest.mark.parametrize("id_", ["\ud800", 10**630, "x" * 100000, -1, 2**70, ""])
async def test_odd_ids(tmp_path: Path, id_: object) -> None:
    """A client may choose them as it likes."""
    async with Bank() as bank, inside(tmp_path, bank.port) as semel:
        for path in (semel.path("n+a"), semel.path("n+b"), semel.path()):
            said = {**PAY, "id": id_}
            headers = {**JSON, "Mcp-Session-Id": "s"}
            answer = await http(semel.port, "POST", path, headers, json.dumps(said).encode())
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}}
            answer = await http(semel.port, "POST", path, headers, json.dumps(cancel).encode())
            batch = json.dumps([said, {**said, "method": "ping"}]).encode()
            answer = await http(semel.port, "POST", path, headers, batch)
            assert answer.status == 200


@pytest.mark.parametrize(
    "method", ["tools/call\0", "tools/call\0x", "\ufefftools/call", "tools/call\ud800", "tools/c\u00adall"]
)
async def test_methods_in_disguise(tmp_path: Path, method: str) -> None:
    """Some readers see a call in them."""
    async with Bank() as bank, inside(tmp_path, bank.port) as semel:
        answer = await http(
            semel.port, "POST", semel.path(), JSON, json.dumps({**PAY, "method": method}).encode()
        )
        assert answer.status == 400


@pytest.mark.parametrize(
    "body", [b"", gzip.compress(b"x" * 100)[:-8], b"<html>"], ids=["none", "half", "other"]
)
async def test_an_answer_that_cannot_be_decoded(tmp_path: Path, body: bytes) -> None:
    """Nobody can say that there is a response in it: the call is held, not taken for done."""

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        return web.Response(body=body, headers=headers)

    async with server(serve) as port, inside(tmp_path, port) as semel:
        await http(semel.port, "POST", semel.path(), JSON, json.dumps(PAY).encode())
        assert await semel.states() == ["in_doubt"]


async def test_a_long_answer_that_is_compressed(tmp_path: Path) -> None:
    """It is kept without being looked into."""
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": [], "x": "x" * 9 * 2**20}}).encode()

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        return web.Response(body=gzip.compress(text), headers=headers)

    async with server(serve) as port, inside(tmp_path, port) as semel:
        await http(semel.port, "POST", semel.path(), JSON, json.dumps(PAY).encode())
        assert await semel.states() == ["done"]
