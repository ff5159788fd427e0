"""How far a copy is: one line on a terminal, written over and over and gone at the end; elsewhere a line now
and then."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.store.copying import Progress

_CLEAR_LINE = "\r\x1b[K"
WIDTH = 24
# Seconds between two lines: on a terminal, elsewhere.
SOON, SELDOM = 0.1, 10.0


class Bar:
    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._step: tuple[str, str] | None = None
        self._began = 0.0
        self._next = 0.0
        self._shown = False

    def begin(self) -> None:
        """Whether a process that was killed lives may take seconds to see."""
        if self._terminal and not self._quiet:
            text = "looking whether anybody uses the two stores"
            print(f"{_CLEAR_LINE}{text}", end="", file=sys.stderr, flush=True)
            self._shown = True

    def show(self, progress: Progress) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        step = (progress.step, progress.kind.value)
        fresh = step != self._step
        if fresh:
            self._step, self._began = step, now
        if now < self._next and not (fresh and not self._terminal):
            return
        self._next = now + (SOON if self._terminal else SELDOM)
        text = line(progress, now - self._began)
        if self._terminal:
            print(f"{_CLEAR_LINE}{text}", end="", file=sys.stderr, flush=True)
            self._shown = True
        elif progress.total:
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)
            self._shown = False


def line(progress: Progress, seconds: float) -> str:
    """`copying calls [######----] 1,200 of 4,000, 5,100/s, 1 s left`"""
    share = progress.done / progress.total if progress.total else 1.0
    bar = ("#" * round(share * WIDTH)).ljust(WIDTH, "-")
    text = f"{progress.step} {progress.kind.value} [{bar}] {progress.done:,} of {progress.total:,}"
    if not progress.done or seconds < SOON:
        return text
    rate = progress.done / seconds
    left = (progress.total - progress.done) / rate
    return f"{text}, {rate:,.0f}/s, {_duration(left)} left"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
