"""Where a known event stream ends: the event after which a client acts as if it had the whole answer.

That event, and all after it, is held back until the answer is durable. Streams of an unknown kind have no
such event; for them the end of the body is held back.
"""

from __future__ import annotations

import json
import re

# An event larger than this is handed on before it is complete: holding back must stay bounded.
MAX_EVENT = 1024 * 1024
# A line ends with CRLF, LF or CR, and a stream may mix them.
_BOUNDARY = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_TERMINAL_TYPES = frozenset({"message_stop", "response.completed", "response.failed", "response.incomplete"})
_HINTS = (b"message_stop", b'"response.', b'"jsonrpc"')


class EventStream:
    """Feed it the body; `visible` is how many of its bytes may be shown before the seal."""

    __slots__ = ("_after_cr", "_pending", "ended", "visible")

    def __init__(self) -> None:
        self._pending = b""
        self._after_cr = False  # the last boundary ended with a CR, so an LF may still belong to it
        self.visible = 0
        self.ended = False

    def feed(self, chunk: bytes) -> int:
        if self.ended:
            return self.visible
        pending = self._pending + chunk
        start = int(self._after_cr and pending.startswith(b"\n"))
        # A boundary may have begun in the last bytes of the previous chunk, no earlier.
        look_from = max(0, len(self._pending) - 3)
        while found := _BOUNDARY.search(pending, max(start, look_from)):
            if is_terminal(pending[start : found.start()]):
                self.ended = True
                break
            start = found.end()
        self._pending = pending[start:]
        self._after_cr = start == len(pending) and pending.endswith(b"\r")
        self.visible += start
        if not self.ended and len(self._pending) > MAX_EVENT:
            self.visible += len(self._pending)
            self._pending = b""
        return self.visible


def is_terminal(event: bytes) -> bool:
    name, data = "", []
    for line in _LINE.split(event):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.strip().decode("utf-8", "replace")
    text = b"\n".join(data)
    if name in _TERMINAL_TYPES or text.strip() == b"[DONE]":
        return True
    if not any(hint in text for hint in _HINTS):
        return False
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(message, dict):
        return False
    kind = message.get("type")
    if isinstance(kind, str) and kind in _TERMINAL_TYPES:
        return True
    return "jsonrpc" in message and ("result" in message or "error" in message)
