"""Prices by tokens: what is plain has one, what is not has none, and leaves it to the rule's expression."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from proxy.core.cost import cost_of
from proxy.core.prices import MOST_TOKENS, tokens_usd
from tests.core.test_cost import CHAT, CHAT_USD, JSON, MESSAGE, MESSAGE_USD, STREAM, body, changed, rule, sse

RESPONSE: dict[str, Any] = {
    "model": "gpt-4o",
    "service_tier": "default",
    "usage": {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100},
}
RESPONSE_USD = Decimal("0.0035")  # 1000 at 2.50, 100 at 10 dollars per million


@pytest.mark.parametrize("kind", ["message", "reasoning", "function_call", "custom_tool_call"])
def test_output_for_which_only_tokens_are_charged_has_a_price(kind: str) -> None:
    """Whole or as a stream; beside a search, which has a fee of its own, it has none."""
    for output, usd in (
        ([{"type": kind}], RESPONSE_USD),
        ([{"type": kind}, {"type": "web_search_call"}], None),
    ):
        answer = {**RESPONSE, "output": output}
        assert tokens_usd(answer) == usd
        told = cost_of(rule(), 200, STREAM, sse({"type": "response.completed", "response": answer}))
        assert told == (None if usd is None else float(usd))


@pytest.mark.parametrize(
    "said", [{"inference_geo": "global"}, {"inference_geo": "not_available"}, {"speed": "standard"}]
)
def test_what_costs_nothing_more_changes_no_price(said: dict[str, str]) -> None:
    """Older models say that a place is not available."""
    assert tokens_usd(changed(MESSAGE, **said)) == MESSAGE_USD


@pytest.mark.parametrize("count", [-1, True, False, MOST_TOKENS + 1, 1.0, "500"])
@pytest.mark.parametrize("answer", [CHAT, MESSAGE])
def test_a_count_that_cannot_be_is_no_count(answer: dict[str, Any], count: object) -> None:
    """Of the output too, which no length of a prompt bounds."""
    name = "completion_tokens" if answer is CHAT else "output_tokens"
    assert tokens_usd(changed(answer, **{name: count})) is None


def test_counts_from_nothing_to_the_most_are_counted() -> None:
    """800 at 2, 200 at 0.50 dollars per million, and the output at 8."""
    prompt = CHAT_USD - Decimal("0.004")
    assert tokens_usd(changed(CHAT, completion_tokens=0)) == prompt
    assert tokens_usd(changed(CHAT, completion_tokens=MOST_TOKENS)) == prompt + 8000


@pytest.mark.parametrize("output", ["text", 7, 1.5, True, {"type": "message"}])
def test_output_of_no_known_shape_leaves_the_price_to_the_rule(output: object) -> None:
    """None, and nothing is raised: what the rule's expression says beside it still counts."""
    answer = {**CHAT, "output": output, "price": 2}
    assert tokens_usd(answer) is None
    assert cost_of(rule("tokens_usd(@) || price"), 200, JSON, body(answer)) == 2.0
