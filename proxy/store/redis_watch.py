"""Wake-ups from other processes: one connection that subscribes to the rows that somebody here watches.

A message says no more than "look again". Messages may be lost with the connection, so whoever waits looks for
himself now and then; and when the connection comes back everybody looks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import hiredis

from proxy.store.redis_pipe import Pipe
from proxy.store.redis_wire import Broken, Reply, Wire, connect, introduction
from proxy.store.watchers import Watchers

# So often the connection proves that it lives, and so long after a failure it is made anew.
PROVE_EVERY = 1.0
AGAIN_AFTER = 0.2


class Wakes:
    def __init__(self, pipe: Pipe, tag: str, watchers: Watchers, patience: float) -> None:
        self._pipe = pipe
        self._channel = f"{tag}:w:".encode()
        self._watchers = watchers
        self._patience = patience
        self._wanted: Counter[bytes] = Counter()
        self._heard: dict[bytes, asyncio.Future[None]] = {}  # done when the server has confirmed it
        self._wire: Wire | None = None
        self._last_word = 0.0
        self._task: asyncio.Task[None] | None = None
        self.again: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # done: look again

    def _look_again(self) -> None:
        before, self.again = self.again, asyncio.get_running_loop().create_future()
        before.set_result(None)

    def watch(self, key: bytes) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._stay_connected())
        self._wanted[key] += 1
        if self._wanted[key] == 1:
            self._heard[key] = asyncio.get_running_loop().create_future()
            if self._wire is not None:
                self._wire.tell("SUBSCRIBE", self._channel + key)

    async def heard(self, key: bytes) -> None:
        """From now on a change is told; or this connection cannot be had now, and looking must do."""
        await asyncio.wait([self._heard[key]], timeout=PROVE_EVERY)

    def leave(self, key: bytes) -> None:
        self._wanted[key] -= 1
        if not self._wanted[key]:
            del self._wanted[key], self._heard[key]
            if self._wire is not None:
                self._wire.tell("UNSUBSCRIBE", self._channel + key)

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(Broken):
                wire = await connect(self._pipe.address, self._patience, self._hear)
                self._last_word = loop.time()
                self._wire = wire
                for command in introduction(self._pipe.address):
                    wire.tell(*command)
                for key in self._wanted:
                    wire.tell("SUBSCRIBE", self._channel + key)
                self._look_again()  # what was told meanwhile was told to nobody
                await self._prove(wire)
            self._wire = None
            await asyncio.sleep(AGAIN_AFTER)

    async def _prove(self, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        while wire.is_open:
            wire.tell("PING")
            await asyncio.wait([wire.lost], timeout=PROVE_EVERY)
            if loop.time() - self._last_word > PROVE_EVERY + self._patience:
                wire.end("no sign of life")

    def _hear(self, reply: Reply) -> None:
        self._last_word = asyncio.get_running_loop().time()
        if isinstance(reply, hiredis.ReplyError) and self._wire is not None:
            self._wire.end("the server refuses")
        if not isinstance(reply, list) or len(reply) != 3:
            return
        kind, channel, told = reply
        key = bytes(channel or b"")[len(self._channel) :]
        if kind == b"subscribe" and key in self._heard and not self._heard[key].done():
            self._heard[key].set_result(None)
        elif kind == b"message":
            self._watchers.row_changed(key, int(told))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._wire is not None:
            self._wire.end("closed")
