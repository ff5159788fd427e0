"""The same answer for another request: under that one's id, and without what was for the first alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.jsonrpc import Id
from proxy.core.mcp_again import Again, headers_again
from proxy.core.sse import data_of, fields_of
from tests.core.json_values import VALUES, Value, spelled
from tests.counts import count

AGAIN = Again("n", None)


def event(message: Any, *lines: bytes) -> bytes:
    return b"\n".join([*lines, b"data: " + json.dumps(message).encode()])


def test_a_response_has_the_new_id_and_no_event_id() -> None:
    """Nobody could take that stream up by it. The name of the event stays."""
    told = event({"id": 1, "result": {}}, b"id: 5", b"event: message", b"retry: 10", b": hello")
    assert AGAIN.event(told) == b'event: message\ndata: {"id": "n", "result": {}}\n\n'


def test_what_the_server_asked_the_client_is_not_asked_again() -> None:
    """A ping neither: the server of now waits for no answer to it."""
    for method in ("sampling/createMessage", "elicitation/create", "roots/list", "ping"):
        assert AGAIN.event(event({"id": 1, "method": method})) is None


def test_progress_is_told_under_the_token_of_now_or_not_at_all() -> None:
    """It belongs to whoever asked for it."""
    note = event({"method": "notifications/progress", "params": {"progressToken": 1, "progress": 2}})
    assert AGAIN.event(note) is None
    told = Again(1, "t").event(note)
    assert told == note.replace(b'"progressToken": 1', b'"progressToken": "t"') + b"\n\n"
    assert Again(1, 0).event(note) == note.replace(b'"progressToken": 1', b'"progressToken": 0') + b"\n\n"


def test_other_notifications_are_given_as_they_were() -> None:
    """A log line, a list that changed."""
    note = event({"method": "notifications/message", "params": {"id": 1}})
    assert AGAIN.event(note) == note + b"\n\n"


@pytest.mark.parametrize(
    "told",
    [b"", b": hello", b"id: 1\ndata:", b"id: 1\ndata", b"data: x", b"data: \xff", b"data: " + b"[" * 99_999],
    ids=lambda told: repr(told[:12]),
)
def test_what_is_no_message_is_left_out(told: bytes) -> None:
    """Comments, the first event that only says an id, nonsense; nothing raises."""
    assert AGAIN.event(told) is None


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b" "])
def test_a_mark_in_the_data_does_not_hide_a_response(mark: bytes) -> None:
    """What was read when it was recorded is read when it is given."""
    assert AGAIN.event(b"data:" + mark + b'{"id":1,"result":1}') is not None


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_data_in_several_lines_is_one_message(end: bytes) -> None:
    """Whatever its lines end with."""
    told = b'data: {"id":1,\ndata:"result":\ndata: 1}'.replace(b"\n", end)
    assert AGAIN.event(told) == b'data: {"id":"n",\ndata: "result":\ndata: 1}\n\n'


def test_a_whole_answer_that_cannot_be_read_is_given_as_it_was() -> None:
    """It may be a page of HTML."""
    for body in (b"", b"<html>", b"[]", b"\xff", b"[" * 99_999):
        assert AGAIN.message(body) == body
    assert AGAIN.message(b'{"id":1}') == b'{"id":"n"}'
    assert AGAIN.message(b'{"id":1,"x":%b}' % (b"1" * 5000)) == b'{"id":"n","x":%b}' % (b"1" * 5000)


@settings(max_examples=count(300, 10_000), deadline=None)
@given(VALUES, st.integers(0, 2**32), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.integers() | st.text())
def test_any_result_arrives_as_it_is_under_the_new_id(result: Value, seed: int, end: bytes, new: Id) -> None:
    """As a message and as an event give the same, however it is spelled and cut into lines."""
    print(f"seed {seed}")
    body = spelled(
        (
            "object",
            frozenset({("id", ("string", "old")), ("result", result), ("jsonrpc", ("string", "2.0"))}),
        ),
        seed,
    )
    again = Again(new, None)
    now = json.loads(again.message(body), parse_float=str)
    assert now["id"] == new
    assert (
        json.loads(again.message(body), parse_int=str, parse_float=str)["result"]
        == (json.loads(body, parse_int=str, parse_float=str)["result"])
    )
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    told = again.event(end.join([b"id: 1", *(b"data: " + line for line in lines)]))
    assert told is not None
    assert told.endswith(b"\n\n")
    assert b"\n\n" not in told[:-2]
    assert b"\r" not in told
    assert json.loads(data_of(told), parse_float=str) == now
    assert {name for name, _ in fields_of(told)} == {b"data"}


def test_the_session_and_the_length_of_then_are_not_said_again() -> None:
    """All other headers are."""
    kept = (b"Content-Type", b"application/json")
    said = (kept, (b"MCP-Session-Id", b"1"), (b"content-Length", b"9"))
    assert headers_again(said) == (kept,)
