"""What of a server's answer is the last word, and is given again; and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError

from tests.mcp.clients import DOORS, ERAS, LEGACY, MODERN, Told, call, client, problem_of
from tests.mcp.scene import inside
from tests.mcp.servers import Shop
from tests.mcp.shop import OWN_CODE
from tests.mcp.tap import Tap
from tests.mcp.wire import Heard

RELEASES = """\
rules:
  - name: pay
    match: {tool: "pay_*"}
    outcome: {not_executed_if: "result.isError"}
"""
ORDER = {"order": "1"}
FAILED = "Error executing tool pay_and_fail: failure {}"


@ERAS
@DOORS
@pytest.mark.parametrize("run", ["", "night"], ids=["outside", "in a run"])
async def test_a_failure_is_the_last_word(tmp_path: Path, shop: Shop, era: str, door: str, run: str) -> None:
    """Half of the work may be done: it is not tried again, and its failure is told again."""
    async with inside(tmp_path, shop.ports[door]) as semel:
        for attempt in ("a1", "a2"):
            async with client(semel.url(run and f"{run}+{attempt}"), era) as at:
                assert await call(at, "pay_and_fail", ORDER) == Told(FAILED.format(1), is_error=True)
                with pytest.raises(MCPError) as caught:
                    await call(at, "pay_and_break", ORDER)
                assert (caught.value.code, caught.value.data) == (OWN_CODE, ORDER)
    assert sorted(shop.ledger.lines) == ["pay_and_break 1", "pay_and_fail 1"]


@ERAS
@DOORS
async def test_a_failure_that_a_rule_calls_nothing_is_tried_again(
    tmp_path: Path, shop: Shop, era: str, door: str
) -> None:
    """`not_executed_if` looks at the response, in a stream too."""
    async with inside(tmp_path, shop.ports[door], RELEASES) as semel, client(semel.url(), era) as at:
        for number in (1, 2):
            assert await call(at, "pay_and_fail", ORDER) == Told(FAILED.format(number), is_error=True)
        for _ in range(2):
            assert await call(at, "pay_in_steps", ORDER) == Told("payment 1")
    assert shop.ledger.count("pay_and_fail") == 2
    assert shop.ledger.count("pay_in_steps") == 1


@DOORS
@pytest.mark.parametrize("run", ["", "night"], ids=["outside", "in a run"])
async def test_a_question_is_never_the_last_word(tmp_path: Path, shop: Shop, door: str, run: str) -> None:
    """The new era: the client asks its user and calls again with what it was told. The result is given again
    to whoever says the same."""
    async with inside(tmp_path, shop.ports[door]) as semel:
        for attempt in ("a1", "a2"):
            async with client(semel.url(run and f"{run}+{attempt}"), MODERN) as at:
                assert await call(at, "pay_if_agreed", ORDER) == Told("payment 1, agreed: True")
    assert shop.ledger.count("pay_if_agreed") == 1


async def test_once_agreed_it_is_not_asked_again(tmp_path: Path, shop: Shop) -> None:
    """What the user said is no part of the call's name: whoever comes back, with an answer, with another one
    or with none, hears of the payment that was made."""
    async with inside(tmp_path, shop.ports["json"]) as semel:
        wire = await semel.wire(MODERN)
        for _ in range(2):
            asked = await wire.call("pay_if_agreed", ORDER)
            assert (asked.semel, asked.last["result"]["resultType"]) == ("executed", "input_required")
        state = asked.last["result"]["requestState"]
        said = [{"inputResponses": agreed(yes), "requestState": state} for yes in (True, True, False)]
        heard = [await wire.call("pay_if_agreed", ORDER, id=n, **more) for n, more in enumerate([*said, {}])]
    assert [each.semel for each in heard] == ["executed", "replayed", "replayed", "replayed"]
    assert {text_of(each) for each in heard} == {"payment 1, agreed: True"}
    assert shop.ledger.lines == ["asked 1", "asked 1", "pay_if_agreed 1"]


def agreed(yes: bool) -> dict[str, Any]:
    return {"agreed": {"action": "accept", "content": {"agreed": yes}}}


def text_of(heard: Heard) -> str:
    text: str = heard.last["result"]["content"][0]["text"]
    return text


@pytest.mark.parametrize("run", ["", "night"], ids=["outside", "in a run"])
async def test_a_stream_with_a_question_cannot_be_given_again(tmp_path: Path, shop: Shop, run: str) -> None:
    """The old era: the server asks on the stream, and the client answers in a request of its own. That
    passes. Nobody else can be asked again, nor is it done again: the next client is told so."""
    async with Tap(shop.ports["sse"]) as tap, inside(tmp_path, tap.port) as semel:
        async with client(semel.url(run and f"{run}+a1"), LEGACY) as at:
            assert await call(at, "pay_if_agreed", ORDER) == Told("payment 1, agreed: True")
        async with client(semel.url(run and f"{run}+a2"), LEGACY) as at:
            problem = await problem_of(at, "pay_if_agreed", ORDER)
            assert (problem["type"], problem["status"]) == ("urn:semel:answer-unavailable", 410)
        assert await semel.states() == ["done"]
        assert tap.sent_up.count(b'"tools/call"') == 1
    assert shop.ledger.lines == ["asked 1", "pay_if_agreed 1"]
