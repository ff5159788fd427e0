"""What is no JSON-RPC with one meaning goes nowhere: some reader might take it for a call.

Nothing is executed then and nothing recorded, and the client is told what is wrong in the protocol's words.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.inside import call as http
from tests.mcp.bank import Bank
from tests.mcp.clients import LEGACY, MODERN, REFUSED
from tests.mcp.scene import Behind, inside
from tests.mcp.servers import Shop
from tests.mcp.tap import Tap

PARSE, REQUEST, PARAMS = -32700, -32600, -32602
PAY = '{"name": "pay", "arguments": {"order": "1"}}'


class Bad(NamedTuple):
    body: bytes
    code: int
    id: object = None


def said(text: str, code: int, id_: object = None) -> Bad:
    return Bad(text.encode(), code, id_)


def call_of(params: str, more: str = '"id": 7') -> str:
    return f'{{"jsonrpc": "2.0", {more}, "method": "tools/call", "params": {params}}}'


BAD = {
    "broken": said(call_of(PAY)[:-1], PARSE),
    "empty": said("", PARSE),
    "two of them": said(call_of(PAY) + call_of(PAY), PARSE),
    "no text": Bad(call_of(PAY).encode().replace(b"call", b"call\xff"), PARSE),
    "utf-16": Bad(call_of(PAY).encode("utf-16"), PARSE),
    "a mark at its head": Bad(call_of(PAY).encode("utf-8-sig"), PARSE),
    "a trailing comma": said(call_of(PAY)[:-1] + ",}", PARSE),
    "a comment": said(call_of(PAY, '/* */ "id": 7'), PARSE),
    "a number": said("7", REQUEST),
    "a text": said('"tools/call"', REQUEST),
    "null": said("null", REQUEST),
    "an empty batch": said("[]", REQUEST),
    "a batch of numbers": said("[1]", REQUEST),
    "a batch within a batch": said(f"[[{call_of(PAY)}]]", REQUEST),
    "a method twice": said(call_of(PAY, '"id": 7, "method": "ping"'), REQUEST),
    "an id twice": said(call_of(PAY, '"id": 7, "id": 8'), REQUEST),
    "a name twice": said(call_of('{"name": "look", "name": "pay"}'), REQUEST),
    "arguments twice": said(call_of('{"name": "pay", "arguments": {}, "arguments": {}}'), REQUEST),
    "a method in disguise": said(call_of(PAY, '"id": 7, "meth\\u006fd": "ping"'), REQUEST),
    "Method": said(call_of(PAY).replace('"method"', '"Method"'), REQUEST),
    "both": said(call_of(PAY, '"id": 7, "METHOD": "ping"'), REQUEST),
    "Params": said(call_of(PAY).replace('"params"', '"Params"'), REQUEST),
    "Name": said(call_of('{"Name": "pay", "arguments": {}}'), REQUEST),
    "a method that is no text": said(call_of(PAY).replace('"tools/call"', '["tools/call"]'), REQUEST, 7),
    "no id": said(call_of(PAY, '"x": 7'), REQUEST),
    "a null id": said(call_of(PAY, '"id": null'), REQUEST),
    "a half id": said(call_of(PAY, '"id": 1.5'), REQUEST),
    "a true id": said(call_of(PAY, '"id": true'), REQUEST),
    "an array as id": said(call_of(PAY, '"id": [1]'), REQUEST),
    "no params": said('{"jsonrpc": "2.0", "id": "x", "method": "tools/call"}', PARAMS, "x"),
    "an array as params": said(call_of('["pay"]'), PARAMS, 7),
    "an array as arguments": said(call_of('{"name": "pay", "arguments": []}'), PARAMS, 7),
    "a text as arguments": said(call_of('{"name": "pay", "arguments": "x"}'), PARAMS, 7),
    "no name": said(call_of('{"arguments": {"order": "1"}}'), PARAMS, 7),
    "an empty name": said(call_of('{"name": ""}'), PARAMS, 7),
    "a number as name": said(call_of('{"name": 7}'), PARAMS, 7),
    "one bad in a batch": said("[" + call_of(PAY) + ", " + call_of("{}", '"id": 2') + "]", PARAMS, 2),
}
DEEP = b"[" * 50_000 + b"]" * 50_000


class Scene(NamedTuple):
    semel: Behind
    far: Tap
    shop: Shop


@pytest_asyncio.fixture
async def scene(tmp_path: Path, shop: Shop) -> AsyncIterator[Scene]:
    limits = {"limits.request_body": "64KiB"}
    async with Tap(shop.ports["json"]) as far, inside(tmp_path, far.port, settings=limits) as semel:
        yield Scene(semel, far, shop)


@pytest.mark.parametrize("era", [LEGACY, MODERN], ids=["legacy", "modern"])
async def test_what_cannot_be_read_goes_nowhere(scene: Scene, era: str) -> None:
    """One after the other to one semel; each is answered with an error, under its id where that is known."""
    wire = await scene.semel.wire(era, "night+a1")
    routing = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "pay"}
    before = len(scene.far.sent_up)
    for name, bad in BAD.items():
        heard = await wire.post(bad.body, routing if era == MODERN else {})
        assert (heard.status, heard.semel) == (400, "refused"), name
        assert (heard.last["jsonrpc"], heard.last["id"]) == ("2.0", bad.id), name
        assert heard.last["error"]["code"] == bad.code, (name, heard.last)
        assert heard.last["error"]["message"], name
    assert len(scene.far.sent_up) == before
    assert await scene.semel.calls() == []
    assert scene.shop.ledger.lines == []


async def test_what_cannot_be_read_is_no_form_either(tmp_path: Path) -> None:
    """Forms pass, for the sake of tokens. A server that does not look at the type would take one of these
    for a call, and nobody would have it on record."""
    async with Bank() as bank, inside(tmp_path, bank.port) as semel:
        for name, bad in BAD.items():
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = await http(semel.port, "POST", semel.path(), headers, bad.body)
            assert (answer.status, answer.semel) == (400, "refused") or name == "empty", name
        assert await semel.calls() == []
    assert bank.asked == []


async def test_a_body_that_is_too_long(scene: Scene) -> None:
    """It is not read to its end, so there is no id to answer under."""
    wire = await scene.semel.wire(LEGACY)
    before = len(scene.far.sent_up)
    for body in (wire.call_body("pay", {"order": "x" * 70_000}), DEEP):
        answer = await http(scene.semel.port, "POST", wire.path, {**wire.headers}, body)
        assert (answer.status, answer.semel) == (413, "refused")
        assert b"request_body" in answer.body
    assert len(scene.far.sent_up) == before
    assert await scene.semel.calls() == []
    assert scene.shop.ledger.lines == []


async def test_deep_nesting_within_the_limit(tmp_path: Path, shop: Shop) -> None:
    """Nothing breaks on it."""
    async with inside(tmp_path, shop.ports["json"]) as semel:
        wire = await semel.wire(LEGACY)
        deep = json.dumps({"order": "1"}).encode().replace(b'"1"', DEEP)
        body = wire.call_body("pay", {}).replace(b"{}", deep)
        heard = await wire.post(body)
        assert (heard.status, heard.last["error"]["code"]) == (400, PARSE)
        assert (await wire.call("pay", {"order": "1"})).semel == "executed"
    assert shop.ledger.lines == ["pay 1"]


@pytest.mark.parametrize("era", [LEGACY, MODERN], ids=["legacy", "modern"])
async def test_what_only_the_server_can_judge_is_judged_by_it(scene: Scene, era: str) -> None:
    """Methods that semel does not know, and messages that can be no call: as the server answers."""
    wire = await scene.semel.wire(era)
    for method in ("no/such/method", "tools/call ", "tools/callx", "call"):
        heard = await wire.ask(method, {"name": "pay", "arguments": {"order": "1"}}, id="x")
        assert heard.semel == "passed", method
        assert "error" in heard.last, (method, heard.last)
    said_by_server = await wire.post(b'{"jsonrpc": "2.0", "id": 7, "result": {}}')
    assert said_by_server.semel == "passed"
    assert await scene.semel.calls() == []
    assert scene.shop.ledger.lines == []


async def test_names_and_arguments_that_the_server_does_not_like(scene: Scene) -> None:
    """These are calls, and what the server says of them is its answer."""
    wire = await scene.semel.wire(LEGACY)
    for tool, arguments in (
        ("no_such_tool", {}),
        ("pay", {"order": 7}),
        ("pay", {}),
        ("../pay", {}),
        ("p/ä y", {}),
    ):
        heard = await wire.call(tool, arguments)
        assert heard.semel == "executed", tool
        assert heard.last["result"]["isError"], tool
        assert (await wire.call(tool, arguments, id=2)).semel == "replayed", tool
    nothing = await wire.ask("tools/call", {"name": "pay", "arguments": None}, id=3)
    without = await wire.ask("tools/call", {"name": "pay"}, id=4)
    assert (nothing.semel, without.semel) == ("replayed", "replayed"), "none, null and {} are the same"
    assert scene.shop.ledger.lines == []


async def test_semels_own_refusals_are_errors_of_the_protocol(tmp_path: Path) -> None:
    """A server that is not there: the request can be read, so its error has its id, and status 200."""
    async with inside(tmp_path, 9) as semel:
        for id_ in (3, "three"):
            wire = await semel.wire(MODERN)
            heard = await wire.call("pay", {"order": "1"}, id_)
            assert (heard.status, heard.semel) == (200, "refused")
            assert (heard.answer.get("Content-Type") or "").startswith("application/json")
            error = heard.last["error"]
            assert (heard.last["id"], error["code"]) == (id_, REFUSED)
            assert error["data"]["type"] == "urn:semel:upstream-unreachable"
            assert error["data"]["detail"] in error["message"]
