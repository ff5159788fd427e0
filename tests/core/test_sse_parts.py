"""Where a part of a stream ends: what is shown then, to the byte, and how an end is told."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core import sse
from proxy.core.sse import MAX_EVENT, CodedEventStream, EventStream, is_terminal
from tests.core.test_sse import CODINGS, LARGE, coded, cut, feed, packed
from tests.core.test_sse_events import MARK, RESPONSE
from tests.counts import count


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ([b"\n\n", b"\n", b"\n"], [2, 2, 4]),
        ([b"\ndata: a", b"\n\n"], [0, 10]),
        ([b"a\n\n", b"\n", b"b"], [3, 3, 3]),
        ([b"a\n\n", b"\nx\r", b"y"], [3, 3, 3]),
        ([b"a\r\r", b"", b"\n", b"\n"], [3, 3, 4, 4]),
        ([b"a\r\r", b"data: [DONE]\n", b"\n"], [3, 3, 3]),
        ([b"a\r\n", b"\r", b"\n", b"b"], [0, 4, 5, 5]),
    ],
)
def test_what_is_shown_of_each_part(parts: list[bytes], shown: list[int]) -> None:
    """Blank lines as they come; an LF at once where it ends a CR that was shown, else with its event."""
    stream = EventStream()
    assert [stream.feed(part) for part in parts] == shown


class OneByOne(EventStream):
    """Every event is looked at, whatever it bears."""

    def feed(self, chunk: bytes) -> int:
        if self.ended or not chunk:
            return self.visible
        pending = self._pending + chunk
        start = int(self._after_cr and pending.startswith(b"\n"))
        look_from = max(0, len(self._pending) - 3)
        while found := sse._BOUNDARY.search(pending, max(start, look_from)):
            event = pending[start : found.start()]
            if self._is_end(event if self._offset + start else sse.unmarked(event)):
                self.ended = True
                break
            self._marks = None
            start = found.end()
        self.visible = self._offset + start if start else self.visible
        self._after_cr = start == len(pending) and pending.endswith(b"\r")
        self._keep(pending[start:], self._offset + start)
        return self.visible


WORDS = [
    b"data: a", b"[DONE]", b"data: [DONE]", b'data: {"jsonrpc":"2.0"', b',"result":1}', b'"error"', b"}",
    b"event: message_stop", b'data: {"type":"\\u006dessage_stop"}', b"\\u00e9", b"\\u00", b"\\u0", b"6d",
    MARK,
]  # fmt: skip
ENDS_OF_LINES = [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r\n\n"]


@settings(max_examples=count(1_500, 60_000), deadline=None)
@given(
    st.lists(st.sampled_from(WORDS) | st.sampled_from(ENDS_OF_LINES), max_size=24).map(b"".join),
    st.lists(st.integers(0, 300), max_size=8),
    LARGE,
)
@example(b"a\n\n\n\n\ndata: [DONE]\n\n", [], MAX_EVENT)
@example(b"data: a\n\ndata: [DONE]\n\ndata: b\n\ndata: [DONE]\n\n", [], MAX_EVENT)
@example(b"data: a\n\ndata: [DONE]\n\nevent: message_stop\n\n", [], MAX_EVENT)
@example(b"data: a\n\nevent: message_stop\n\ndata: [DONE]\n\n", [], MAX_EVENT)
@example(b'data: {"jsonrpc":"2.0","result":1}\n\n' * 2, [], MAX_EVENT)
@example(b'data: a\n\ndata: {"type":"\\u006dessage_stop"}\n\n' * 2, [], MAX_EVENT)
@example(b"data: a\n\r\n\n\ndata: b\n\n", [10], MAX_EVENT)
@example(b"a\r\r\n\n\n\nb\n\ndata: [DONE]\n\n", [3], MAX_EVENT)
@example(b"a\r\r\ndata: [DONE]\n\n", [3], MAX_EVENT)
@example(b"data: " + b"a" * 99 + b"\n" * 65 + b"b", [], MAX_EVENT)
@example(b"data: " + b"a" * 999 + b"\n" * 701 + b"data: [DONE]\n\n", [], MAX_EVENT)
@example(b"\r\n\n" * 301 + b"data: [DONE]\n\n", [7, 500], MAX_EVENT)
@example(b"a\n\r\n\n\r\rb\n\ndata: [DONE]\r\r", [3, 6], MAX_EVENT)
@example(b'data: {"jsonrpc":"2.0"\n\n"result"\n\ndata: a\n\n', [], MAX_EVENT)
def test_what_is_passed_over_would_have_been_shown(body: bytes, points: list[int], large: int) -> None:
    """Most events are not looked at, since no mark of an end is near: that changes nothing."""
    quick, careful = EventStream(), OneByOne()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "MAX_EVENT", large)
        for chunk in cut(body, points):
            assert quick.feed(chunk) == careful.feed(chunk)
            assert (quick.ended, quick._marks) == (careful.ended, careful._marks)


def test_events_without_a_mark_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long stream must not wait for that."""
    looked_at: list[bytes] = []

    def look_at(event: bytes) -> bool:
        looked_at.append(event)
        return False

    monkeypatch.setattr(sse, "is_terminal", look_at)
    plain = [b'data: {"type":"response.output_text.delta","delta":"\\u00e9"}\n\n' * 50] * 4
    feed([*plain, b"data: 1\n\ndata: [DONE]\n\n"])
    assert looked_at == [b"data: [DONE]"]


def test_only_before_the_first_event_a_mark_of_order_is_none_of_it() -> None:
    """Wherever the parts before it ended: later it is part of a name that nobody knows."""
    event = b": a\n\n"
    stream = EventStream()
    for parts in (event, event + MARK + RESPONSE + b"\n\n"):
        stream.feed(parts)
    assert not stream.ended


@pytest.mark.parametrize("large", [0, 3, 8, MAX_EVENT])
def test_from_which_size_on_an_event_is_large_changes_nothing_that_is_shown(large: int) -> None:
    """Also where less of it is there than is kept of a large one."""
    assert feed([b"dat", b"a: 1\n\nda", b"ta: 2\n\n"], large=large).visible == 18


def resembling(size: int, words: bytes = b"[DONE]") -> bytes:
    """No end, but with such words in it."""
    head, tail = b'data: {"text":"%b' % words, b'"}'
    return head + b"x" * (size - len(head + tail)) + tail


@pytest.mark.parametrize(("size", "ends"), [(MAX_EVENT, False), (MAX_EVENT + 1, True), (3 * MAX_EVENT, True)])
def test_an_event_is_judged_alike_whole_or_in_parts(size: int, ends: bool) -> None:
    """Up to a size by what it says, beyond it by its marks alone."""
    event = resembling(size)
    for parts in ([event + b"\n\n"], [event, b"\n\n"], [event[:100], event[100:] + b"\n\n"]):
        stream = feed([*parts, b"data: b\n\n"])
        assert stream.ended is ends
        assert stream.visible == (0 if ends else size + 2 + 9)


def test_a_large_event_with_a_result_is_an_end_only_of_a_call() -> None:
    """A JSON-RPC message says so; others may have a result in them."""
    event = resembling(2 * MAX_EVENT, b'","result":"')
    assert not feed([event + b"\n\n"]).ended
    assert not feed([event, b"\n\n"]).ended
    assert feed([event[:-1] + b',"jsonrpc":"2.0"}\n\n']).ended


@pytest.mark.parametrize(
    ("event", "ends"),
    [
        (b"event: \xff\ndata: [DONE]", True),
        (b"event: message_stop\xff\ndata: {}", False),
        (b'data: {"params": {"jsonrpc": "2.0"}, "result": 1}', False),
        (b'data: [{"params": {"jsonrpc": "2.0"}}, {"error": 1}]', False),
        (b'data: {"jsonrpc": "2.0",\r\ndata: "result": 1}', True),
    ],
)
def test_an_end_is_told_by_what_the_message_itself_says(event: bytes, ends: bool) -> None:
    """Not by what is somewhere in it, and whatever its name is made of."""
    assert is_terminal(event) is ends


@pytest.mark.parametrize("coding", CODINGS)
def test_with_the_end_of_an_event_all_parts_before_it_are_shown(coding: str) -> None:
    """The part itself holds half of the next event, so it waits."""
    halves = packed(coding, [b"data: a", b"\n\ndata: ", b"b\n\n", b": c\n\n"], [])
    sizes = list(itertools.accumulate(map(len, halves)))
    stream = coded(coding)
    assert [stream.feed(part) for part in halves] == [0, sizes[0], sizes[2], sizes[3]]


@pytest.mark.parametrize("coding", CODINGS)
def test_after_a_part_that_became_too_much_nothing_more_is_shown(
    coding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it held is not known, so no event after it is: not even where the decoder could go on."""
    monkeypatch.setattr(sse, "MAX_DECODED", 100)
    first, *rest = packed(coding, [b"data: a\n\n", b"x" * 200, b"data: b\n\n", b"data: c\n\n"], [])
    stream = coded(coding)
    assert [stream.feed(part) for part in (first, *rest)] == [len(first)] * 4


def test_after_its_end_a_coded_stream_shows_nothing_more() -> None:
    """Whatever comes, well coded or not."""
    first, *rest = packed("gzip", [b"data: a\n\n", b"data: [DONE]\n\n", b"data: b\n\n"], [])
    stream = CodedEventStream(("gzip",))
    assert [stream.feed(part) for part in (first, *rest, b"more")] == [len(first)] * 4
    assert stream.ended


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"type":"message\\u005fstop"}',
        b'data: {"type":"response\\u002ecompleted"}',
        b'data: {"\\u006asonrpc":"2.0","id":1,"result":{}}',
    ],
)
def test_an_end_in_another_spelling_of_json(event: bytes) -> None:
    """Whoever parses it acts on it: it is held back as any other end."""
    assert is_terminal(event)
    stream = EventStream()
    assert stream.feed(event + b"\n\n") == 0
    assert stream.ended
    assert not is_terminal(b'data: {"type":"delta","text":"\\u00e9"}')
