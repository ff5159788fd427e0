"""Work that would keep other callers waiting, done beside the event loop in threads of its own.

The loop's default threads look up host names: a few slow bodies there, and no connection is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from proxy.core.cost import READABLE, cost_of
from proxy.core.encoding import codings
from proxy.core.policy import Rule
from proxy.pricing import price_now
from proxy.stream import Capture

A = TypeVarTuple("A")
T = TypeVar("T")

# Few: they share one interpreter, and what they unpack lies in memory meanwhile.
THREADS = 2


class Aside:
    """`close` in any case."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="semel-aside")

    async def run(self, work: Callable[[*A], T], *args: *A) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    def close(self) -> None:
        """What is under way ends in its own time; nobody waits for it any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


# What is read this fast makes nobody wait.
READ_AT_ONCE = 64 * 1024


async def price_aside(aside: Aside, rule: Rule, capture: Capture) -> float | None:
    """What a final answer cost; a long one is read beside the loop, and so is one that may become long."""
    kept = capture.kept
    is_short = kept is not None and kept.size <= READ_AT_ONCE and not codings(capture.headers)
    if kept is None or kept.size > READABLE or is_short:
        return await price_now(rule, capture)
    return await aside.run(cost_of, rule, capture.status, capture.headers, kept.whole())
