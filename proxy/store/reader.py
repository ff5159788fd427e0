"""Reads, in a thread and on a connection of their own: they never wait for the writer.

A batch is one read transaction, begun after its jobs were taken, so each sees everything that was committed
before it was asked. While somebody watches a row, the thread looks every few milliseconds whether another
connection has committed anything; while nobody does, it sleeps.
"""

from __future__ import annotations

import asyncio
import time

import apsw

from proxy.store import statements
from proxy.store.database import Database, Patience, close_quietly, unavailable
from proxy.store.watchers import Watchers
from proxy.store.worker import Job, Outcome, Worker

# How often to look while somebody watches; a waiter in another process wakes about this long after a commit.
LOOK_EVERY = 0.005
# With very many watched rows a look takes long; it may have this share of the thread's time.
LOOK_SHARE = 0.2


class Reader(Worker):
    def __init__(
        self,
        database: Database,
        connection: apsw.Connection,
        loop: asyncio.AbstractEventLoop,
        watchers: Watchers,
    ) -> None:
        super().__init__("reader", loop)
        self._database = database
        self._watchers = watchers
        self._patience = Patience()
        self._connection: apsw.Connection | None = connection
        self._seen: int | None = None  # the data_version at the last look; None: look at the rows anyway
        self._next_look = 0.0

    def _handle(self, jobs: list[Job]) -> list[Outcome]:
        try:
            connection = self._connection or self._open()
            connection.execute("BEGIN")
            try:
                return [self._perform(connection, job) for job in jobs]
            finally:
                connection.execute("COMMIT")
        except BaseException as error:  # whatever it was, somebody waits for an answer
            self._distrust(error)
            return [(job, None, unavailable(error)) for job in jobs]

    def _perform(self, connection: apsw.Connection, job: Job) -> Outcome:
        perform, args, _ = job
        try:
            return job, perform(connection, *args), None
        except apsw.Error:
            raise
        except Exception as error:  # its own trouble: a row that cannot be read, a lock out of reach
            return job, None, unavailable(error)

    def _open(self) -> apsw.Connection:
        self._connection = self._database.connect(self._patience, reading=True)
        self._seen = None
        return self._connection

    def _distrust(self, error: BaseException) -> None:
        close_quietly(self._connection)
        self._connection = None

    def _pause(self) -> float | None:
        if not self._watchers:
            return None
        return max(0.0, self._next_look - time.monotonic())

    def _between(self) -> None:
        started = time.monotonic()
        if not self._watchers or started < self._next_look:
            return
        try:
            self._look(self._connection or self._open())
        finally:
            ended = time.monotonic()
            self._next_look = ended + max(LOOK_EVERY, (ended - started) / LOOK_SHARE)

    def _look(self, connection: apsw.Connection) -> None:
        version = connection.pragma("data_version")
        if version == self._seen:
            return
        # Order matters: a commit after this point has another data_version and is seen at the next look.
        self._seen = version
        changed = statements.differing(connection, self._watchers.as_json())
        if changed:
            self._tell(self._watchers.wake, changed)

    def _leave(self) -> None:
        close_quietly(self._connection)
