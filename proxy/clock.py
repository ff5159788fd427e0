"""Time, passed in: the exchange never looks at a clock by itself, so a test can move it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch: what is written into records."""

    def monotonic(self) -> float:
        """For measuring how long something takes."""

    async def sleep(self, seconds: float) -> None: ...

    async def within(self, seconds: float, awaitable: Awaitable[object]) -> bool:
        """Await it for at most so long; False if time ran out (it is then cancelled)."""


class SystemClock:
    # Asked a dozen times per call: the bare functions, without a frame of ours around them.
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def within(self, seconds: float, awaitable: Awaitable[object]) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await awaitable
        except TimeoutError:
            return False
        return True
