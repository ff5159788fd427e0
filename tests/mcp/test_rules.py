"""Rules by the tool's name, whose refusals come to the client as errors of the protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.mcp.clients import DOORS, ERAS, LEGACY, MODERN, Told, call, client, problem_of
from tests.mcp.scene import inside
from tests.mcp.servers import Shop

OPERATOR, AGENT = "semel_operator", "semel_agent"
TOKENS = [
    Token(sha256=digest(OPERATOR), tenant="acme", role=Role.OPERATOR),
    Token(sha256=digest(AGENT), tenant="acme", role=Role.AGENT),
]
DENY = """\
rules:
  - name: no
    match: {tool: "pay*"}
    mode: deny
"""
BUDGET = """\
rules:
  - name: two
    match: {tool: "pay*"}
    budget: {calls: 2/1h}
"""
APPROVAL = """\
rules:
  - name: ask
    match: {tool: "pay*"}
    approval: {when: "`true`", wait: 0ms}
"""
BY_ARGUMENT = """\
rules:
  - name: large
    match: {tool: pay, when: "dawdle > `1`"}
    mode: deny
  - name: one-per-order
    match: {tool: pay}
    key: {include: [order]}
"""


@ERAS
@DOORS
async def test_denied(tmp_path: Path, shop: Shop, era: str, door: str) -> None:
    """By its name; others are free."""
    async with inside(tmp_path, shop.ports[door], DENY) as semel, client(semel.url(), era) as at:
        for tool in ("pay", "pay_in_steps"):
            problem = await problem_of(at, tool, {"order": "1"})
            assert (problem["type"], problem["status"]) == ("urn:semel:denied", 403)
        assert await call(at, "tool_00", {"order": "1"}) == Told("tool_00 1")
    assert shop.ledger.lines == ["tool_00 1"]


@ERAS
@pytest.mark.parametrize("run", ["", "night+a1"], ids=["outside", "in a run"])
async def test_a_budget(tmp_path: Path, shop: Shop, era: str, run: str) -> None:
    """Two payments of whichever kind; what is given again is free."""
    async with inside(tmp_path, shop.ports["json"], BUDGET) as semel, client(semel.url(run), era) as at:
        assert await call(at, "pay", {"order": "1"}) == Told("payment 1")
        assert await call(at, "pay_in_steps", {"order": "1"}) == Told("payment 1")
        problem = await problem_of(at, "pay", {"order": "2"})
        assert (problem["type"], problem["status"]) == ("urn:semel:budget-exceeded", 429)
        if not run:
            assert await call(at, "pay", {"order": "1"}) == Told("payment 1")
        assert await call(at, "tool_00", {"order": "1"}) == Told("tool_00 1")
    assert shop.ledger.count() == 3


@ERAS
@DOORS
async def test_a_person_is_asked(tmp_path: Path, shop: Shop, era: str, door: str) -> None:
    """Held until somebody says yes; then the same call goes through, once. A denied one stays denied."""
    operator = {"Semel-Token": OPERATOR}
    async with inside(tmp_path, shop.ports[door], APPROVAL, tokens=TOKENS) as semel:
        url = f"http://127.0.0.1:{semel.port}/@night+a1:{AGENT}/shop/mcp"
        async with client(url, era) as at:
            waits = [await problem_of(at, "pay", {"order": order}) for order in ("yes", "no")]
            assert [each["type"] for each in waits] == ["urn:semel:awaiting-approval"] * 2
            assert shop.ledger.lines == []
            for problem, word in zip(waits, ("approve", "deny"), strict=True):
                said = await semel.own(
                    "POST", f"calls/{problem['call']}/{word}", {"reason": "seen"}, operator
                )
                assert said.status == 200, said
            assert await call(at, "pay", {"order": "yes"}) == Told("payment 1")
            denied = await problem_of(at, "pay", {"order": "no"})
            assert denied["type"] == "urn:semel:denied"
            assert [each["tool"] for each in await semel.calls(operator)] == ["pay", "pay"]
    assert shop.ledger.lines == ["pay yes"]


async def test_by_arguments(tmp_path: Path, shop: Shop) -> None:
    """`when` and `key` look at the call's arguments; `_meta` is none of them."""
    async with inside(tmp_path, shop.ports["json"], BY_ARGUMENT) as semel:
        wire = await semel.wire(MODERN)
        refused = await wire.call("pay", {"order": "1", "dawdle": 2})
        assert refused.last["error"]["data"]["type"] == "urn:semel:denied"
        said = [
            await wire.call("pay", {"order": "1", "dawdle": n / 100}, n, _meta={"trace": n}) for n in (0, 1)
        ]
        assert [each.semel for each in said] == ["executed", "replayed"]
    assert shop.ledger.lines == ["pay 1"]


async def test_arguments_are_compared_by_value(tmp_path: Path, shop: Shop) -> None:
    """Order of members, white space and the spelling of a number do not matter; the tool does."""
    async with inside(tmp_path, shop.ports["json"]) as semel:
        wire = await semel.wire(LEGACY)
        heads = (
            '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pay", "arguments": %s}}'
        )
        texts = [
            '{"order": "1", "dawdle": 0}',
            '{ "dawdle": 0.0,\n  "order": "1" }',
            '{"dawdle":-0e0,"\\u006frder":"1"}',
            '{"order": "2"}',
        ]
        said = [(await wire.post((heads % text).encode())).semel for text in texts]
        assert said == ["executed", "replayed", "replayed", "executed"]
        assert (await wire.call("tool_00", {"order": "2"})).semel == "executed"
    assert sorted(shop.ledger.lines) == ["pay 1", "pay 2", "tool_00 2"]


async def test_credentials_are_another_caller(tmp_path: Path, shop: Shop) -> None:
    """Outside a run one caller's answer is not another's; a session or a client's version is no caller."""
    async with inside(tmp_path, shop.ports["json"]) as semel:
        said = []
        for token, agent in (("one", "a"), ("one", "b"), ("two", "a")):
            headers = {"Authorization": f"Bearer {token}", "User-Agent": agent}
            wire = await semel.wire(LEGACY, headers=headers)
            said.append((await wire.call("pay", {"order": "1"})).semel)
        assert said == ["executed", "replayed", "executed"]
    assert shop.ledger.count() == 2


async def test_one_era_hears_what_the_other_did(tmp_path: Path, shop: Shop) -> None:
    """A client is upgraded in the middle of a run: its past is the same."""
    async with inside(tmp_path, shop.ports["sse"]) as semel:
        for attempt, era in (("a1", LEGACY), ("a2", MODERN), ("a3", LEGACY)):
            async with client(semel.url(f"night+{attempt}"), era) as at:
                assert await call(at, "pay_in_steps", {"order": "1"}) == Told("payment 1")
                assert await call(at, "pay", {"order": "1"}) == Told("payment 1")
    assert sorted(shop.ledger.lines) == ["pay 1", "pay_in_steps 1"]
