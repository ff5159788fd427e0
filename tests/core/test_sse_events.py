"""Events one by one: the same however the body is cut, read as the standard has it, in linear time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core.sse import EventStream, Splitter, boundaries, data_of, fields_of, is_terminal, split_events
from tests.core.test_sse import cut
from tests.counts import count

MARK = b"\xef\xbb\xbf"
RESPONSE = b'data: {"jsonrpc":"2.0","id":1,"result":{}}'
PIECES = st.lists(
    st.sampled_from([b"\r", b"\n", b"\r\n", b"data: a", b"data:b", b"id: 1", b":", b"x", MARK, b"\xef", b""]),
    max_size=14,
).map(b"".join)


def by_the_standard(body: bytes) -> list[bytes]:
    """Its lines, and an event wherever one of them is empty; the last event may lack its blank line."""
    lines = re.split(rb"\r\n|\n|\r", body.removeprefix(MARK))
    events: list[list[bytes]] = [[]]
    for line in lines:
        if line:
            events[-1].append(line)
        elif events[-1]:
            events.append([])
    return [b"\n".join(event) for event in events if event]


def plain(events: list[bytes]) -> list[bytes]:
    """With one kind of line end, and without events that say nothing."""
    told = [re.sub(rb"(?:\r\n|\n|\r)+", b"\n", event).strip(b"\n") for event in events]
    return [event for event in told if event]


def fed(chunks: list[bytes]) -> tuple[list[bytes], Splitter]:
    splitter = Splitter()
    return [event for chunk in chunks for event in splitter.feed(chunk)], splitter


@settings(max_examples=count(1000, 50_000), deadline=None)
@given(PIECES, st.lists(st.integers(0, 60), max_size=8))
@example(b"\n\n" + MARK + b"data: a\n\n", [2])
@example(b"data: a\r\rdata: b\r\r", [9])
@example(b"\xef\n\n", [1])
def test_however_a_body_is_cut_its_events_are_the_same(body: bytes, points: list[int]) -> None:
    """Those of the whole, and those of the standard."""
    whole, _ = fed([body])
    parts, splitter = fed(cut(body, points))
    singly, _ = fed([bytes([byte]) for byte in body])
    assert parts == whole
    assert singly == whole
    assert plain([*parts, *splitter.finish()]) == by_the_standard(body)
    assert plain(split_events(body)) == by_the_standard(body)


@settings(max_examples=count(500, 20_000), deadline=None)
@given(PIECES, st.integers(0, 60))
def test_what_is_waiting_is_less_than_an_event(body: bytes, at: int) -> None:
    """What was given as an event is not kept."""
    events, splitter = fed(cut(body, [at]))
    assert splitter.waiting + sum(map(len, events)) <= len(body)
    if body.endswith((b"a\n\n", b"b\r\n\r\n")):
        assert splitter.waiting == 0


@settings(max_examples=count(500, 20_000), deadline=None)
@given(PIECES)
def test_boundaries_are_where_events_end(body: bytes) -> None:
    """What lies between them is the same as what is split."""
    events, start = [], 0
    for begin, end in boundaries(body, 0):
        assert start <= begin < end
        events.append(body[start:begin])
        start = end
    events.append(body[start:])
    if not body.startswith((MARK, b"\xef")):
        assert plain(events) == by_the_standard(body)


def test_an_event_is_whole_as_soon_as_its_blank_line_is_there() -> None:
    """A CR may be half a line end, and a whole one if nothing follows."""
    splitter = Splitter()
    assert splitter.feed(b"data: a\r\r") == []
    assert splitter.feed(b"data: b\r\n\r\n") == [b"data: a", b"data: b"]
    assert splitter.feed(b"data: c\n") == []
    assert splitter.feed(b"\n") == [b"data: c"]
    assert splitter.feed(b"data: d") == []
    assert splitter.finish() == [b"data: d"]
    assert splitter.finish() == []


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: a", b"a"),
        (b"data:a", b"a"),
        (b"data:  a", b" a"),
        (b"data", b""),
        (b"data:", b""),
        (b"data: a\ndata: b", b"a\nb"),
        (b"data: a\rdata:b\r\ndata", b"a\nb\n"),
        (b"data: a: b", b"a: b"),
        (b" data: a", b""),
        (b"Data: a", b""),
        (b": data: a", b""),
        (b"", b""),
    ],
)
def test_data_is_read_as_the_standard_has_it(event: bytes, data: bytes) -> None:
    """One blank behind the colon is none of it; several lines are one text; names are exact."""
    assert data_of(event) == data


def test_fields_are_in_order_and_comments_have_no_name() -> None:
    """Empty lines are none."""
    told = b":hi\n\nid: 1\r\ndata: a\rretry:5\n"
    assert fields_of(told) == [(b"", b"hi"), (b"id", b"1"), (b"data", b"a"), (b"retry", b"5")]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_a_mark_before_the_first_event_does_not_hide_an_end(size: int) -> None:
    """It is held back all the same. In a later event it is a part of a name that nobody knows."""
    body = MARK + RESPONSE + b"\n\n"
    stream = EventStream()
    for at in range(0, len(body), size):
        stream.feed(body[at : at + size])
    assert (stream.visible, stream.ended) == (0, True)
    later = EventStream()
    later.feed(b": a\n\n" + body)
    assert not later.ended


def test_an_end_with_a_number_that_is_hard_to_read_is_an_end() -> None:
    """Clients act on it."""
    assert is_terminal(b'data: {"jsonrpc":"2.0","result":%b}' % (b"1" * 5000))
    assert is_terminal(b'data: {"jsonrpc":"2.0","result":NaN}')


@pytest.mark.parametrize("event", [b"data: " + b"x" * 60, b":", b"data: 1\n", b"\r", b"data: " + b"\r" * 9])
def test_splitting_takes_linear_time(event: bytes) -> None:
    """Of one long event in many parts, and of many short ones."""

    def seconds(size: int) -> float:
        began = time.process_time()
        splitter = Splitter()
        one = b"data: " + b"x" * 1000
        for _ in range(size // 1000):
            splitter.feed(one)
        splitter.feed(b"\n\n")
        for _ in range(size // 1000):
            splitter.feed((event + b"\n\n") * (1000 // len(event + b"\n\n")))
        return time.process_time() - began

    small = min(seconds(500_000) for _ in range(3))
    assert seconds(8_000_000) < 60 * small + 0.2
