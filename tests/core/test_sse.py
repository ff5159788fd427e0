"""Event streams: the terminal event and all after it stay hidden, everything before it shows early."""

from __future__ import annotations

import gzip
import itertools
import json
import sys
import zlib
from collections.abc import Callable
from typing import NamedTuple

import brotli
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core import sse
from proxy.core.encoding import Decoder
from proxy.core.sse import MAX_EVENT, CodedEventStream, EventStream, is_terminal
from tests.counts import count

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

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


def feed(chunks: list[bytes], *, large: int = MAX_EVENT) -> EventStream:
    stream = EventStream()
    shown = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "MAX_EVENT", large)
        for chunk in chunks:
            now = stream.feed(chunk)
            assert now >= shown  # what was shown is never taken back
            shown = now
    return stream


def cut(data: bytes, points: list[int]) -> list[bytes]:
    at = sorted({point % (len(data) + 1) for point in points} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(at)]


ENDINGS = st.sampled_from([b"\n", b"\r\n", b"\r"])
LARGE = st.just(MAX_EVENT) | st.integers(0, 60)  # from which size on an event is a large one


@settings(max_examples=count(500, 20_000), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(ORDINARY), ENDINGS, ENDINGS), max_size=4),
    st.sampled_from(TERMINAL),
    ENDINGS,
    ENDINGS,
    st.binary(max_size=20),
    st.lists(st.integers(0, 400), max_size=8),
    LARGE,
)
@example([(b"data: hello", b"\n", b"\r\n")], b"data: [DONE]", b"\n", b"\n", b"", [], MAX_EVENT)
def test_no_byte_of_the_terminal_event_is_shown_however_the_stream_is_cut(
    before: list[tuple[bytes, bytes, bytes]],
    terminal: bytes,
    ending: bytes,
    blank: bytes,
    after: bytes,
    points: list[int],
    large: int,
) -> None:
    """Lines may end in three ways, also mixed; chunks may end anywhere; any event may be a large one."""

    def written(event: bytes, end: bytes, empty: bytes) -> bytes:
        if (end, empty) == (b"\r", b"\n"):  # together they are one line end, not a blank line
            empty = b"\r"
        return event.replace(b"\n", end) + end + empty

    head = b"".join(written(event, end, empty) for event, end, empty in before if event)
    stream = feed(cut(head + written(terminal, ending, blank) + after, points), large=large)
    assert stream.visible <= len(head)


@settings(max_examples=count(200, 5_000), deadline=None)
@given(
    st.lists(st.sampled_from([event for event in ORDINARY if event]), max_size=5),
    ENDINGS,
    st.lists(st.integers(0, 300), max_size=6),
    LARGE,
)
def test_whole_events_are_shown_at_once(
    events: list[bytes], end: bytes, points: list[int], large: int
) -> None:
    """Nothing ordinary is held back longer than until its blank line."""
    if large < MAX_EVENT:  # of a large event only the marks are looked at, so what resembles an end is one
        events = [event for event in events if b"[DONE]" not in event and b"message_stop" not in event]
    data = b"".join(event.replace(b"\n", end) + end + end for event in events)
    stream = feed(cut(data, points), large=large)
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


def test_a_large_event_is_shown_when_it_is_complete_and_not_kept_until_then() -> None:
    """What is kept of it to find its end is a few bytes; the stream goes on after it."""
    stream = EventStream()
    part = b"x" * 65536
    assert stream.feed(b"data: a\n\ndata: ") == 9
    for _ in range(64):
        assert stream.feed(part) == 9
        assert len(stream._pending) <= MAX_EVENT
    assert stream.feed(b"\n\ndata: b\n\ndata: [DO") == 15 + 64 * 65536 + 2 + 9
    assert stream.feed(b"NE]\n\n") == 15 + 64 * 65536 + 2 + 9
    assert stream.ended


def test_after_a_large_event_the_next_is_judged_by_itself() -> None:
    """Neither by the marks of the one before it, nor by marks alone."""
    large = b'data: {"jsonrpc":"2.0","params":"' + b"x" * MAX_EVENT + b'"}\n\n'
    small = b'data: {"result":1}\n\ndata: {"text":"[DONE]"}\n\n'
    stream = feed([large[:100], large[100:-5], large[-5:], small])
    assert (stream.visible, stream.ended) == (len(large + small), False)


@pytest.mark.parametrize("event", TERMINAL, ids=lambda event: event.decode()[:40])
@pytest.mark.parametrize("size", [1000, 65536, 8 * MAX_EVENT])
def test_an_end_of_any_size_is_held_back(event: bytes, size: int) -> None:
    """A response.completed with images in it has megabytes, before or after its name."""
    large = b"x" * (2 * MAX_EVENT)
    bodies = [b": " + large + b"\n" + event, event + b"\n: " + large]
    if event.endswith(b"}"):
        bodies.append(event[:-1] + b', "image": "' + large + b'"}')
    for body in bodies:
        data = b"data: a\n\n" + body + b"\n\ndata: after\n\n"
        stream = feed([data[at : at + size] for at in range(0, len(data), size)])
        assert (stream.visible, stream.ended) == (9, True)


# ---- compressed streams ----


class Encoder(NamedTuple):
    add: Callable[[bytes], bytes]
    flush: Callable[[], bytes]
    end: Callable[[], bytes]


def _zlib(window: int) -> Encoder:
    packer = zlib.compressobj(wbits=window)
    return Encoder(packer.compress, lambda: packer.flush(zlib.Z_SYNC_FLUSH), packer.flush)


def _brotli() -> Encoder:
    packer = brotli.Compressor()
    return Encoder(packer.process, packer.flush, packer.finish)


def _zstd() -> Encoder:
    packer = zstd.ZstdCompressor()
    return Encoder(packer.compress, lambda: packer.flush(packer.FLUSH_BLOCK), packer.flush)


CODINGS: dict[str, Callable[[], Encoder]] = {
    "gzip": lambda: _zlib(31),
    "deflate": lambda: _zlib(15),
    "raw deflate": lambda: _zlib(-15),
    "br": _brotli,
    "zstd": _zstd,
}


def packed(coding: str, events: list[bytes], flushes: list[bool]) -> list[bytes]:
    """One part per event, each flushed or not; the end of the body belongs to the last."""
    encoder = CODINGS[coding]()
    parts = [
        encoder.add(event) + (encoder.flush() if flushed else b"")
        for event, flushed in zip(events, itertools.chain(flushes, itertools.repeat(True)), strict=False)
    ]
    return [*parts[:-1], parts[-1] + encoder.end()]


def coded(coding: str) -> CodedEventStream:
    return CodedEventStream((coding.removeprefix("raw "),))


def unpacked(coding: str, data: bytes) -> bytes:
    """All that a client can make of the beginning of a body."""
    return Decoder((coding.removeprefix("raw "),)).feed(data, 10_000_000)


@pytest.mark.parametrize("coding", CODINGS)
@settings(max_examples=count(100, 3_000), deadline=None)
@given(
    st.lists(st.sampled_from([event for event in ORDINARY if event]), max_size=5),
    st.sampled_from(TERMINAL),
    st.lists(st.booleans(), max_size=6),
    st.lists(st.integers(0, 300), max_size=6),
)
def test_nobody_can_decode_the_end_from_what_is_shown_of_a_compressed_stream(
    coding: str, before: list[bytes], terminal: bytes, flushes: list[bool], points: list[int]
) -> None:
    """However it is flushed, and however the compressed bytes are cut."""
    head = b"".join(event + b"\n\n" for event in before)
    events = [*(event + b"\n\n" for event in before), terminal + b"\n\n", b"data: after\n\n"]
    body = b"".join(packed(coding, events, flushes))
    stream, shown = coded(coding), 0
    for part in cut(body, points):
        shown = stream.feed(part)
        assert head.startswith(unpacked(coding, body[:shown]))
    assert shown < len(body)


@pytest.mark.parametrize("coding", CODINGS)
def test_events_of_a_compressed_stream_are_shown_as_they_come(coding: str) -> None:
    """A server flushes after each event; nothing is held back but the end, and what follows it."""
    events = [b"data: %d\n\n" % number for number in range(20)]
    *ordinary, last, _ = packed(coding, [*events, b"data: [DONE]\n\n", b": bye\n\n"], [])
    stream, size = coded(coding), 0
    for part in ordinary:
        size += len(part)
        assert stream.feed(part) == size
    assert stream.feed(last) == size


@pytest.mark.parametrize("applied", [("gzip",), ("x-odd",), ("gzip",) * 1000])
def test_a_stream_that_cannot_be_decoded_is_held_back(applied: tuple[str, ...]) -> None:
    """Damaged, of an unknown coding, or of too many: nobody knows whether it holds the end."""
    stream = CodedEventStream(applied)
    assert stream.feed(b"data: a\n\ndata: [DONE]\n\n") == 0
    assert stream.feed(gzip.compress(b"data: a\n\n")) == 0


def test_a_part_that_becomes_too_much_is_held_back() -> None:
    """64 MiB in 64 KiB: not worth looking into."""
    first, bomb = packed("gzip", [b"data: a\n\n", b": " + b"x" * 2**26 + b"\n\n"], [])
    stream = coded("gzip")
    assert stream.feed(first) == len(first)
    assert stream.feed(bomb) == len(first)
    assert stream.feed(b"more") == len(first)


# ---- whatever comes ----


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
    """Whatever stands under `type`, and alone or with others."""
    expected = any(
        isinstance(each, dict)
        and (each.get("type") == "message_stop" or ("jsonrpc" in each and "result" in each))
        for each in (value if isinstance(value, list) else [value])
    )
    assert is_terminal(b"data: " + json.dumps(value).encode()) is expected
