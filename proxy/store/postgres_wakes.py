"""Who waits for a row is woken: by NOTIFY within milliseconds, by looking where that cannot arrive.

Keys that changed are told in transactions of their own, some milliseconds' worth at a time: a NOTIFY inside
the swap would make all commits of the database wait for each other. A message only says where to look; what
wakes a waiter is the row. So a lost message costs a moment, and a late or repeated one nothing. Behind a
pooler that gives every statement another session LISTEN hears nothing: there rows are looked at all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable

import psycopg

from proxy.errors import StoreUnavailable
from proxy.store.postgres_line import Address, Line, Row
from proxy.store.watchers import Watchers

CHANNEL = "semel"
KEY = 16
# A message holds 8000 bytes.
KEYS_PER_MESSAGE = 300
# So long keys are gathered before they are told.
GATHERING = 0.004
# How often watched rows are looked at: while messages come, in case one was lost; and while none can come.
LISTENING, LOOKING = 1.0, 0.02
# A connection that says nothing is tried after so long; one that was lost is opened again after so long.
QUIET, REOPEN = 10.0, 1.0

LOOK = "SELECT key, version FROM semel.calls WHERE key = ANY ($1)"
TELL = "SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message"


class Wakes:
    def __init__(
        self, address: Address, watchers: Watchers, note: Callable[..., None], patience: float
    ) -> None:
        self._address = address
        self._watchers = watchers
        self._note = note
        self._line = Line(address, patience=patience)
        self._changed: set[bytes] = set()
        self._telling: asyncio.Task[None] | None = None
        self._look_at: set[bytes] = set()
        self._come = asyncio.Event()  # somebody watches, or a message came
        self._tasks: list[asyncio.Task[None]] = []
        self.listening = False

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._look_for_ever())]

    async def close(self) -> None:
        if self._telling is not None:
            await asyncio.wait({self._telling})
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._line.close()

    def watching(self) -> None:
        """Somebody has begun to."""
        self._come.set()

    # ---- telling others ----

    def changed(self, keys: Iterable[bytes]) -> None:
        self._changed.update(keys)
        if self._telling is None and self._changed:
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._changed:
                await asyncio.sleep(GATHERING)
                keys, self._changed = list(self._changed), set()
                messages = [
                    b64encode(b"".join(keys[n : n + KEYS_PER_MESSAGE])).decode()
                    for n in range(0, len(keys), KEYS_PER_MESSAGE)
                ]
                with contextlib.suppress(StoreUnavailable):  # they look by themselves
                    await self._line.ask(TELL, (CHANNEL, messages))
        finally:
            self._telling = None

    # ---- hearing of others ----

    async def _listen(self) -> None:
        while True:
            try:
                connection = await self._address.connect()
                try:
                    if not await _is_direct(connection):
                        why = "a pooler stands before the store, and messages cannot pass it"
                        self._note("store-polls", why=why)
                        return
                    await self._listen_on(connection)
                finally:
                    await connection.close()
            except Exception as error:  # whatever it was: until it is back, rows are looked at
                if self.listening:
                    self._note("store-trouble", doing="listen", error=self._address.unavailable(error).detail)
            finally:
                self.listening = False
            await asyncio.sleep(REOPEN)

    async def _listen_on(self, connection: psycopg.AsyncConnection[Row]) -> None:
        await connection.execute(f"LISTEN {CHANNEL}".encode())
        self.listening = True
        self._look_at |= self._watchers.keys()  # what changed before that was heard by nobody
        self._come.set()
        while True:
            async for message in connection.notifies(timeout=QUIET):
                self._hear(message.payload)
            async with asyncio.timeout(QUIET):
                await connection.execute(b"SELECT 1")

    def _hear(self, payload: str) -> None:
        try:
            keys = b64decode(payload, validate=True)
        except (NotBase64, ValueError):
            return  # somebody else's
        told = (keys[n : n + KEY] for n in range(0, len(keys), KEY))
        heard = {key for key in told if self._watchers.watches(key)}
        if heard:
            self._look_at |= heard
            self._come.set()

    async def _look_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        looked_at = 0.0
        while True:
            if not self._watchers:
                self._come.clear()
                await self._come.wait()
            due = looked_at + (LISTENING if self.listening else LOOKING)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._come.wait()
            self._come.clear()
            keys, self._look_at = self._look_at, set()
            if loop.time() >= due:
                keys, looked_at = self._watchers.keys(), loop.time()
            if keys:
                with contextlib.suppress(Exception):  # the next look may be better
                    await self._look(keys)

    async def _look(self, keys: set[bytes]) -> None:
        watched = [pair for pair in self._watchers.pairs() if pair[0] in keys]
        rows = await self._line.ask(LOOK, (list(keys),), again=True)
        versions: dict[bytes, int] = dict(rows)
        self._watchers.wake([(key, seen) for key, seen in watched if versions.get(key, 0) != seen])


async def _is_direct(connection: psycopg.AsyncConnection[Row]) -> bool:
    """A pooler gives its clients other numbers than the server gives its sessions."""
    cursor = await connection.execute(b"SELECT pg_backend_pid()")
    (number,) = await cursor.fetchone() or (0,)
    return bool(number == connection.info.backend_pid)
