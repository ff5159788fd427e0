"""Replay counts and ends of exchanges on their way to PostgreSQL: coalesced, and never urgent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from proxy.errors import StoreUnavailable
from proxy.store import postgres_calls as statements
from proxy.store.marks import Marks, ServedMarks
from proxy.store.postgres_line import Lines

MARKS_AFTER = 0.5


class Lazily:
    def __init__(self, lines: Lines) -> None:
        self.marks, self.served = Marks(), ServedMarks()
        self._lines = lines
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._closed = False

    def come(self) -> None:
        """Something was added."""
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(MARKS_AFTER, self._soon)

    def _soon(self) -> None:
        self._timer = None
        self.aside(self.flush())

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Done before the store is closed, and nobody waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def flush(self) -> None:
        """What cannot be written stays in memory and goes the next time."""
        async with self._turn:  # who asks for a count sees what was being written
            await self._flush()

    async def _flush(self) -> None:
        self.marks.gather()
        self.served.gather()
        while portion := self.marks.take():
            try:
                await self._lines.ask(
                    statements.MARK, [list(column) for column in zip(*portion, strict=True)]
                )
            except StoreUnavailable:
                self.marks.put_back(portion)
                break
        while served := self.served.take():
            try:
                await self._lines.ask(*statements.serve(served))
            except StoreUnavailable:
                self.served.put_back(served)
                break
        if len(self.marks) or len(self.served):
            self.come()

    def forget(self, keys: Iterable[bytes]) -> None:
        """Their calls are gone."""
        self.marks.gather()
        self.marks.drop(keys)

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self.flush()
        await asyncio.gather(*self._tasks, return_exceptions=True)
