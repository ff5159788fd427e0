"""What an MCP server's answer means for the call.

The response counts, not the status beside it: a server that gives one has decided. Without a response nobody
knows. That the server asks for more (`input_required`, a page to visit) is no last word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from proxy.core.json_text import read
from proxy.core.jsonrpc import Id, answers_to, asks_client
from proxy.core.outcome import NOT_BEGUN, REQUEST_TIMEOUT, Verdict, by_expression
from proxy.core.policy import OutcomeRule
from proxy.core.sse import data_of, split_events

# Said before a tool is looked for: parse error, invalid request, no such method; header mismatch, missing
# capability, unsupported version (2026-07-28); a page that the user must visit first (2025-11-25).
NOT_BEGUN_CODES = frozenset({-32700, -32600, -32601, -32020, -32021, -32022, -32042})
# A server that asks another one was not answered in time.
DOUBTFUL_CODES = frozenset({-32001})
# Its answer is elsewhere, so there is one.
SEE_OTHER = 303


class Spoken(NamedTuple):
    """What came of one request. `response` is None where none came; `asked`: the client was asked something
    in between, so what was said is good for that client alone."""

    response: dict[str, Any] | None
    asked: bool = False


def spoken_in(body: bytes | None, id_: Id, *, events: bool) -> Spoken:
    """Of a whole answer, decoded; None where it could not be. An error that names no request is the response
    only where no other is."""
    named, nameless, asked = None, None, False
    for message in _messages(body, events=events) if body else ():
        asked = asked or asks_client(message)
        if not answers_to(message, id_):
            continue
        if message.get("id") is None:
            nameless = nameless or message
        else:
            named = named or message
    return Spoken(named or nameless, asked)


def _messages(body: bytes, *, events: bool) -> Iterator[Any]:
    for text in map(data_of, filter(_may_count, split_events(body))) if events else (body,):
        try:
            said = read(text)
        except (ValueError, RecursionError):
            continue
        yield from said if isinstance(said, list) else (said,)  # of 2025-03-26: several together


def _may_count(event: bytes) -> bool:
    """Responses and questions have an id; of what only tells how it goes there may be very many."""
    return b'"id"' in event or b"\\u" in event


def judge_spoken(status: int, spoken: Spoken, *, safe: bool, rule: OutcomeRule) -> Verdict:
    verdict = _judged(status, spoken, rule)
    if not safe:
        return verdict
    complete = status in rule.final or (200 <= status < 300 and not _failed(spoken.response))
    return Verdict.FINAL if verdict is Verdict.FINAL and complete else Verdict.INCONCLUSIVE


def _failed(response: dict[str, Any] | None) -> bool:
    """What failed is nothing to keep for others who ask: where repeating does no harm, they may try."""
    return response is None or response.get("error") is not None


def _judged(status: int, spoken: Spoken, rule: OutcomeRule) -> Verdict:
    for verdict, named in (
        (Verdict.FINAL, rule.final),
        (Verdict.NOT_EXECUTED, rule.not_executed),
        (Verdict.IN_DOUBT, rule.in_doubt),
    ):
        if status in named:
            return verdict
    if status in NOT_BEGUN:
        return Verdict.NOT_EXECUTED
    if spoken.response is None:
        return _without_response(status)
    told = by_expression(spoken.response, rule)
    if told is not None:
        return told
    if status >= 500 or status == REQUEST_TIMEOUT:
        return Verdict.IN_DOUBT
    return _said(status, spoken.response)


def _without_response(status: int) -> Verdict:
    """A redirect, or a refusal of the transport: no session, no token, no such address. Nothing was begun."""
    refused = 300 <= status < 500 and status not in (SEE_OTHER, REQUEST_TIMEOUT)
    return Verdict.NOT_EXECUTED if refused else Verdict.IN_DOUBT


def _said(status: int, response: dict[str, Any]) -> Verdict:
    error = response.get("error")
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        code = code if isinstance(code, int | float) else None
        if code in NOT_BEGUN_CODES:
            return Verdict.NOT_EXECUTED
        if response.get("id") is None:  # some say so of whatever fails, also of what they had begun
            return _without_response(status)
        if code in DOUBTFUL_CODES:  # with a 4xx it is said of a session that is no more
            return _without_response(status)
        return Verdict.FINAL
    result = response.get("result")
    wants_more = isinstance(result, dict) and result.get("resultType") == "input_required"
    return Verdict.NOT_EXECUTED if wants_more else Verdict.FINAL
