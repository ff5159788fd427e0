"""Where a known event stream ends: the event after which a client acts as if it had the whole answer.

That event, and all after it, is held back until the answer is durable. Streams of an unknown kind have no
such event; for them the end of the body is held back. An event is shown when it is complete, never before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from proxy.core.encoding import Decoder, Undecodable
from proxy.core.json_text import read

# Of a larger event only its marks are kept: if it bears those of an end, it is taken for one.
MAX_EVENT = 256 * 1024
# What one part of a compressed stream may become; beyond it the stream is no longer looked into.
MAX_DECODED = 4 * 1024 * 1024
# A line ends with CRLF, LF or CR, and a stream may mix them.
_BOUNDARY = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
# Every boundary holds one of these, and each of these is in one: found a hundred times as fast.
_PAIRS = (b"\n\n", b"\n\r", b"\r\r")
# It may stand before the first event, and says nothing.
_MARK_OF_ORDER = b"\xef\xbb\xbf"
_TERMINAL_TYPES = frozenset({"message_stop", "response.completed", "response.failed", "response.incomplete"})
# No event is an end without one of the first, or the JSON-RPC mark and one of the others.
_ENDS = frozenset({b"[DONE]", *(name.encode() for name in _TERMINAL_TYPES)})
_JSONRPC, _OUTCOMES = b'"jsonrpc"', frozenset({b'"result"', b'"error"'})
_MARKS = (*_ENDS, _JSONRPC, *_OUTCOMES)
# What may spell a mark in another way: an escape of JSON that stands for a letter, a digit or a sign.
_ESCAPED = re.compile(rb"\\u00[2-7]")
# A mark, or the blank line, may lie across two parts.
_OVERLAP = max(map(len, _MARKS))


class EventStream:
    """Feed it the body; `visible` is how many of its bytes may be shown before the seal."""

    __slots__ = ("_after_cr", "_marks", "_offset", "_pending", "ended", "visible")

    def __init__(self) -> None:
        self._pending = b""  # of the event that is not complete; of a large one the last bytes only
        self._offset = 0  # where `_pending` begins in the body
        self._marks: frozenset[bytes] | None = None  # of a large event so far
        self._after_cr = False  # the last boundary ended with a CR, so an LF may still belong to it
        self.visible = 0
        self.ended = False

    def feed(self, chunk: bytes) -> int:
        if self.ended or not chunk:
            return self.visible
        pending = self._pending + chunk
        start = int(self._after_cr and pending.startswith(b"\n"))
        # A boundary may have begun in the last bytes of the previous chunk, no earlier.
        look_from = max(0, len(self._pending) - 3)
        behind = _behind_last_boundary(pending, max(start, look_from), len(pending))
        if behind and self._marks is None:  # most events bear no mark of an end, and need not be looked at
            quiet = _first_mark(pending, start, behind)
            start = _behind_last_boundary(pending, max(start, look_from), quiet) or start
        while start < behind:
            found = _BOUNDARY.search(pending, max(start, look_from), behind)
            assert found is not None  # the last one at least
            event = pending[start : found.start()]
            if self._is_end(event if self._offset + start else unmarked(event)):
                self.ended = True
                break
            self._marks = None
            start = found.end()
        if start:
            self.visible = self._offset + start
        self._after_cr = start == len(pending) and pending.endswith(b"\r")
        self._keep(pending[start:], self._offset + start)
        return self.visible

    def _is_end(self, event: bytes) -> bool:
        """Of a whole event, or of the last bytes of one that was too large to keep."""
        if self._marks is None and len(event) <= MAX_EVENT:
            return is_terminal(event)
        return _bears_an_end((self._marks or frozenset()) | _marks_in(event))

    def _keep(self, pending: bytes, offset: int) -> None:
        if self._marks is not None or len(pending) > MAX_EVENT:
            self._marks = (self._marks or frozenset()) | _marks_in(pending)
            offset += max(0, len(pending) - _OVERLAP)
            pending = pending[-_OVERLAP:]
        self._pending, self._offset = pending, offset


class CodedEventStream:
    """The same for a compressed body. Where in a part an event begins cannot be told, so a part is shown once
    all may be shown that it decodes to. From a part on that cannot be decoded, nothing is shown."""

    __slots__ = ("_decoded", "_decoder", "_events", "_received", "visible")

    def __init__(self, applied: tuple[str, ...]) -> None:
        self._events = EventStream()
        self._decoder: Decoder | None = None
        self._decoded = self._received = self.visible = 0
        with suppress(Undecodable):
            self._decoder = Decoder(applied)

    @property
    def ended(self) -> bool:
        return self._events.ended

    def feed(self, chunk: bytes) -> int:
        if self._decoder is None or self._events.ended:
            return self.visible
        try:
            plain = self._decoder.feed(chunk, MAX_DECODED)
        except Undecodable:
            self._decoder = None
            return self.visible
        shown_before, received_before = self._events.visible, self._received
        self._received += len(chunk)
        self._decoded += len(plain)
        shown = self._events.feed(plain)
        if shown == self._decoded:
            self.visible = self._received
        elif shown > shown_before:  # an event ended in this part, so all before this part may be shown
            self.visible = received_before
        return self.visible


def _behind_last_boundary(text: bytes, begin: int, end: int) -> int:
    """Where the event after the last boundary between `begin` and `end` starts; 0: there is none."""
    pairs = _PAIRS if text.find(b"\r", begin, end) >= 0 else _PAIRS[:1]  # one byte is found at once
    at = max([text.rfind(pair, begin, end) for pair in pairs])
    if at < 0:
        return 0
    # Among several line ends in a row, boundaries are counted off from the first: two, two, two.
    run = _first_in_a_row(text, begin, at)
    return [found.end() for found in _BOUNDARY.finditer(text, run, at + 3)][-1]


def _first_in_a_row(text: bytes, begin: int, at: int) -> int:
    """Where the line ends begin that reach up to `at`; mostly there are few, and nothing long is copied."""
    width = 64
    while (low := at - width) > begin:
        before = text[low:at].rstrip(b"\r\n")
        if before:
            return low + len(before)
        width *= 8
    return begin + len(text[begin:at].rstrip(b"\r\n"))


def _first_mark(text: bytes, begin: int, end: int) -> int:
    """Before it no event is an end; `end` where there is no mark at all."""
    marks = [text.find(mark, begin, end) for mark in (*_ENDS, _JSONRPC)]
    if escaped := _ESCAPED.search(text, begin, end):
        marks.append(escaped.start())
    return min([at for at in marks if at >= 0], default=end)


def _marks_in(text: bytes) -> frozenset[bytes]:
    return frozenset([mark for mark in _MARKS if mark in text])


def _bears_an_end(marks: frozenset[bytes]) -> bool:
    return not marks.isdisjoint(_ENDS) or (_JSONRPC in marks and not marks.isdisjoint(_OUTCOMES))


class Splitter:
    """Events, whole, without the blank line behind them, however the body is cut."""

    __slots__ = ("_pending", "_started")

    def __init__(self) -> None:
        self._pending = bytearray()
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        pending, events, start = self._pending, list[bytes](), 0
        # A boundary may have begun in the last bytes of the previous chunk, no earlier.
        look_from = max(0, len(pending) - 3)
        pending += chunk
        if not self._started:
            if _MARK_OF_ORDER.startswith(pending):
                return []  # it may still become the mark
            self._started, look_from = True, 0
            if pending.startswith(_MARK_OF_ORDER):
                del pending[: len(_MARK_OF_ORDER)]
        # A CR at the end may be half a CRLF: what follows it is not known yet.
        end = len(pending) - pending.endswith(b"\r")
        while found := _BOUNDARY.search(pending, max(start, look_from), end):
            events.append(bytes(pending[start : found.start()]))
            start = found.end()
        del pending[:start]
        return events

    def finish(self) -> list[bytes]:
        """The last event may lack its blank line, where the body is at its end."""
        return [event for event in self.feed(b"\n\n") if event]

    @property
    def waiting(self) -> int:
        """How much is here of an event that is not complete."""
        return len(self._pending)


def split_events(body: bytes) -> list[bytes]:
    """Of a whole body."""
    splitter = Splitter()
    return [*splitter.feed(body), *splitter.finish()]


def boundaries(text: bytes | bytearray, look_from: int) -> Iterator[tuple[int, int]]:
    """Where events end, and the next begin, as soon as that is clear: an LF that belongs to the last of them
    may stand before the next event. Before `look_from` there is none."""
    while found := _BOUNDARY.search(text, look_from):
        yield found.span()
        look_from = found.end()


def unmarked(event: bytes) -> bytes:
    """The first of a stream, without the mark that may stand before it."""
    return event.removeprefix(_MARK_OF_ORDER)


def fields_of(event: bytes) -> list[tuple[bytes, bytes]]:
    """Its lines, in order; of a comment the name is empty."""
    lines = [line.partition(b":") for line in _LINE.split(event) if line]
    return [(name, value.removeprefix(b" ")) for name, _, value in lines]


def data_of(event: bytes) -> bytes:
    return b"\n".join([value for name, value in fields_of(event) if name == b"data"])


def is_terminal(event: bytes) -> bool:
    if not _bears_an_end(_marks_in(event)) and _ESCAPED.search(event) is None:
        return False
    named = [value for name, value in fields_of(event) if name == b"event"]
    name, text = named[-1].strip().decode("utf-8", "replace") if named else "", data_of(event)
    if name in _TERMINAL_TYPES or text.strip() == b"[DONE]":
        return True
    try:
        message = read(text)
    except (ValueError, RecursionError):
        return False
    # Of 2025-03-26: several messages in one event.
    return any(map(_ends, message)) if isinstance(message, list) else _ends(message)


def _ends(message: object) -> bool:
    if not isinstance(message, dict):
        return False
    kind = message.get("type")
    if isinstance(kind, str) and kind in _TERMINAL_TYPES:
        return True
    return "jsonrpc" in message and ("result" in message or "error" in message)
