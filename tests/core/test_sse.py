"""Event streams: the terminal event and all after it stay hidden, everything before it shows early."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core.sse import MAX_EVENT, EventStream, is_terminal
from tests.counts import count

TERMINAL = [
    b"data: [DONE]",
    b"data:[DONE]",
    b"data: [DONE] ",
    b'event: message_stop\ndata: {"type": "message_stop"}',
    b'data: {"type":"message_stop"}',
    b"event: message_stop",
    b'event: response.completed\ndata: {"type":"response.completed"}',
    b'data: {"type": "response.completed", "response": {}}',
    b'data: {"type":"response.failed"}',
    b'data: {"type":"response.incomplete"}',
    b'data: {"jsonrpc":"2.0","id":1,"result":{}}',
    b'event: message\nid: 7\ndata: {"jsonrpc": "2.0", "id": 1,\ndata:  "error": {"code": 1}}',
    b": a comment\ndata: [DONE]\nretry: 10",
]
ORDINARY = [
    b"data: hello",
    b": keep-alive",
    b"",
    b"data",
    b"data: [DONE] x",
    b"data: x\ndata: [DONE]",
    b'data: {"type":"message_start"}',
    b'data: {"type":"content_block_delta","delta":{"text":"message_stop"}}',
    b'data: {"type":"response.created"}',
    b'data: "message_stop"',
    b'data: ["message_stop"]',
    b'data: {"message_stop"',
    b'data: {"type":["message_stop"]}',
    b'data: {"type":{"message_stop":1}}',
    b'data: {"jsonrpc":"2.0","method":"notifications/progress"}',
    b'data: {"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}',
    b"event: ping\ndata: {}",
    b"xdata: [DONE]",
]


@pytest.mark.parametrize("event", TERMINAL, ids=lambda event: event.decode()[:40])
def test_known_ends_are_known(event: bytes) -> None:
    """[DONE], message_stop, response.*, a JSON-RPC result or error."""
    assert is_terminal(event)


@pytest.mark.parametrize("event", ORDINARY, ids=lambda event: event.decode()[:40])
def test_what_only_resembles_an_end_is_none(event: bytes) -> None:
    """And nothing about it raises."""
    assert not is_terminal(event)


def feed(chunks: list[bytes]) -> EventStream:
    stream = EventStream()
    shown = 0
    for chunk in chunks:
        now = stream.feed(chunk)
        assert now >= shown  # what was shown is never taken back
        shown = now
    return stream


def cut(data: bytes, points: list[int]) -> list[bytes]:
    at = sorted({point % (len(data) + 1) for point in points} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(at)]


ENDINGS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@settings(max_examples=count(500, 20_000), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(ORDINARY), ENDINGS, ENDINGS), max_size=4),
    st.sampled_from(TERMINAL),
    ENDINGS,
    ENDINGS,
    st.binary(max_size=20),
    st.lists(st.integers(0, 400), max_size=8),
)
@example([(b"data: hello", b"\n", b"\r\n")], b"data: [DONE]", b"\n", b"\n", b"", [])
def test_no_byte_of_the_terminal_event_is_shown_however_the_stream_is_cut(
    before: list[tuple[bytes, bytes, bytes]],
    terminal: bytes,
    ending: bytes,
    blank: bytes,
    after: bytes,
    points: list[int],
) -> None:
    """Lines may end in three ways, also mixed; chunks may end anywhere."""

    def written(event: bytes, end: bytes, empty: bytes) -> bytes:
        if (end, empty) == (b"\r", b"\n"):  # together they are one line end, not a blank line
            empty = b"\r"
        return event.replace(b"\n", end) + end + empty

    head = b"".join(written(event, end, empty) for event, end, empty in before if event)
    stream = feed(cut(head + written(terminal, ending, blank) + after, points))
    assert stream.visible <= len(head)


@settings(max_examples=count(200, 5_000), deadline=None)
@given(
    st.lists(st.sampled_from([event for event in ORDINARY if event]), max_size=5),
    ENDINGS,
    st.lists(st.integers(0, 300), max_size=6),
)
def test_whole_events_are_shown_at_once(events: list[bytes], end: bytes, points: list[int]) -> None:
    """Nothing ordinary is held back longer than until its blank line."""
    data = b"".join(event.replace(b"\n", end) + end + end for event in events)
    stream = feed(cut(data, points))
    assert not stream.ended
    assert stream.visible == len(data)


def test_a_half_event_is_not_shown() -> None:
    """It could still become the end."""
    stream = EventStream()
    assert stream.feed(b"data: a\n\ndata: [DO") == 9
    assert stream.feed(b"NE") == 9
    assert stream.feed(b"]\n") == 9
    assert stream.feed(b"\n") == 9
    assert stream.ended
    assert stream.feed(b"data: more\n\n") == 9


def test_holding_back_stays_bounded() -> None:
    """An event beyond the limit is handed on before it is complete, and the stream goes on."""
    stream = EventStream()
    assert stream.feed(b"data: " + b"x" * (MAX_EVENT - 6)) == 0
    assert stream.feed(b"x") == MAX_EVENT + 1
    assert stream.feed(b"\n\n") == MAX_EVENT + 3
    assert stream.feed(b"data: [DONE]\n\n") == MAX_EVENT + 3


@settings(max_examples=count(300, 10_000), deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=6), st.sampled_from([b"", *TERMINAL]))
def test_arbitrary_bytes_never_raise(chunks: list[bytes], hint: bytes) -> None:
    """A reader that fails would turn an answer into doubt."""
    feed([*chunks, hint, *chunks])


@settings(max_examples=count(200, 5_000), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.sampled_from(["message_stop", "response.x", "2.0"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["type", "jsonrpc", "result", "x"]), inner, max_size=3)
        ),
        max_leaves=6,
    )
)
def test_any_json_event_can_be_judged(value: object) -> None:
    """Whatever stands under `type`."""
    expected = isinstance(value, dict) and (
        value.get("type") == "message_stop" or ("jsonrpc" in value and "result" in value)
    )
    assert is_terminal(b"data: " + json.dumps(value).encode()) is expected
