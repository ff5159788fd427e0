"""What is no message with one meaning goes nowhere; its sender hears so, nothing is recorded, and the session
goes on. What the server says is handed on, whatever it is."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from tests.inside import until
from tests.mcp.bridging import Scene, call_of, text_of

CALL = json.dumps(call_of("pay", {"order": "no"}, 5)).encode()
PARSE, INVALID, PARAMS = -32700, -32600, -32602
# A line, the code of the error that comes back, and its id.
UNCLEAR: list[tuple[bytes, int, object]] = [
    (b"hello", PARSE, None),
    (CALL[:-1], PARSE, None),
    (CALL + CALL, PARSE, None),
    (b"\xff\xfe" + CALL, PARSE, None),
    (CALL.replace(b"no", b"\xc3"), PARSE, None),
    (b"[" * 100_000, PARSE, None),
    (b"17", INVALID, None),
    (b"[]", INVALID, None),
    (b"[7]", INVALID, None),
    (CALL.replace(b'"id"', b'"Id"'), INVALID, None),
    (CALL.replace(b'"method"', b'"Method"'), INVALID, None),
    (CALL.replace(b"tools/call", b"Tools/Call"), INVALID, 5),
    (CALL.replace(b"{", b'{"method": "ping", ', 1), INVALID, None),
    (CALL.replace(b'"name"', b'"name": "look", "name"'), INVALID, None),
    (CALL.replace(b'"id": 5, ', b""), INVALID, None),
    (CALL.replace(b'"id": 5', b'"id": null'), INVALID, None),
    (CALL.replace(b'"id": 5', b'"id": true'), INVALID, None),
    (CALL.replace(b'"id": 5', b'"id": 5.5'), INVALID, None),
    (CALL.replace(b'{"order": "no"}', b'["no"]'), PARAMS, 5),
    (CALL.replace(b'"name": "pay"', b'"name": 7'), PARAMS, 5),
    (b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call"}', PARAMS, 5),
    (b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": []}', PARAMS, 5),
    (b"[" + CALL + b"," + CALL.replace(b'"id": 5, ', b"") + b"]", INVALID, None),
]


async def test_what_is_unclear(scene: Scene) -> None:
    """One error each, in order; the server hears nothing of it."""
    async with scene.by_hand() as bridge:
        for number, (line, code, id_) in enumerate(UNCLEAR):
            await bridge.say(line + b"\n")
            await bridge.until(lambda n=number: len(bridge.heard) > n, f"an answer to {line[:80]!r}")  # type: ignore[misc]
            answer = json.loads(bridge.heard[number])
            assert (answer["error"]["code"], answer["id"]) == (code, id_), line[:200]
            assert answer["error"]["message"].startswith("semel: ")
        assert text_of(await bridge.call("pay", {"order": "yes"}, 6)) == "pay 1"
        assert len(bridge.heard) == len(UNCLEAR) + 1
    assert scene.ledger.lines == ["pay yes"]
    assert await scene.states() == ["done"]


async def test_lines_as_some_write_them(scene: Scene) -> None:
    """Blank ones are nothing; a carriage return is no part of a message; spaces are none either."""
    async with scene.by_hand() as bridge:
        await bridge.say(
            b"\n\r\n  \n", b"  " + json.dumps(call_of("pay", {"order": "1"}, 1)).encode() + b" \r\n"
        )
        assert text_of(await bridge.answer(1)) == "pay 1"
        await bridge.say(b'{"jsonrpc":"2.0","id":2,"method":"x"}\r\n')
        assert (await bridge.answer(2))["result"]["method"] == "x"
        assert len(bridge.heard) == 2


async def test_a_line_without_an_end(scene: Scene) -> None:
    """Its sender did not come to the end of it: nothing happened."""
    async with scene.by_hand() as bridge:
        await bridge.ask("ping")
        await bridge.say(CALL)
        bridge.leave()
        assert await bridge.ended() == 0
        assert len(bridge.heard) == 1
    assert scene.ledger.lines == []
    assert await scene.states() == []


async def test_a_line_in_pieces(scene: Scene) -> None:
    async with scene.by_hand() as bridge:
        await bridge.ask("ping")
        for at in range(0, len(CALL), 16):
            await bridge.say(CALL[at : at + 16])
            await asyncio.sleep(0)
        await bridge.say(b"\n")
        assert text_of(await bridge.answer(5)) == "pay 1"


async def test_lines_that_are_too_long(scene: Scene) -> None:
    """limits.request_body: said, and skipped, whether it comes in one piece or many; one that is just as long
    as may be is taken."""
    scene = replace(scene, env={"SEMEL_LIMITS_REQUEST_BODY": "100KiB"})
    fits = json.dumps(call_of("pay", {"order": "1", "pad": "x"}, 1)).encode()
    fits = fits.replace(b'"x"', b'"' + b"x" * (100 * 1024 - len(fits) + 1) + b'"')
    async with scene.by_hand() as bridge:
        assert len(fits) == 100 * 1024
        for line in (fits + b" ", fits + b"x" * 1_000_000, b"x" * 3_000_000):
            await bridge.say(line + b"\n")
        await bridge.until(lambda: len(bridge.heard) == 3, "three errors")
        for answer in bridge.messages:
            assert answer["error"]["code"] == INVALID
            assert "limits.request_body" in answer["error"]["message"]
        await bridge.say(fits + b"\n")
        assert text_of(await bridge.answer(1)) == "pay 1"
    assert scene.ledger.count() == 1


async def test_a_server_that_says_too_much(scene: Scene) -> None:
    """limits.response_body: nobody could keep it. The call is in doubt, and the session ends."""
    scene = replace(scene, env={"SEMEL_LIMITS_RESPONSE_BODY": "100KiB"})
    async with scene.by_hand() as bridge:
        assert text_of(await bridge.call("large", {"size": 90_000}, 1)) == "x" * 90_000
        answer = await bridge.call("large", {"size": 2_000_000}, 2)
        assert "limits.response_body" in answer["error"]["data"]["detail"]
        await bridge.ended()
    assert await scene.states() == ["done", "in_doubt"]


@pytest.mark.parametrize(
    ("tool", "before"),
    [
        ("noise", [b"Server is listening...", b"\xff\xfe{"]),
        ("array", [b'{"jsonrpc": "2.0", "method": "notifications/x"}']),
    ],
)
async def test_what_a_server_should_not_say(scene: Scene, tool: str, before: list[bytes]) -> None:
    """Words that are no message go by. An answer in an array is one."""
    async with scene.by_hand("night+a1") as bridge:
        assert text_of(await bridge.call(tool, {"order": "1"}, 1)) == f"{tool} 1"
        await bridge.ask("ping", id=2)
        assert bridge.heard[:-2] == before
    async with scene.by_hand("night+a2") as bridge:
        assert text_of(await bridge.call(tool, {"order": "1"}, 8)) == f"{tool} 1"
    assert scene.ledger.count() == 1


async def test_a_second_answer_is_none(scene: Scene) -> None:
    """The first is on record, and all that the client hears."""
    async with scene.by_hand() as bridge:
        assert text_of(await bridge.call("twice", {"order": "1"}, 1)) == "twice 1"
        await bridge.request("notifications/x")
        assert len(bridge.answers(1)) == 1


async def test_ids_that_a_server_spells_otherwise(scene: Scene) -> None:
    """A number as a text is taken, as clients do. One that belongs to nobody goes by and answers nothing."""
    async with scene.by_hand("night+a1") as bridge:
        await bridge.say(call_of("as_text", {"order": "1"}, 1))
        assert text_of(await bridge.answer("1")) == "as_text 1"
        assert text_of(await bridge.call("wrong", {"order": "1"}, 2)) == "wrong 1"
        assert len(bridge.answers("nobody's")) == 1
        await bridge.say(call_of("unreadable", {"order": "1"}, 3))
        await bridge.until(lambda: bool(bridge.answers(None)), "an error without an id")
    async with scene.by_hand("night+a2") as bridge:
        assert text_of(await bridge.call("as_text", {"order": "1"}, 5)) == "as_text 1"
    assert scene.ledger.count("as_text") == 1


async def test_an_id_that_is_in_use(scene: Scene) -> None:
    """Their answers could not be told apart: the second is refused, call or not, and the first goes on."""
    scene.ledger.holds()
    async with scene.by_hand() as bridge:
        await bridge.say(call_of("pay", {"order": "1"}, 1))
        await until(lambda: scene.ledger.count(), within=30)
        await bridge.say(call_of("pay", {"order": "2"}, 1), {"jsonrpc": "2.0", "id": 1, "method": "x"})
        await bridge.say({"jsonrpc": "2.0", "id": 2, "method": "slow"}, call_of("pay", {"order": "3"}, 2))
        await bridge.until(lambda: len(bridge.heard) == 3, "three errors")
        assert all("error" in each for each in bridge.messages)
        scene.ledger.lets_go()
        await bridge.until(lambda: len(bridge.heard) == 4, "the answer")
        assert text_of(bridge.messages[3]) == "pay 1"
    assert scene.ledger.lines == ["pay 1", "slow"]


async def test_a_batch(scene: Scene) -> None:
    """Of 2025-03-26: calls are recorded each by itself, all else is handed on, in its order."""
    note = {"jsonrpc": "2.0", "method": "notifications/n"}
    ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
    for attempt in ("night+a1", "night+a2"):
        async with scene.by_hand(attempt) as bridge:
            await bridge.say(
                [note, call_of("pay", {"order": "1"}, 1), ping, call_of("pay", {"order": "2"}, 2)]
            )
            assert {text_of(await bridge.answer(id_)) for id_ in (1, 2)} == {"pay 1", "pay 2"}
            assert await bridge.answer("p")
            await bridge.say([note, {**ping, "id": "q"}])
            assert await bridge.answer("q")
    assert scene.ledger.count("pay") == 2
    assert scene.ledger.count("heard") == 4
