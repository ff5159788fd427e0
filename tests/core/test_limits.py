"""Limits and lists that somebody relies on, written out again: changing one is a decision, not a slip."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import pytest

from proxy.core import (
    approval,
    canonical,
    cost,
    decide,
    divergence,
    document,
    doubt,
    encoding,
    frontier,
    headers,
    hints,
    identity,
    jsonrpc,
    matching,
    mcp_outcome,
    multipart,
    occurrence,
    outcome,
    policy,
    prices,
    reachable,
    retry_evidence,
    scrubbing,
    sse,
    upstream_key,
)
from proxy.core.canonical import Body
from proxy.core.intent import State
from proxy.core.jsonrpc import INVALID_REQUEST, Unclear, hear
from proxy.core.policy import Mode, Rule

LIMITS: list[tuple[object, object]] = [
    (approval.GRANTED_FOR, 30 * 86400.0),
    (approval.LAPSED_FOR, 86400.0),
    (canonical.MAX_DEPTH, 200),
    (canonical.MAX_CONTAINERS, 500_000),
    (canonical.PLAIN_DIGITS, 18),
    (cost.READABLE, 8 << 20),
    (cost.DEAREST, 1_000_000),
    (decide.NOTHING_CAME_OF_IT, 86400.0),
    (divergence.GRACE, 2.0),
    (document.MOST_VALUES, 20_000),
    (doubt.SKEW, 10.0),
    (doubt.MARGIN_SHARE, 0.05),
    (doubt.LEAST_MARGIN, 90.0),
    (encoding.MAX_CODINGS, 4),
    (encoding.MAX_WINDOW_LOG, 23),
    (hints.MOST_TOOLS, 5000),
    (identity.ANY_OCCURRENCE, 0),
    (jsonrpc.MOST_IN_A_BATCH, 1000),
    (jsonrpc.LONGEST_NAME, 256),
    (multipart.MAX_PARTS, 1000),
    (occurrence.MARK_LAG, 1.5),
    (occurrence.POLL_REPLAYS, 5),
    (occurrence.POLL_WINDOW, 60.0),
    (prices.MOST_TOKENS, 10**9),
    (scrubbing.SHORTEST, 4),
    (scrubbing.LONGEST, 16 << 10),
    (scrubbing.DEPTH, 3),
    (sse.MAX_EVENT, 256 << 10),
    (sse.MAX_DECODED, 4 << 20),
    (upstream_key.LOOKED_INTO, 1 << 20),
]


def test_limits() -> None:
    """Documents, and what others have stored or budgeted, rely on them."""
    assert [found for found, _ in LIMITS] == [meant for _, meant in LIMITS]


def test_codes_and_statuses() -> None:
    """As JSON-RPC, MCP and HTTP have them."""
    assert (jsonrpc.PARSE_ERROR, jsonrpc.INVALID_REQUEST, jsonrpc.INVALID_PARAMS) == (-32700, -32600, -32602)
    assert jsonrpc.REFUSED == -32080
    assert {-32700, -32600, -32601, -32020, -32021, -32022, -32042} == mcp_outcome.NOT_BEGUN_CODES
    assert {-32001} == mcp_outcome.DOUBTFUL_CODES
    assert {401, 402, 403, 407, 425, 429} == outcome.NOT_BEGUN
    assert (outcome.REQUEST_TIMEOUT, outcome.CONFLICT, mcp_outcome.SEE_OTHER, doubt.NOT_FOUND) == (
        408, 409, 303, 404,
    )  # fmt: skip
    assert (jsonrpc.CALL, jsonrpc.LIST_TOOLS) == ("tools/call", "tools/list")
    assert (jsonrpc.CANCELLED, jsonrpc.PROGRESS) == ("notifications/cancelled", "notifications/progress")
    assert policy.DEFAULT_PORTS == {"http": 80, "https": 443, "tool": 0}


def test_lists_of_headers() -> None:
    """Which are of one connection, which name a call, which are secrets, which tell a retry."""
    assert {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection",
        b"te", b"trailer", b"transfer-encoding", b"upgrade",
    } == headers.HOP_BY_HOP  # fmt: skip
    assert (headers.SEMEL_PREFIX, headers.SESSION_COOKIE) == (b"semel-", b"semel_session")
    assert {b"accept", b"range", b"prefer"} == identity.KEYED_HEADERS
    assert (identity.KEYED_PREFIX, identity.CLIENTS_OWN) == (b"if-", b"idempotency-key")
    known = {b"authorization", b"cookie", b"x-api-key", b"api-key", b"x-goog-api-key"}
    assert known == identity.CREDENTIAL_HEADERS
    assert {b"idempotency-key", b"amz-sdk-invocation-id"} == retry_evidence.TOKEN_HEADERS
    assert retry_evidence.RETRY_COUNT == b"x-stainless-retry-count"


def test_lists_of_states_and_words() -> None:
    """Which calls matter to a later attempt, which a late answer settles, which methods are safe."""
    assert {State.DONE, State.PENDING, State.IN_DOUBT, State.AWAITING_APPROVAL} == divergence.MATTERS
    late = {State.IN_DOUBT, State.RELEASED, State.AWAITING_APPROVAL, State.DENIED}
    assert late == decide.LATE_ANSWERS_SETTLE
    assert {"GET", "HEAD", "OPTIONS"} == policy.SAFE_METHODS
    words = (policy.TOOL_SCHEME, policy.TOOL_METHOD, policy.TOOLS_NAME, policy.DEFAULT_NAME, frontier.ANSWER)
    assert words == ("tool", "TOOL", "local-tools", "default", "answer")
    assert Rule(name="default", mode=Mode.PASS) == matching.DEFAULT_PASS
    assert Rule(name="default", mode=Mode.ONCE, safe=True) == matching.DEFAULT_READ
    assert Rule(name="default", mode=Mode.ONCE, safe=False) == matching.DEFAULT_EFFECT
    assert [str(each) for each in outcome.Verdict] == ["final", "not_executed", "inconclusive", "in_doubt"]
    assert [each.value for each in reachable.Said] == ["nothing", "named", "private"]
    assert [each.value for each in reachable.Kind] == [0, 1, 2]
    assert (scrubbing.HIDDEN, decide.FORGOTTEN) == ("[redacted]", "forgotten")


def test_prices_change_on_purpose() -> None:
    """With the day on which they were read: whoever edits the table sets both, and this digest."""
    table = json.dumps({name: [str(each) for each in row] for name, row in prices.PRICES.items()})
    assert prices.READ_ON == "2026-11-16"
    assert blake2b(table.encode(), digest_size=8).hexdigest() == "1154f3392ef666f2"


@pytest.mark.parametrize("name", ["jsonrpc", "id", "method", "params", "result", "error"])
def test_members_of_a_message_are_written_as_they_are(name: str) -> None:
    """`Method` is a method to some reader and none to another."""
    refused({"x": 1, name.title(): 1})


@pytest.mark.parametrize("name", ["name", "arguments", "_meta", "task", "inputResponses", "requestState"])
def test_members_of_a_call_are_too(name: str) -> None:
    """The same of its params."""
    refused({"id": 1, "method": "tools/call", "params": {"name": "x", name.upper(): {}}})


def refused(message: dict[str, Any]) -> None:
    with pytest.raises(Unclear) as caught:
        hear(json.dumps(message).encode())
    assert caught.value.code == INVALID_REQUEST


@pytest.mark.parametrize(
    ("text", "is_time"),
    [
        ("2024-01-31", True),
        ("2024-01-31T10:20:30.123Z", True),
        ("2024-01-31 10:20 +0200", True),
        ("20240131T102030Z", True),
        ("Wed, 31 Jan 2024 10:20:30 GMT", True),
        ("31 January 2024", True),
        ("Wednesday, January 31, 2024", True),
        ("Wed Jan 31 10:20:30 UTC 2024", True),
        ("2024-13-01", False),
        ("gpt-4o-2024-05-13", False),
        ("1799-01-31", False),
    ],
)
def test_times_as_programs_write_them(text: str, is_time: bool) -> None:
    """Whole and possible, and no part of a longer word."""
    body = Body(media_type="application/json", data=json.dumps({"t": f"({text})"}).encode())
    found = canonical.canonical_arguments(
        path={}, query=b"", body=body, normalize=[policy.Normalize.TIMESTAMPS]
    )
    assert (json.loads(found)[1]["body"]["t"] == "(<timestamp>)") is is_time


def test_a_uuid_is_one() -> None:
    """Of 32 digits in five groups, and no part of a longer one."""
    known = "123e4567-e89b-12d3-a456-426614174000"
    for text, left in ((known, "<uuid>"), (known.upper(), "<uuid>"), (f"{known}0", f"{known}0")):
        body = Body(media_type="application/json", data=json.dumps([text]).encode())
        found = canonical.canonical_arguments(
            path={}, query=b"", body=body, normalize=[policy.Normalize.UUIDS]
        )
        assert json.loads(found)[1]["body"] == [left]
