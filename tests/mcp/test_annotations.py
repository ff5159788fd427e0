"""What a server says of its own tools: it may make semel more careful, and less only where it is trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.clients import ERAS, LEGACY, call, client
from tests.mcp.scene import inside
from tests.mcp.servers import Shop
from tests.mcp.wire import Wire

TRUSTED = "trust_annotations: true"
SAFE = """\
rules:
  - name: all
    match: {tool: "*"}
    safe: true
"""
SILENT = """\
rules:
  - name: all
    match: {tool: "*"}
    ttl: 1h
"""
RULES = pytest.mark.parametrize("rule", ["", SILENT], ids=["no rule", "a rule"])
NOT_SAFE = f"""\
{TRUSTED}
rules:
  - name: look
    match: {{tool: look}}
    safe: false
"""


async def statuses(wire: Wire, tool: str, times: int = 2) -> list[str | None]:
    arguments = {"order": "1"} if tool.startswith("tool_") else {"what": "it"}
    return [(await wire.call(tool, arguments, id=n)).semel for n in range(times)]


@pytest.mark.parametrize("tool", ["look", "put"])
@RULES
@ERAS
async def test_a_trusted_servers_harmless_tools_go_live(
    tmp_path: Path, shop: Shop, era: str, rule: str, tool: str
) -> None:
    """Read-only or idempotent, outside a run: each time anew, from the first list of tools on; also where a
    rule is there that does not say whether it is safe."""
    async with inside(tmp_path, shop.ports["json"], f"{TRUSTED}\n{rule}") as semel:
        wire = await semel.wire(era)
        assert await statuses(wire, tool) == ["executed", "replayed"], "nothing was said of it yet"
        await wire.ask("tools/list", {})
        before = shop.ledger.count(tool)
        assert set(await statuses(wire, tool)) == {"passed"}
        assert shop.ledger.count(tool) == before + 2
        assert await statuses(wire, "wipe") == ["executed", "replayed"]
        assert (await wire.call("pay", {"order": "1"})).semel == "executed"
        assert (await wire.call("pay", {"order": "1"})).semel == "replayed"


@pytest.mark.parametrize("tool", ["look", "put"])
@RULES
async def test_a_strangers_word_changes_nothing(tmp_path: Path, shop: Shop, rule: str, tool: str) -> None:
    """Without trust it is a call like any other."""
    async with inside(tmp_path, shop.ports["json"], rule) as semel:
        wire = await semel.wire(LEGACY)
        await wire.ask("tools/list", {})
        assert await statuses(wire, tool) == ["executed", "replayed"]
    assert shop.ledger.count(tool) == 1


async def test_a_rule_has_the_last_word(tmp_path: Path, shop: Shop) -> None:
    """`safe: false` stands, however harmless the server says it is."""
    async with inside(tmp_path, shop.ports["json"], NOT_SAFE) as semel:
        wire = await semel.wire(LEGACY)
        await wire.ask("tools/list", {})
        assert await statuses(wire, "look") == ["executed", "replayed"]
    assert shop.ledger.count("look") == 1


@pytest.mark.parametrize("trusted", [True, False])
async def test_what_destroys_is_not_safe_whatever_a_rule_says(
    tmp_path: Path, shop: Shop, trusted: bool
) -> None:
    """The server says so explicitly; a word against itself may be believed without trust."""
    more = f"{TRUSTED}\n{SAFE}" if trusted else SAFE
    async with inside(tmp_path, shop.ports["json"], more) as semel:
        wire = await semel.wire(LEGACY)
        assert set(await statuses(wire, "wipe")) == {"passed"}, "nothing was said of it yet"
        await wire.ask("tools/list", {})
        before = shop.ledger.count("wipe")
        assert await statuses(wire, "wipe") == ["executed", "replayed"]
        assert shop.ledger.count("wipe") == before + 1
        (recorded,) = await semel.calls()
        assert (recorded["tool"], recorded["safe"]) == ("wipe", False)
        assert set(await statuses(wire, "tool_00")) == {"passed"}, "of it the server says nothing"


@ERAS
async def test_in_a_run_a_harmless_call_is_given_again(tmp_path: Path, shop: Shop, era: str) -> None:
    """A run meets its past: safe or not, a later attempt hears what the first one heard."""
    async with inside(tmp_path, shop.ports["json"], TRUSTED) as semel:
        told = []
        for attempt in ("a1", "a2"):
            async with client(semel.url(f"night+{attempt}"), era) as at:
                await at.list_tools()
                told.append([await call(at, "look", {"what": "it"}), await call(at, "pay", {"order": "1"})])
    assert told[0] == told[1]
    assert shop.ledger.lines == ["look it", "pay 1"]
