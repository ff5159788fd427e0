"""`semel explain` of tools: an MCP server's by the message, the agent's own by their address."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.clients import LEGACY
from tests.mcp.scene import behind
from tests.mcp.servers import Shop
from tests.process import ROOT


def explained(at: Path, url: str, body: bytes, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "proxy.cli", "explain", "POST", url, "-d", body.decode(), "--json"]
    where = ["--state-dir", str(at / "state"), "--policies", str(at / "shop.yaml")]
    ran = subprocess.run([*command, *where, *words], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


async def test_a_call_of_an_mcp_server(tmp_path: Path, shop: Shop) -> None:
    """Under another id it is the same call, with other arguments it is not, and the page says which."""
    async with behind(tmp_path, shop.ports["json"]) as semel:
        wire = await semel.wire(LEGACY)
        await wire.call("pay", {"order": "1"}, 5)
        (recorded,) = await semel.calls()
        url = semel.url()
        same = explained(
            tmp_path, url, wire.body("tools/call", {"name": "pay", "arguments": {"order": "1"}}, id=9)
        )
        assert (same["call"], same["now"]["what"]) == (recorded["id"], "replayed")
        other = explained(
            tmp_path,
            url,
            wire.body("tools/call", {"name": "pay", "arguments": {"order": "2"}}, id=9),
            "--like",
            recorded["id"],
        )
        assert other["now"]["what"] == "executed"
        assert [each["field"] for each in other["like"]["differences"]] == ["body.order"]


@pytest.mark.parametrize("base", ["", "base_url: http://127.0.0.1:9/mcp\n"], ids=["stdio", "http"])
def test_of_a_server_that_is_not_there(tmp_path: Path, base: str) -> None:
    """Naming needs no server; over stdio there is no address either."""
    (tmp_path / "shop.yaml").write_text(f"upstream: shop\nprotocol: mcp\n{base}")
    body = b'{"id": 1, "method": "tools/call", "params": {"name": "pay", "arguments": {"n": 1}}}'
    told = explained(tmp_path, "/shop", body)
    assert (told["request"]["method"], told["request"]["target"]) == ("TOOL", "/pay")
    assert told["arguments"] == [{"field": "body.n", "value": "1"}]
    assert told["now"]["what"] == "executed"


def test_a_tool_of_the_agents_own(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text("upstream: shop\nprotocol: mcp\n")
    told = explained(tmp_path, "/_semel/tools/charge", b'{"amount": 3}')
    assert (told["request"]["upstream"], told["request"]["target"]) == ("local-tools", "/charge")
    assert told["now"]["what"] == "executed"


def test_what_is_no_call_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text("upstream: shop\nprotocol: mcp\n")
    command = [sys.executable, "-m", "proxy.cli", "explain", "POST", "/shop", "-d"]
    words = ['{"jsonrpc": "2.0", "id": 1, "method": "ping"}', "--policies", str(tmp_path / "shop.yaml")]
    ran = subprocess.run(
        [*command, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert "only calls of tools are recorded" in ran.stderr
