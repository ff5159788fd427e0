"""Structured logs: one JSON line per call and per event worth reading. Never a secret, a body, a query.

Lines are gathered for a moment and handed together to a thread that writes them: whoever reads the log may
have stopped reading, and no call waits for that. What the thread cannot keep up with is dropped and counted.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from queue import SimpleQueue
from threading import Thread
from typing import TextIO

import orjson

from proxy.giving_way import give_way
from proxy.observe import Deaf, Served, TellsCall

# How long lines are gathered: waking the thread for each would cost more than writing them.
GATHERED = 0.005
# How many lines may wait to be written.
WAITING = 10_000
# How long a shutdown waits for them.
PATIENCE = 1.0


@lru_cache(maxsize=1024)
def _place(method: str, upstream: str, rule: str, tool: str) -> str:
    """Names come from policy files and clients, so they are quoted."""
    names = {"method": method, "upstream": upstream, "rule": rule, "tool": tool}
    return orjson.dumps(names).decode()[1:-1]


def _words(told: Served) -> tuple[str, str]:
    """Of a call's line, what stands before and after the milliseconds."""
    more = _more(told)
    return f'{_begin(told)}{told.call}","ms":', f',"bytes":{told.size}{more}}}'


def _begin(told: Served) -> str:
    """What stands before the call's id. By hand: it is written for every call, and building a dictionary for
    it costs three times as much."""
    place = _place(told.method, told.upstream, told.rule, told.tool)
    return f'"event":"call","status":"{told.status}","code":{told.code},{place},"call":"'


def _more(told: Served) -> str:
    """What stands behind the size."""
    more = f',"problem":"{told.problem}"' if told.problem else ""
    if told.trace:
        more += f',"trace":"{told.trace}"'
    if not told.delivered:
        more += ',"delivered":false'
    if told.cost_usd > 0:
        more += f',"cost_usd":{told.cost_usd:.6g}'
    return more


def _line(at: str, before: str, seconds: float, after: str) -> bytes:
    return f'{{"at":"{at}",{before}{seconds * 1000:.3f}{after}'.encode()


class LogObserver(Deaf):
    def __init__(self, stream: TextIO | None = None) -> None:
        self._writer = LineWriter(stream or sys.stderr)
        self._lines: list[bytes] = []
        self._millisecond = self._second = 0
        self._stamp = self._to_the_second = ""

    def served(self, told: Served) -> None:
        before, after = _words(told)
        self._add(_line(self._now(), before, told.seconds, after))

    def again(self, told: Served) -> Callable[[float], None]:
        """Only the time of day and the time taken differ from one line to the next."""
        before, after = _words(told)

        def add(seconds: float) -> None:
            self._add(_line(self._now(), before, seconds, after))

        return add

    def alike(self, told: Served) -> TellsCall:
        begin, more = _begin(told), _more(told)

        def add(call: str, seconds: float, upstream_seconds: float, size: int) -> None:
            line = f'{{"at":"{self._now()}",{begin}{call}","ms":{seconds * 1000:.3f},"bytes":{size}{more}}}'
            self._add(line.encode())

        return add

    def reloaded(self, *, good: bool, detail: str) -> None:
        self.noted("policies-reloaded" if good else "policies-kept", detail=detail)

    def noted(self, event: str, **fields: object) -> None:
        self._add(orjson.dumps({"at": self._now(), "event": event, **fields}, default=str))

    def close(self) -> None:
        """Write what is there, within PATIENCE: a log that nobody reads must not hold up a shutdown."""
        self._hand_over()
        self._writer.close()

    def _now(self) -> str:
        """ISO 8601 with milliseconds: made once in each, since many lines may be written in one."""
        now = int(time.time() * 1000)
        if now != self._millisecond:
            self._millisecond = now
            if now // 1000 != self._second:
                self._second = now // 1000
                self._to_the_second = datetime.fromtimestamp(self._second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self._stamp = f"{self._to_the_second}.{now % 1000:03d}Z"
        return self._stamp

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        if len(self._lines) > 1:
            return  # whoever wrote the first has arranged for the rest
        try:
            asyncio.get_running_loop().call_later(GATHERED, self._hand_over)
        except RuntimeError:
            self._hand_over()

    def _hand_over(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            self._writer.put(lines)


class LineWriter:
    """A bounded queue and the thread that empties it. `put` and `close` are called from one thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._queue: SimpleQueue[list[bytes] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._ending = False
        # Each number is changed by one thread only, so none needs a lock.
        self._taken = self._dropped = 0
        self._written = self._told = 0  # the writing thread's
        # Past the stream's own buffer: a thread that is stuck in there would hold its lock, and the
        # interpreter needs that lock to exit.
        self._fd = -1
        with suppress(OSError, ValueError):  # one that lives in memory
            self._fd = stream.fileno()

    def put(self, lines: list[bytes]) -> None:
        room = WAITING - (self._taken - self._written)
        if len(lines) > room:
            self._dropped += len(lines) - room
            lines = lines[:room]
        if not lines:
            return
        self._taken += len(lines)
        self._queue.put(lines)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="semel-log", daemon=True)
            self._thread.start()

    def close(self) -> None:
        if self._thread is None:
            return
        if not self._ending:
            self._ending = True
            self._queue.put(None)
        self._thread.join(PATIENCE)
        if not self._thread.is_alive():
            self._thread, self._ending = None, False

    def _run(self) -> None:
        give_way()
        while (lines := self._queue.get()) is not None:
            self._write(b"\n".join(lines) + b"\n")
            self._written += len(lines)
            if self._queue.empty():
                self._tell_dropped()
        self._tell_dropped()

    def _tell_dropped(self) -> None:
        dropped = self._dropped
        if dropped > self._told:
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = {"at": at, "event": "log-lines-dropped", "lines": dropped - self._told}
            self._write(orjson.dumps(line) + b"\n")
            self._told = dropped

    def _write(self, block: bytes) -> None:
        with suppress(OSError, ValueError):  # a closed or full log must not cost a call
            if self._fd < 0 or self._stream.closed:
                self._stream.write(block.decode())
                self._stream.flush()
                return
            view = memoryview(block)
            while view:
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:  # somebody who shares the descriptor has made it so
                    room = select.poll()
                    room.register(self._fd, select.POLLOUT)
                    room.poll()
