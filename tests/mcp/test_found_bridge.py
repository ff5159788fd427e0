"""What an attack on `semel mcp` found: lines that are several to a server, ids that are two requests', words
of a server that ended the session, and a client that was no longer read."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mcp.bridging import Scene, call_of, problem_in


@pytest.fixture
def shop(scene: Scene) -> Scene:
    """A server made with the `mcp` package, whose lines end where Python's do."""
    return replace(scene, server="shop")


@pytest.mark.parametrize(
    "outer",
    [
        b'"id": 7, "method": "ping", "params": {"x": \r%b\r}',
        b'"id": 7, "method": "tools/call", "params": {"name": "look", "arguments": {"x": \r%b\r}}',
        b'"method": "notifications/x", "params": {"x": \r%b\r}',
    ],
    ids=["a request", "a call", "a notification"],
)
async def test_a_line_that_is_several_to_the_server(shop: Scene, outer: bytes) -> None:
    """A carriage return is a space to JSON and the end of a line to many servers: what lies between two of
    them would be a call that nobody has on record."""
    inner = json.dumps(call_of("pay", {"order": "1"}, 8)).encode()
    async with shop.by_hand() as bridge:
        await bridge.opened()
        await bridge.say(b'{"jsonrpc": "2.0", ' + outer % inner + b"}\n")
        await bridge.until(lambda: len(bridge.heard) == 2, "an error")
        assert "carriage returns" in bridge.messages[1]["error"]["message"]
        await bridge.ask("ping", id=9)
    assert shop.ledger.lines == []
    assert await shop.states() == []


# It answers two requests once it has both, in their order, and the first with its method.
BOTH = """
import json, sys
said = [json.loads(sys.stdin.readline()) for _ in range(2)]
for each in said:
    print(json.dumps({"jsonrpc": "2.0", "id": each["id"], "result": {"method": each["method"]}}), flush=True)
sys.stdin.read()
"""


async def test_an_id_that_is_used_twice_at_once(scene: Scene) -> None:
    """In one breath: the call is not with the server yet when the other request comes, whose answer would be
    recorded as the call's."""
    call, other = call_of("pay", {"order": "1"}, 5), {"jsonrpc": "2.0", "id": 5, "method": "x"}
    async with scene.by_hand(server=[sys.executable, "-c", BOTH]) as bridge:
        await bridge.say(b"".join(json.dumps(each).encode() + b"\n" for each in (call, other)))
        await bridge.until(lambda: bool(bridge.heard), "an error")
        assert "in use" in bridge.messages[0]["error"]["message"]
        await bridge.say({"jsonrpc": "2.0", "id": 6, "method": "y"})
        await bridge.until(lambda: len(bridge.heard) == 3, "both answers")
        assert {each["result"]["method"] for each in bridge.messages[1:]} == {"tools/call", "y"}
        assert bridge.answers(5)[-1]["result"]["method"] == "tools/call"


# It says something that is no request before each of its answers.
ODD = """
import json, sys
for line in sys.stdin:
    for each in ({"method": []}, {"method": {"x": 1}}, {"result": {}}):
        print(json.dumps({"jsonrpc": "2.0", "id": 1, **each}), flush=True)
"""


async def test_a_server_whose_method_is_no_text(scene: Scene) -> None:
    """It goes by like all that a server should not say, and the session goes on."""
    async with scene.by_hand(server=[sys.executable, "-c", ODD]) as bridge:
        await bridge.ask("x", id=1)
        await bridge.say(call_of("pay", {"order": "1"}, 1))
        await bridge.until(lambda: len(bridge.answers(1)) == 2, "the call's answer")


async def test_a_client_that_is_asked_while_it_asks_much(scene: Scene) -> None:
    """What it answers to the server is heard, however many calls it has made."""
    scene = replace(scene, env={"SEMEL_LIMITS_REQUEST_BODY": "64KiB"})
    async with scene.by_hand() as bridge:
        pad = "x" * 40_000
        await bridge.say(call_of("asks", {"order": "1", "method": "elicitation/create", "padding": pad}, 1))
        asked = await bridge.request("elicitation/create")
        await bridge.say(call_of("pay", {"order": "2", "padding": pad}, 2))
        await bridge.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}})
        assert "result" in await bridge.answer(1)
        assert problem_in(await bridge.answer(2)) == "overloaded"
        assert "result" in await bridge.call("pay", {"order": "2", "padding": pad}, 3)


async def test_what_is_said_to_semel_alone_is_not_told_to_the_server(scene: Scene) -> None:
    """A server is often somebody else's program."""
    secrets = {"SEMEL_TOKEN": "hush", "SEMEL_ENCRYPTION_KEY": "", "SEMEL_STORE": ""}
    scene = replace(scene, env=secrets)
    async with scene.by_hand() as bridge:
        await bridge.call("pay", {"order": "1"}, 1)
        told = Path(f"/proc/{await bridge.started()}/environ").read_bytes()
        assert b"SEMEL_TOKEN" not in told
        assert b"PATH=" in told
