"""Rules, annotations and `stateful` of a server that `semel mcp` runs."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import pytest

from proxy.tokens import digest
from tests.mcp.bridging import META, Scene, problem_in, text_of
from tests.process import ROOT, SemelProcess

RULES = """\
rules:
  - {name: no, match: {tool: "erase_*"}, mode: deny}
  - {name: two, match: {tool: "tell_*"}, budget: {calls: 2/1h}}
  - {name: by-order, match: {tool: "send_*"}, key: {include: [order]}}
  - {name: many, match: {tool: "get_*"}, safe: true}
  - {name: harmless, match: {tool: wipe}, safe: true}
  - {name: read, match: {tool: look}, safe: true}
"""


@pytest.mark.parametrize("meta", [{}, META], ids=["legacy", "modern"])
async def test_rules_by_the_name_of_the_tool(scene: Scene, meta: dict[str, object]) -> None:
    """Denied; a budget used up; a key of some arguments; what is safe goes out each time."""
    async with replace(scene, more=RULES).by_hand() as bridge:
        answer = await bridge.call("erase_all", {"order": "1"}, 1, _meta=meta)
        assert problem_in(answer) == "denied"
        assert answer["error"]["data"]["status"] == 403
        told = [await bridge.call(f"tell_{n}", {"order": "1"}, f"t{n}", _meta=meta) for n in range(3)]
        assert [text_of(each) for each in told[:2]] == ["tell_0 1", "tell_1 1"]
        assert problem_in(told[2]) == "budget-exceeded"
        told = [await bridge.call("send_it", {"order": "1", "n": n}, f"s{n}", _meta=meta) for n in range(2)]
        assert [text_of(each) for each in told] == ["send_it 1"] * 2
        told = [await bridge.call("get_it", {"order": "1"}, f"g{n}", _meta=meta) for n in range(2)]
        assert [text_of(each) for each in told] == ["get_it 1", "get_it 2"]
    assert scene.ledger.count() == 5


async def test_annotations_make_a_rule_stricter(scene: Scene) -> None:
    """`destructiveHint: true` against a rule that says safe: once it is known, one execution. Before the list
    went by nobody had said so."""
    async with replace(scene, more=RULES).by_hand() as bridge:
        for n in range(2):
            assert text_of(await bridge.call("wipe", {"order": "1"}, n)) == f"wipe {n + 1}"
        await bridge.ask("tools/list", id="list")
        for n in range(3):
            assert text_of(await bridge.call("wipe", {"order": "2"}, f"w{n}")) == "wipe 3"
            assert text_of(await bridge.call("look", {"order": "2"}, f"l{n}")) == f"look {n + 1}"


@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "not trusted"])
async def test_read_only_hints(scene: Scene, trusted: bool) -> None:
    """They loosen only where the policy trusts the server: then it goes out each time outside a run."""
    policy = f"trust_annotations: {str(trusted).lower()}"
    async with replace(scene, more=policy).by_hand() as bridge:
        await bridge.ask("tools/list", id="list")
        told = [text_of(await bridge.call("look", {"order": "1"}, n)) for n in range(3)]
        assert told == (["look 1", "look 2", "look 3"] if trusted else ["look 1"] * 3)
        assert [text_of(await bridge.call("pay", {"order": "1"}, f"p{n}")) for n in range(2)] == ["pay 1"] * 2


async def test_approval(scene: Scene) -> None:
    """Held until a person says yes, at a semel that keeps the same record; then it goes out once."""
    config = scene.at / "semel.yaml"
    tokens = [("operator", "semel_operator"), ("agent", "semel_agent")]
    listed = ", ".join(f"{{sha256: '{digest(t)}', tenant: acme, role: {role}}}" for role, t in tokens)
    config.write_text(f"auth: {{tokens: [{listed}]}}\n")
    rule = 'rules: [{name: ask, match: {tool: "pay*"}, approval: {when: "`true`", wait: 0ms}}]'
    scene = replace(scene, more=rule, options=("--config", str(config), "--token", "semel_agent"))
    async with scene.by_hand("night+a1") as bridge:
        asked = await bridge.call("pay", {"order": "1"}, 1)
        assert problem_in(asked) == "awaiting-approval"
        assert scene.ledger.lines == []
        command = [*scene.command()[:3], "calls", "approve", asked["error"]["data"]["call"]]
        done = await _run(scene, [*command, "--reason", "ok", "--state-dir", str(scene.state)])
        assert done == 0
        assert text_of(await bridge.call("pay", {"order": "1"}, 2)) == "pay 1"
    assert scene.ledger.lines == ["pay 1"]


async def _run(scene: Scene, command: list[str]) -> int:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=scene.environment(), stdout=asyncio.subprocess.DEVNULL
    )
    return await process.wait()


async def test_stateful(scene: Scene) -> None:
    """A new bridge has a new server, which has seen nothing: beyond the record nothing goes out, and the
    caller hears why. Who makes all calls itself is hindered by nothing; who is given none either."""
    scene = replace(scene, more="stateful: true")
    async with scene.by_hand("night+a1") as bridge:
        for order in "12":
            assert text_of(await bridge.call("pay", {"order": order}, order)) == f"pay {order}"
    async with scene.by_hand("night+a2") as bridge:
        for order in "12":
            assert text_of(await bridge.call("pay", {"order": order}, order)) == f"pay {order}"
        for n in range(2):
            refused = await bridge.call("pay", {"order": "3"}, f"new {n}")
            assert problem_in(refused) == "denied"
            assert "stateful" in refused["error"]["message"]
    async with scene.by_hand("day+a1") as bridge:
        assert text_of(await bridge.call("pay", {"order": "3"}, 1)) == "pay 3"
    assert scene.ledger.count("pay") == 3


async def test_stateful_outside_a_run(scene: Scene) -> None:
    """The same of a session that was given what an earlier one did; the one that did it goes on."""
    scene = replace(scene, more="stateful: true")
    async with scene.by_hand() as bridge:
        for order in ("1", "1", "2"):
            await bridge.call("pay", {"order": order}, f"{order} {len(bridge.heard)}")
        bridge.signal(signal.SIGKILL)
        await bridge.ended()
    async with scene.by_hand() as bridge:
        assert text_of(await bridge.call("pay", {"order": "1"}, 1)) == "pay 1"
        assert problem_in(await bridge.call("pay", {"order": "3"}, 2)) == "denied"
    assert scene.ledger.lines == ["pay 1", "pay 2"]


async def test_beside_a_semel_that_serves(scene: Scene) -> None:
    """Both on one record: a bridge starts and works while `semel serve` has it open."""
    file = scene.at / "none.yaml"
    file.write_text("upstream: none\nbase_url: http://127.0.0.1:9\n")
    async with SemelProcess(scene.state, file), scene.by_hand("night+a1") as bridge:
        assert text_of(await bridge.call("pay", {"order": "1"}, 1)) == "pay 1"
        assert await scene.states() == ["done"]
