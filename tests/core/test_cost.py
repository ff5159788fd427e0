"""What a call cost: exact where it is known, None where it is not, and never an exception."""

from __future__ import annotations

import gzip
import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.clauses import Cost
from proxy.core.cost import DEAREST, READABLE, cost_of, read_answer
from proxy.core.headers import Headers
from proxy.core.policy import Rule
from proxy.core.prices import PRICES, price_of, tokens_usd
from proxy.log import LogObserver
from proxy.metrics import MetricsObserver
from proxy.observe import Served
from tests.counts import count

JSON: Headers = ((b"Content-Type", b"application/json"),)
STREAM: Headers = ((b"Content-Type", b"text/event-stream; charset=utf-8"),)
CHAT = {
    "model": "gpt-4.1-2025-04-14",
    "service_tier": "default",
    "usage": {
        "prompt_tokens": 1000,
        "completion_tokens": 500,
        "total_tokens": 1500,
        "prompt_tokens_details": {"cached_tokens": 200, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 100, "audio_tokens": 0},
    },
}
# 800 at 2, 200 at 0.50, 500 at 8 dollars per million
CHAT_USD = Decimal("0.0057")
MESSAGE = {
    "type": "message",
    "model": "claude-opus-4-5-20251101",
    "usage": {
        "input_tokens": 100,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 600,
        "cache_creation": {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 200},
        "output_tokens": 300,
        "service_tier": "standard",
        "inference_geo": "global",
    },
}
# 100 at 5, 1000 at 0.50, 400 at 6.25, 200 at 10, 300 at 25 dollars per million
MESSAGE_USD = Decimal("0.013")


def rule(usd_from: str = "tokens_usd(@)") -> Rule:
    return Rule(name="one", cost=Cost(usd_from=usd_from))


def body(document: object) -> bytes:
    return json.dumps(document).encode()


def sse(*events: object, newline: str = "\n") -> bytes:
    texts = [one if isinstance(one, str) else "data: " + json.dumps(one) for one in events]
    return "".join(text + newline + newline for text in texts).encode()


def changed(document: dict[str, Any], **usage: object) -> dict[str, Any]:
    return {**document, "usage": {**document["usage"], **usage}}


# ---- rules ----


def test_a_fixed_price_is_for_success() -> None:
    """Whatever the answer says; an error is not known to be charged."""
    fixed = Rule(name="one", cost=Cost(usd=Decimal("0.10")))
    assert cost_of(fixed, 200, (), b"not JSON") == 0.1
    assert cost_of(fixed, 204, (), b"") == 0.1
    for status in (302, 400, 404, 500):
        assert cost_of(fixed, status, JSON, b"{}") is None


def test_without_a_cost_there_is_none() -> None:
    """A rule that says nothing has no price, not the price zero."""
    assert cost_of(Rule(name="one"), 200, JSON, body(CHAT)) is None


@pytest.mark.parametrize(
    ("expression", "answer", "usd"),
    [
        ("usage.cost", {"usage": {"cost": 0.25}}, 0.25),
        ("price", {"price": "0.0079"}, 0.0079),  # money as text
        ("times(usage.credits, `0.008`)", {"usage": {"credits": 3}}, 0.024),
        ("tokens_usd(@) || price", {"price": 2}, 2.0),
        ("length(results)", {"results": [1, 2]}, 2.0),
        ("cost", {"cost": 0}, 0.0),
    ],
)
def test_an_expression_reads_the_answer(expression: str, answer: dict[str, Any], usd: float) -> None:
    """Numbers, money as text, and the two functions that JMESPath lacks."""
    assert cost_of(rule(expression), 200, JSON, body(answer)) == usd


@pytest.mark.parametrize(
    "value", [-1, -0.01, True, None, "1e3", "-1", "", "1,50", [1], {"usd": 1}, 1e7, "1000001", 10**400]
)
def test_what_is_no_amount_is_unknown(value: object) -> None:
    """Negative, absurd, of another type: None, never a guess."""
    assert cost_of(rule("cost"), 200, JSON, body({"cost": value})) is None


@pytest.mark.parametrize(
    ("headers", "raw"),
    [
        (JSON, b""),
        (JSON, b"{"),
        (JSON, b'{"cost": NaN}'),
        (JSON, b'{"cost": 1e999}'),
        (JSON, b"[" * 100_000),
        (JSON, b"\xff\xfe"),
        ((*JSON, (b"Content-Encoding", b"gzip")), b"not gzip"),
        ((*JSON, (b"Content-Encoding", b"gzip")), gzip.compress(b'{"cost": 1}', mtime=0)[:-4]),
        ((*JSON, (b"Content-Encoding", b"rot13")), b'{"cost": 1}'),
        (STREAM, b"data: {\n\n"),
        (STREAM, b""),
    ],
)
def test_a_damaged_answer_has_no_price(headers: Headers, raw: bytes) -> None:
    """Nothing is raised, whatever the upstream sent."""
    assert cost_of(rule("cost"), 200, headers, raw) is None
    assert cost_of(rule(), 200, headers, raw) is None


def test_a_long_answer_is_not_read() -> None:
    """Over the bound as it came, or when decoded: no price, however small it was when compressed."""
    large = b'{"cost": 1, "text": "' + b"x" * READABLE + b'"}'
    assert cost_of(rule("cost"), 200, JSON, large) is None
    packed = (*JSON, (b"Content-Encoding", b"gzip"))
    assert cost_of(rule("cost"), 200, packed, gzip.compress(large, mtime=0)) is None
    fits = b'{"cost": 1, "text": "' + b"x" * (READABLE - 100) + b'"}'
    assert cost_of(rule("cost"), 200, JSON, fits) == 1.0


def test_a_compressed_answer_is_decoded() -> None:
    """As it came from the upstream, with the headers that say how."""
    headers = (*JSON, (b"content-encoding", b"gzip"))
    assert cost_of(rule(), 200, headers, gzip.compress(body(CHAT), mtime=0)) == float(CHAT_USD)


@pytest.mark.parametrize(
    "expression", ["no_such_function(@)", "tokens_usd(`1`)", "times(cost, 'x')", "max(cost)"]
)
def test_an_expression_that_fails_finds_nothing(expression: str) -> None:
    """An unknown function, a wrong type: None."""
    assert cost_of(rule(expression), 200, JSON, body({"cost": 1})) is None


# ---- event streams ----


def test_a_stream_of_chat_completions() -> None:
    """The usage comes in the last chunk, if the client asked for it."""
    chunk = {"model": CHAT["model"], "choices": [{"delta": {"content": "hi"}}], "usage": None}
    last = {"model": CHAT["model"], "choices": [], "usage": CHAT["usage"], "service_tier": "default"}
    assert cost_of(rule(), 200, STREAM, sse(chunk, last, "data: [DONE]")) == float(CHAT_USD)
    assert cost_of(rule(), 200, STREAM, sse(chunk, "data: [DONE]")) is None


def test_a_stream_of_responses() -> None:
    """What the last event says of the tier counts, not what the first one asked for."""
    usage = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100, "input_tokens_details": {}}
    begun = {
        "type": "response.created",
        "response": {"model": "gpt-4o", "service_tier": "auto", "usage": None},
    }
    done = {
        "type": "response.completed",
        "response": {"model": "gpt-4o", "service_tier": "default", "usage": usage, "output": []},
    }
    assert cost_of(rule(), 200, STREAM, sse(begun, done)) == 0.0035
    done["response"]["service_tier"] = "priority"  # type: ignore[index]
    assert cost_of(rule(), 200, STREAM, sse(begun, done)) is None


def test_a_stream_of_messages() -> None:
    """The prompt is counted at the start and the output at the end: both go into one usage."""
    start = {"type": "message_start", "message": changed(MESSAGE, output_tokens=1)}
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 300}}
    stream = sse(start, ": a comment", 'event: ping\ndata: {"type": "ping"}', delta, {"type": "message_stop"})
    assert cost_of(rule(), 200, STREAM, stream) == float(MESSAGE_USD)
    packed = (*STREAM, (b"Content-Encoding", b"gzip"))
    assert cost_of(rule(), 200, packed, gzip.compress(stream, mtime=0)) == float(MESSAGE_USD)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_an_expression_sees_the_events_of_any_stream(newline: str) -> None:
    """Each event's data in order, JSON objects only, data over several lines joined."""
    split = f'event: x{newline}data: {{"cost":{newline}data: 2}}'
    stream = sse({"cost": 1}, split, "data: [DONE]", newline=newline)
    assert read_answer(STREAM, stream) == {"events": [{"cost": 1}, {"cost": 2}]}
    assert cost_of(rule("sum(events[].cost)"), 200, STREAM, stream) == 3.0


# ---- tokens ----


def test_known_models_are_priced_exactly() -> None:
    """Cached tokens are among the prompt's with one vendor and beside them with the other."""
    assert tokens_usd(CHAT) == CHAT_USD
    assert tokens_usd(MESSAGE) == MESSAGE_USD
    embedding = {"model": "text-embedding-3-small", "usage": {"prompt_tokens": 500, "total_tokens": 500}}
    assert tokens_usd(embedding) == Decimal("0.00001")
    written = {
        "model": "gpt-6.1-terra",
        "usage": {
            "input_tokens": 1000,
            "output_tokens": 0,
            "total_tokens": 1000,
            "input_tokens_details": {
                "cached_tokens": 100,
                "cache_write_tokens": 300,
                "cache_write_tokens_details": {"ttl_12h_tokens": 100, "ttl_30m_tokens": 200},
            },
        },
    }
    # 600 at 1, 100 at 0.05, 200 at 1.25, 100 at 2.50 dollars per million
    assert tokens_usd(written) == Decimal("0.001105")


@pytest.mark.parametrize(
    "answer",
    [
        {**CHAT, "model": "gpt-99"},
        {**CHAT, "model": "gpt-4.1-turbo"},  # a beginning is not a name
        {**CHAT, "model": "ft:gpt-4.1:acme::id"},
        {**CHAT, "model": None},
        {**CHAT, "service_tier": "flex"},
        {**CHAT, "usage": None},
        {**CHAT, "usage": {"total_tokens": 1500}},
        {**CHAT, "output": [{"type": "message"}, {"type": "web_search_call"}]},
        {**CHAT, "output": "text"},
        changed(CHAT, prompt_tokens=-1),
        changed(CHAT, prompt_tokens=1.5),
        changed(CHAT, prompt_tokens=True),
        changed(CHAT, prompt_tokens="1000"),
        changed(CHAT, prompt_tokens=10**12),
        changed(CHAT, prompt_tokens=100),  # fewer than were cached
        changed(CHAT, prompt_tokens_details={"audio_tokens": 1}),
        changed(CHAT, completion_tokens_details={"audio_tokens": 1}),
        changed(CHAT, prompt_tokens_details={"cache_write_tokens": 1}),  # no such price
        changed(CHAT, prompt_tokens_details=7),
        changed(MESSAGE, service_tier="priority"),
        changed(MESSAGE, speed="fast"),
        changed(MESSAGE, inference_geo="us"),
        changed(MESSAGE, server_tool_use={"web_search_requests": 1}),
        changed(MESSAGE, cache_creation={"ephemeral_1h_input_tokens": 601}),
        changed(
            {**MESSAGE, "model": "claude-fable-5-1"}, cache_read_input_tokens=1
        ),  # its price is not known
        changed({**MESSAGE, "model": "claude-haiku-5-5"}, input_tokens=100_000),  # a longer prompt costs more
        {**changed(CHAT, prompt_tokens=272_001), "model": "gpt-6.1-sol"},
    ],
)
def test_what_has_no_plain_price_is_unknown(answer: dict[str, Any]) -> None:
    """Unknown models, other tiers, fees beside the tokens, counts that cannot be: None, never a guess."""
    assert tokens_usd(answer) is None


def test_the_longest_prompt_of_the_plain_price_has_it() -> None:
    """The bound belongs to the plain price; one token more does not."""
    answer = {**changed(CHAT, prompt_tokens=272_000, prompt_tokens_details=None), "model": "gpt-6.1-sol"}
    assert tokens_usd(answer) == Decimal("0.549")


def test_the_table_is_sound() -> None:
    """Every row has a source and a mark, a cached token is not dearer than a new one, output not cheaper."""
    for model, price in PRICES.items():
        assert price.source.startswith("https://"), model
        assert price.mark in ("V", "S"), model
        assert price.input > 0, model
        assert price.cached is None or price.cached < price.input, model
        assert price.output is None or price.output > price.input, model
        assert price.written is None or price.written > price.input, model
        assert price.written_long is None or price.written is None or price.written_long > price.written, (
            model
        )
        assert price_of(model) is price, model
    assert price_of("gpt-4o-2024-05-13") is not price_of("gpt-4o-2024-08-06")
    assert price_of("gpt-4o-2024-08-06") is PRICES["gpt-4o"]


# ---- whatever comes ----

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["usage", "model", "output", "service_tier", "prompt_tokens", "cost", "message"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=count(300, 5000), deadline=None)
@given(
    document=VALUES,
    tail=st.binary(max_size=20),
    headers=st.sampled_from([JSON, STREAM, (), (*JSON, (b"Content-Encoding", b"br"))]),
    expression=st.sampled_from(["tokens_usd(@)", "cost", "times(cost, cost)", "sum(events[].cost)", "@"]),
)
def test_nothing_an_upstream_answers_is_raised_or_out_of_bounds(
    document: object, tail: bytes, headers: Headers, expression: str
) -> None:
    """None, or an amount from zero to the bound."""
    for raw in (body(document), body(document) + tail, sse(document, document) + tail):
        found = cost_of(rule(expression), 200, headers, raw)
        assert found is None or 0 <= found <= DEAREST


@settings(max_examples=count(200, 5000), deadline=None)
@given(usage=st.dictionaries(st.sampled_from(sorted(CHAT["usage"])), st.integers(0, 10**6) | st.none()))
def test_a_price_is_never_negative(usage: dict[str, int | None]) -> None:
    """Whatever the counts are and whichever are missing."""
    found = tokens_usd({"model": "gpt-4.1", "usage": usage})
    assert found is None or found >= 0


# ---- told ----


def test_spent_and_saved_are_counted_apart() -> None:
    """Replayed and joined are saved, whatever else is not; spent is told where a call is settled."""
    metrics = MetricsObserver()
    for status, usd in (
        ("executed", 0.5),
        ("replayed", 0.5),
        ("joined", 0.25),
        ("refused", 9),
        ("passed", 9),
    ):
        metrics.served(Served(upstream="openai", rule="chat", status=status, cost_usd=usd))
    metrics.served(Served(upstream="openai", rule="free", status="executed"))
    told = metrics.render("memory", None, 0.0).decode()
    found = re.findall(r'(semel_\w+_usd_total)\{rule="(\w+)",upstream="openai"\} (\S+)', told)
    assert found == [("semel_saved_usd_total", "chat", "0.75")]


def test_the_log_says_what_a_call_cost(capfd: pytest.CaptureFixture[str]) -> None:
    """As a JSON number, however small; nothing where nothing is known."""
    log = LogObserver()
    for usd in (0.0057, 2e-7, 0.0):
        log.served(Served(method="POST", status="executed", code=200, cost_usd=usd))
    log.close()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line.get("cost_usd") for line in lines] == [0.0057, 2e-7, None]
