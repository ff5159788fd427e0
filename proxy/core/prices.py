"""What a model's answer costs at list price, by the tokens that it reports; None where that is not plain.

The table is of READ_ON and holds standard prices in US dollars per million tokens. Vendors change them
without notice, and discounts of your own are not in it. What is priced otherwise (another service tier,
audio, very long prompts, tools that the vendor runs, a region) has no price here: nothing is ever guessed.

Sources: V, the vendor's own page; S, no such page was at hand and other public lists agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

READ_ON = "2026-11-16"
OPENAI = "https://developers.openai.com/api/docs/pricing"
ANTHROPIC = "https://platform.claude.com/docs/en/about-claude/pricing"

MILLION = 1_000_000
# More tokens than any call has: a larger count is a mistake, or an attempt to make one.
MOST_TOKENS = 1_000_000_000


class Price(NamedTuple):
    """Per million tokens. None: there is no such price, or it is not known."""

    input: Decimal
    output: Decimal | None
    cached: Decimal | None  # read from the prompt cache
    written: Decimal | None  # into the prompt cache, for its usual time
    written_long: Decimal | None  # the same, for the longer time that is on offer
    up_to: int  # so long a prompt; a longer one has another price
    source: str
    mark: str  # V or S


def _price(
    source: str,
    mark: str,
    usd: str,
    *,
    cached: str | None = None,
    written: str | None = None,
    long: str | None = None,
    up_to: int = MOST_TOKENS,
) -> Price:
    """`usd`: input and output, as `2/10`; embeddings have no output."""
    given, _, taken = usd.partition("/")
    output, read, short, longer = (Decimal(text) if text else None for text in (taken, cached, written, long))
    return Price(Decimal(given), output, read, short, longer, up_to, source, mark)


def _openai(usd: str, cached: str | None = None, *, mark: str = "S", **more: Any) -> Price:  # noqa: ANN401
    return _price(OPENAI, mark, usd, cached=cached, **more)


def _anthropic(
    usd: str,
    written: str | None,
    long: str | None,
    cached: str | None,
    *,
    mark: str = "V",
    up_to: int = MOST_TOKENS,
) -> Price:
    return _price(ANTHROPIC, mark, usd, cached=cached, written=written, long=long, up_to=up_to)


# Beyond this a whole OpenAI request is priced higher.
_LONG = 272_000

PRICES: dict[str, Price] = {
    "gpt-6-astra": _openai("10/50", "1.00", written="12.50", up_to=_LONG, mark="V"),
    "gpt-6.1-sol": _openai("2/10", "0.10", written="2.50", up_to=_LONG),
    "gpt-6.1-terra": _openai("1/5", "0.05", written="1.25", long="2.50", up_to=_LONG),
    "gpt-6-sol": _openai("2/10", "0.20", written="2.50", up_to=_LONG),
    "gpt-6-luna": _openai("0.10/0.50", "0.01", written="0.125", up_to=_LONG),
    "gpt-5.6-sol": _openai("4/20", "0.40", up_to=_LONG),
    "gpt-5.6-terra": _openai("2/12", "0.20", up_to=_LONG),
    "gpt-5.6-luna": _openai("0.20/1.20", "0.02", up_to=_LONG),
    "gpt-5.5": _openai("5/30", "0.50", up_to=_LONG),
    "gpt-5.4": _openai("2.50/15", "0.25", up_to=_LONG),
    "gpt-5.4-mini": _openai("0.75/4.50", "0.075", up_to=_LONG),
    "gpt-5.4-nano": _openai("0.20/1.25", "0.02", up_to=_LONG),
    "gpt-5.2": _openai("1.75/14", "0.175"),
    "gpt-5.1": _openai("1.25/10", "0.125"),
    "gpt-5": _openai("1.25/10", "0.125"),
    "gpt-5-mini": _openai("0.25/2"),
    "gpt-5-nano": _openai("0.05/0.40"),
    "gpt-4.1": _openai("2/8", "0.50"),
    "gpt-4.1-mini": _openai("0.40/1.60", "0.10"),
    "gpt-4.1-nano": _openai("0.10/0.40", "0.025"),
    "gpt-4o": _openai("2.50/10", "1.25"),
    "gpt-4o-2024-05-13": _openai("5/15"),
    "gpt-4o-mini": _openai("0.15/0.60", "0.075"),
    "text-embedding-3-small": _openai("0.02"),
    "text-embedding-3-large": _openai("0.13"),
    "text-embedding-ada-002": _openai("0.10"),
    # The vendor's page has a footnote to the price of this one's cache hits.
    "claude-fable-5-1": _anthropic("10/50", "12.50", "20", None),
    "claude-fable-5": _anthropic("10/50", "12.50", "20", "1.00"),
    "claude-opus-5-5": _anthropic("4/20", "5", "8", "0.20"),
    "claude-opus-5": _anthropic("5/25", "6.25", "10", "0.50"),
    "claude-opus-4-8": _anthropic("5/25", "6.25", "10", "0.50"),
    "claude-opus-4-7": _anthropic("5/25", "6.25", "10", "0.50"),
    "claude-opus-4-6": _anthropic("5/25", "6.25", "10", "0.50"),
    "claude-opus-4-5": _anthropic("5/25", "6.25", "10", "0.50"),
    "claude-sonnet-5-5": _anthropic("2/10", "2.50", "4", "0.10", mark="S"),
    "claude-sonnet-5": _anthropic("2/10", "2.50", "4", "0.20"),
    "claude-sonnet-4-6": _anthropic("3/15", "3.75", "6", "0.30", mark="S"),
    "claude-sonnet-4-5": _anthropic("3/15", "3.75", "6", "0.30", mark="S", up_to=200_000),
    "claude-haiku-5-5": _anthropic("0.10/0.50", "0.125", "0.20", "0.01", mark="S", up_to=100_000),
    "claude-haiku-4-5": _anthropic("1/5", "1.25", "2", "0.10", mark="S"),
}

# gpt-4.1-2025-04-14, claude-haiku-4-5-20251001: a dated model costs what its plain name costs, unless it has
# a row of its own.
_DATE = re.compile(r"-20\d\d-?\d\d-?\d\d$")

# What an answer may say of itself without being priced otherwise.
_PLAIN = {
    "service_tier": (None, "default", "standard"),
    "speed": (None, "standard"),
    "inference_geo": (None, "global", "not_available"),
}
# Output for which nothing but tokens is charged; searches and the like have a fee of their own.
_TOKENS_ONLY = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})


class _Unknown(Exception):
    """This answer has no plain price."""


def price_of(model: str) -> Price | None:
    return PRICES.get(model) or PRICES.get(_DATE.sub("", model))


def tokens_usd(answer: Mapping[str, Any]) -> Decimal | None:
    """An answer of OpenAI's or Anthropic's shape, with `model` and `usage`."""
    model, usage = answer.get("model"), answer.get("usage")
    if not isinstance(model, str) or not isinstance(usage, dict):
        return None
    price = price_of(model)
    if price is None:
        return None
    try:
        _require_plain(answer, usage)
        return _sum(price, usage)
    except _Unknown:
        return None


def _require_plain(answer: Mapping[str, Any], usage: dict[str, Any]) -> None:
    for name, allowed in _PLAIN.items():
        if answer.get(name) not in allowed or usage.get(name) not in allowed:
            raise _Unknown
    if any(_part(usage, "server_tool_use").values()):
        raise _Unknown
    output = answer.get("output") or ()
    if not isinstance(output, list | tuple) or not all(_is_tokens_only(item) for item in output):
        raise _Unknown
    for details in ("prompt_tokens_details", "completion_tokens_details", "input_tokens_details"):
        if _count(_part(usage, details), "audio_tokens"):
            raise _Unknown


def _is_tokens_only(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") in _TOKENS_ONLY


def _sum(price: Price, usage: dict[str, Any]) -> Decimal:
    """OpenAI counts cached tokens among those of the prompt, Anthropic beside them."""
    if "prompt_tokens" in usage or "total_tokens" in usage:
        chat = "prompt_tokens" in usage
        details = _part(usage, "prompt_tokens_details" if chat else "input_tokens_details")
        cached, written = _count(details, "cached_tokens"), _count(details, "cache_write_tokens")
        long = _count(_part(details, "cache_write_tokens_details"), "ttl_12h_tokens")
        total = _count(usage, "prompt_tokens" if chat else "input_tokens", needed=True)
        # Embeddings report no output at all.
        output = _count(usage, "completion_tokens" if chat else "output_tokens")
    else:
        cached = _count(usage, "cache_read_input_tokens")
        written = _count(usage, "cache_creation_input_tokens")
        long = _count(_part(usage, "cache_creation"), "ephemeral_1h_input_tokens")
        total = _count(usage, "input_tokens", needed=True) + cached + written
        output = _count(usage, "output_tokens", needed=True)
    plain, written = total - cached - written, written - long
    if plain < 0 or written < 0 or total > price.up_to:
        raise _Unknown
    parts = (
        (plain, price.input),
        (cached, price.cached),
        (written, price.written),
        (long, price.written_long),
        (output, price.output),
    )
    return sum((_worth(count, each) for count, each in parts), Decimal(0)) / MILLION


def _worth(count: int, each: Decimal | None) -> Decimal:
    if each is None:
        if count:
            raise _Unknown
        return Decimal(0)
    return count * each


def _part(node: dict[str, Any], name: str) -> dict[str, Any]:
    found = node.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _Unknown
    return found


def _count(node: dict[str, Any], name: str, *, needed: bool = False) -> int:
    found = node.get(name)
    if found is None and not needed:
        return 0
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= MOST_TOKENS:
        raise _Unknown
    return found
