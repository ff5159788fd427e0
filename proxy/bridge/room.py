"""How much a client may have under way: beyond that it is not read, so a client that never takes an answer
costs no more than this. But a client that is asked something must be read, or nothing would ever end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Calls at once.
MOST = 1000


class Room:
    """`size`: so many bytes of requests together; one may be as long as that by itself."""

    def __init__(self, size: int, most: int = MOST) -> None:
        self._size = size
        self._most = most
        self._taken = 0
        self._inside = 0
        self._left = asyncio.Event()

    async def enter(self, size: int, must_not_wait: Callable[[], bool]) -> bool:
        """Whether there is room, as soon as there is; False where nobody may wait for it."""
        while self._inside and (self._inside >= self._most or self._taken + size > self._size):
            if must_not_wait():
                return False
            self._left.clear()
            await self._left.wait()
        self._inside += 1
        self._taken += size
        return True

    def leave(self, size: int) -> None:
        self._inside -= 1
        self._taken -= size
        self.look_again()

    def look_again(self) -> None:
        """Whoever waits may no longer have to, or no longer may."""
        self._left.set()
