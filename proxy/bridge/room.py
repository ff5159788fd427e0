"""How much a client may have under way: beyond that it is not read, so a client that never takes an answer
costs no more than this."""

from __future__ import annotations

import asyncio

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

    async def enter(self, size: int) -> None:
        while self._inside and (self._inside >= self._most or self._taken + size > self._size):
            self._left.clear()
            await self._left.wait()
        self._inside += 1
        self._taken += size

    def leave(self, size: int) -> None:
        self._inside -= 1
        self._taken -= size
        self._left.set()
