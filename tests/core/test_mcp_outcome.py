"""What every answer of an MCP server means, against the table of the design written out again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.jsonrpc import Id
from proxy.core.mcp_outcome import Spoken, judge_spoken, spoken_in
from proxy.core.outcome import Verdict
from proxy.core.policy import OutcomeRule
from tests.counts import count

PLAIN = OutcomeRule()
SILENCE = Spoken(None)
F, N, D, I = Verdict.FINAL, Verdict.NOT_EXECUTED, Verdict.IN_DOUBT, Verdict.INCONCLUSIVE  # noqa: E741
ODD_CODES: list[Any] = ["-32600", [], {}, [-32600], True, float("inf")]
ODD_ERRORS: list[Any] = ["x", [], 1, False, {}]
REFUSALS = (401, 402, 403, 407, 425, 429)


def result(**members: Any) -> Spoken:
    return Spoken({"jsonrpc": "2.0", "id": 1, "result": members})


def failed(code: Any, id_: Id | None = 1) -> Spoken:
    return Spoken({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": "x"}})


def verdicts(status: int, spoken: Spoken, rule: OutcomeRule = PLAIN) -> tuple[Verdict, Verdict]:
    """With effects, and safe."""
    return (
        judge_spoken(status, spoken, safe=False, rule=rule),
        judge_spoken(status, spoken, safe=True, rule=rule),
    )


# ---- the table ----


@pytest.mark.parametrize(
    ("spoken", "expected"),
    [
        (result(content=[]), (F, F)),
        (result(), (F, F)),
        (result(isError=True), (F, F)),  # half the work may be done
        (result(resultType="complete"), (F, F)),
        (result(resultType="input_required"), (N, I)),
        (result(resultType=["input_required"]), (F, F)),
        (Spoken({"id": 1, "result": None}), (F, F)),
        (Spoken({"id": 1, "result": "input_required"}), (F, F)),
        (Spoken({"id": 1, "result": {}, "error": None}), (F, F)),
        (Spoken({"id": 1, "result": {"resultType": "input_required"}, "error": None}), (N, I)),
        (Spoken({"id": 1, "error": None}), (F, F)),
        (Spoken({"id": 1, "result": {}, "error": {"code": 1}}), (F, I)),
        *((failed(code), (N, I)) for code in (-32700, -32600, -32601, -32020, -32021, -32022, -32042)),
        (failed(-32001), (D, I)),
        *((failed(code), (F, I)) for code in (-32602, -32603, -32000, -32002, -32099, 0, 1, 500, None)),
        *((failed(code), (F, I)) for code in ODD_CODES),
        (failed(-32600.0), (N, I)),
        *((Spoken({"id": 1, "error": error}), (F, I)) for error in ODD_ERRORS),
        (SILENCE, (D, I)),
    ],
    ids=lambda value: json.dumps(value.response)[:80] if isinstance(value, Spoken) else "",
)
def test_what_a_response_with_200_means(spoken: Spoken, expected: tuple[Verdict, Verdict]) -> None:
    """Who answers has decided; what was not begun is released; a timeout behind the server is doubt. What
    failed is not kept for others where repeating does no harm."""
    assert verdicts(200, spoken) == expected


@pytest.mark.parametrize("code", [-32603, -32000, -32001, -32602, 1, None, [], "x"])
def test_an_error_that_names_no_request_proves_nothing(code: Any) -> None:
    """Some servers say so of everything that fails, after the tool too. With a refusal beside it, it is that
    refusal; and what says by its code that nothing was begun is believed."""
    for id_ in ({"id": None}, {}):
        spoken = Spoken({"error": {"code": code}, **id_})
        assert verdicts(200, spoken) == (D, I)
        assert verdicts(202, spoken) == (D, I)
        assert verdicts(500, spoken) == (D, I)
        assert verdicts(404, spoken) == (N, I)
        assert verdicts(400, spoken) == (N, I)
    assert verdicts(200, failed(-32700, None)) == (N, I)
    assert verdicts(200, failed(-32600, None)) == (N, I)


def test_a_status_without_a_response() -> None:
    """A refusal of the transport, or a redirect: nothing was begun. Everything else is doubt, and so is a
    redirect that says where the answer is."""
    for status in (*range(100, 600), 0, 600, 999):
        begun = not 300 <= status < 500 or status in (303, 408)
        assert verdicts(status, SILENCE) == (D if begun else N, I), status


def test_a_status_with_a_result() -> None:
    """A refusal is one; what failed in the server is doubt whatever it says; else the response counts. A safe
    answer is kept if it is complete."""
    for status in (*range(100, 600), 600):
        if status in REFUSALS:
            expected = (N, I)
        elif status >= 500 or status == 408:
            expected = (D, I)
        else:
            expected = (F, F if 200 <= status < 300 else I)
        assert verdicts(status, result()) == expected, status


@pytest.mark.parametrize("spoken", [result(), failed(-32600), failed(1), SILENCE], ids=str)
@pytest.mark.parametrize("status", [200, 202, 404, 429, 500])
def test_the_rules_own_words_come_first(spoken: Spoken, status: int) -> None:
    """By status, whatever is said beside it; a safe call is never in doubt."""
    one = frozenset({status})
    assert verdicts(status, spoken, OutcomeRule(final=one)) == (F, F)
    assert verdicts(status, spoken, OutcomeRule(not_executed=one)) == (N, I)
    assert verdicts(status, spoken, OutcomeRule(in_doubt=one)) == (D, I)


def test_the_rules_expressions_read_the_response() -> None:
    """The whole of it: doubt before release, and both before the table."""
    rule = OutcomeRule(not_executed_if="result.isError", in_doubt_if="error.code == `-32603`")
    assert verdicts(200, result(isError=True), rule) == (N, I)
    assert verdicts(500, result(isError=True), rule) == (N, I)
    assert verdicts(200, result(isError="true"), rule) == (F, F)
    assert verdicts(200, failed(-32603), rule) == (D, I)
    assert verdicts(200, SILENCE, rule) == (D, I)


@settings(max_examples=count(500, 20_000), deadline=None)
@given(
    st.integers(0, 999),
    st.none() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=4), st.lists),
    st.sampled_from(["result", "error"]),
    st.sampled_from([1, None, "x"]),
)
def test_whatever_a_server_says_there_is_a_verdict(status: int, value: Any, name: str, id_: Any) -> None:
    """Nothing is sent again but what a refusal or a code says was not begun; and no shape raises."""
    for told in (value, {"code": value}, {"resultType": value}):
        effects, safe = verdicts(status, Spoken({"id": id_, name: told}))
        assert safe in (F, I)
        if effects is N:
            by_code = isinstance(told, dict) and told.get("code") in (-32700, -32600, -32601)
            assert by_code or 300 <= status < 500


# ---- finding it ----


def stream(*messages: Any) -> bytes:
    return b"".join(b"event: message\ndata: %b\n\n" % json.dumps(message).encode() for message in messages)


NOTE = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}
ASK = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
DONE = {"jsonrpc": "2.0", "id": 1, "result": {"n": 1}}
OTHERS = {"jsonrpc": "2.0", "id": 2, "result": {}}
NAMELESS = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700}}


def test_the_response_is_found_among_what_else_is_said() -> None:
    """By its id; the first of two."""
    assert spoken_in(json.dumps(DONE).encode(), 1, events=False) == Spoken(DONE)
    again = {**DONE, "result": 2}
    assert spoken_in(stream(NOTE, OTHERS, DONE, again), 1, events=True) == Spoken(DONE)
    assert spoken_in(stream(NOTE, OTHERS), 1, events=True) == SILENCE
    assert spoken_in(json.dumps(OTHERS).encode(), 1, events=False) == SILENCE


def test_an_error_that_names_no_request_yields_to_the_response() -> None:
    """It may be about anything: released by it, the call would be made again."""
    assert spoken_in(stream(NAMELESS, DONE), 1, events=True) == Spoken(DONE)
    assert spoken_in(stream(DONE, NAMELESS), 1, events=True) == Spoken(DONE)
    assert spoken_in(stream(NAMELESS), 1, events=True) == Spoken(NAMELESS)


def test_that_the_client_was_asked_is_heard() -> None:
    """Before or after the response; a ping asks nothing."""
    assert spoken_in(stream(ASK, DONE), 1, events=True) == Spoken(DONE, asked=True)
    assert spoken_in(stream(DONE, ASK), 1, events=True) == Spoken(DONE, asked=True)
    assert spoken_in(stream(PING, DONE), 1, events=True) == Spoken(DONE)
    assert spoken_in(json.dumps(ASK).encode(), 1, events=False) == Spoken(None, asked=True)


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + stream(DONE),
        stream(DONE).replace(b"\n", b"\r"),
        stream(DONE).replace(b"\n", b"\r\n"),
        stream(DONE).replace(b"data: ", b"data:"),
        stream(DONE)[:-1],
        stream(DONE)[:-2],
        b": hello\n\ndata\n\ndata:\n\nid: 1\ndata: \n\n" + stream(DONE),
        b"data: nonsense\n\ndata: \xff\n\ndata: %b\n\n" % (b"[" * 100_000) + stream(DONE),
        stream(DONE).replace(b'"n": 1', b'"n":\ndata: 1'),
    ],
    ids=range(9),
)
def test_events_are_read_as_clients_read_them(body: bytes) -> None:
    """Marks, line ends, data in several lines, no blank line at the end; what is nonsense is skipped."""
    assert spoken_in(body, 1, events=True) == Spoken(DONE)


def test_numbers_that_are_hard_to_read_do_not_hide_a_response() -> None:
    """The server has answered, and clients read it."""
    for number in (b"1" * 5000, b"NaN", b"1e99999"):
        body = b'{"id": 1, "result": {"n": %b}}' % number
        assert spoken_in(body, 1, events=False).response is not None
        assert spoken_in(b"data: %b\n\n" % body, 1, events=True).response is not None


@pytest.mark.parametrize(
    "body", [None, b"", b"<html>", b"\xff\xfe", b"[]", b"1", b"[" * 100_000, b'{"id":1}']
)
def test_what_is_no_response_is_silence(body: bytes | None) -> None:
    """And nothing about it raises."""
    assert spoken_in(body, 1, events=False) == SILENCE
    assert spoken_in(body, 1, events=True) == SILENCE


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.IN_DOUBT),
        (404, Verdict.NOT_EXECUTED),
        (400, Verdict.NOT_EXECUTED),
        (504, Verdict.IN_DOUBT),
    ],
)
def test_a_timeout_further_on_and_a_session_that_is_no_more(status: int, verdict: Verdict) -> None:
    """Both have the code -32001: the status says which."""
    response = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "no"}}
    assert judge_spoken(status, Spoken(response), safe=False, rule=OutcomeRule()) is verdict
