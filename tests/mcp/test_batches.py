"""Batches, which 2025-03-26 had: every call in one is a call of its own, and all are answered together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.inside import call as http
from tests.mcp.bank import Bank
from tests.mcp.clients import REFUSED
from tests.mcp.scene import Behind, inside
from tests.mcp.wire import BOTH, Heard, heard

EVENTS = pytest.mark.parametrize("events", [False, True], ids=["json", "sse"])
PING: dict[str, Any] = {"jsonrpc": "2.0", "id": "ping", "method": "ping"}
TOLD: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/initialized"}
DENIES = """\
rules:
  - name: no
    match: {tool: pay, when: "order == 'second'"}
    mode: deny
"""


def pays(id_: object, order: str) -> dict[str, Any]:
    params = {"name": "pay", "arguments": {"order": order}}
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}


async def post(semel: Behind, batch: list[dict[str, Any]], run: str = "") -> Heard:
    headers = {"Content-Type": "application/json", "Accept": BOTH}
    return heard(await http(semel.port, "POST", semel.path(run), headers, json.dumps(batch).encode()))


def by_id(said: Heard) -> dict[object, Any]:
    """The responses of an array."""
    assert said.status == 200, said
    (array,) = said.messages
    assert isinstance(array, list)
    found = {each["id"]: each.get("result", each.get("error")) for each in array}
    assert len(found) == len(array)
    return found


@EVENTS
@pytest.mark.parametrize("run", ["", "night"], ids=["outside", "in a run"])
async def test_every_call_in_a_batch_is_made_once(tmp_path: Path, events: bool, run: str) -> None:
    """Calls and others together; the same batch again, with other ids: nothing is paid again, and the others
    are asked anew."""
    async with Bank(events=events) as bank, inside(tmp_path, bank.port) as semel:
        first = await post(semel, [pays(1, "a"), PING, pays("two", "b"), TOLD], run and f"{run}+a1")
        told = by_id(first)
        assert told.keys() == {1, "ping", "two"}
        assert told["ping"] == {"method": "ping"}
        again = await post(semel, [pays("x", "b"), TOLD, PING, pays(9, "a")], run and f"{run}+a2")
        assert by_id(again) == {"x": told["two"], "ping": {"method": "ping"}, 9: told[1]}
        alone = await post_one(semel, pays(5, "a"), run and f"{run}+a3")
        assert alone.last == {"jsonrpc": "2.0", "id": 5, "result": told[1]}
        assert (await semel.states()) == ["done", "done"]
    assert sorted(bank.paid) == ["a", "b"]
    others = [body for body in bank.asked if isinstance(body, list)]
    assert [[each["method"] for each in body] for body in others] == [
        ["ping", TOLD["method"]],
        [TOLD["method"], "ping"],
    ]


async def post_one(semel: Behind, message: dict[str, Any], run: str) -> Heard:
    headers = {"Content-Type": "application/json", "Accept": BOTH}
    return heard(await http(semel.port, "POST", semel.path(run), headers, json.dumps(message).encode()))


@EVENTS
async def test_a_batch_without_calls_passes_as_it_is(tmp_path: Path, events: bool) -> None:
    """Also one of notifications alone, to which there is no answer."""
    async with Bank(events=events) as bank, inside(tmp_path, bank.port) as semel:
        told = await post(semel, [PING, TOLD])
        assert (told.semel, told.is_stream) == ("passed", events)
        nothing = await post(semel, [TOLD, TOLD])
        assert (nothing.status, nothing.semel) == (202, "passed")
        assert await semel.calls() == []
    assert bank.asked == [[PING, TOLD], [TOLD, TOLD]]


async def test_the_same_call_twice_in_a_batch(tmp_path: Path) -> None:
    """Made once and answered twice, each under its own id."""
    async with Bank() as bank, inside(tmp_path, bank.port) as semel:
        told = by_id(await post(semel, [pays(1, "a"), pays(2, "a")]))
        assert told == {1: {"paid": 1}, 2: {"paid": 1}}
    assert bank.paid == ["a"]


async def test_refused_in_a_batch(tmp_path: Path) -> None:
    """One call is denied, one is lost: their errors stand beside the answer of the third, now and later."""
    async with Bank(loses="third") as bank, inside(tmp_path, bank.port, DENIES) as semel:
        for _ in range(2):
            told = by_id(await post(semel, [pays(1, "first"), pays(2, "second"), pays(3, "third")]))
            assert told[1]["paid"] in (1, 2), "they are made at the same time"
            assert [told[n]["data"]["type"] for n in (2, 3)] == ["urn:semel:denied", "urn:semel:in-doubt"]
            assert {told[n]["code"] for n in (2, 3)} == {REFUSED}
    assert sorted(bank.paid) == ["first", "third"]
