"""The one thread of this process that writes the ledger: group commit.

It takes everything that waits, executes it in one transaction, commits with one fsync, and only then tells
anybody. After an I/O error nothing is known about the page cache, so the connection is thrown away and the
log is emptied into the database before the next write: what was acknowledged afterwards must not stand
behind a hole in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import apsw

from proxy.faults import Point, reach
from proxy.store import run_statements, spending_statements, statements
from proxy.store.base import Batched
from proxy.store.checkpoints import Checkpoints
from proxy.store.codec import CALL_COLUMNS
from proxy.store.database import OWN_FAULT, Database, Patience, close_quietly, unavailable
from proxy.store.marks import Marks, ServedMarks
from proxy.store.stamp import Stamp
from proxy.store.watchers import Watchers
from proxy.store.worker import Job, Outcome, Worker

KEY, VERSION = CALL_COLUMNS.index("key"), CALL_COLUMNS.index("version")
SETTLED_SWAPS = (statements.swap_settled, run_statements.swap_in_run_settled)
SWAPS = (statements.swap, run_statements.swap_in_run, *SETTLED_SWAPS)
RUN_WRITES = (
    run_statements.swap_in_run,
    run_statements.swap_in_run_settled,
    run_statements.open_run,
    run_statements.swap_run,
)


class Unstorable(Exception):
    """One job's values cannot be stored, or what stands in their place cannot be read; the others in its
    batch have nothing to do with it."""

    def __init__(self, job: Job, error: BaseException) -> None:
        super().__init__(str(error))
        self.job = job
        self.error = error


class Writer(Worker):
    def __init__(
        self,
        database: Database,
        connection: apsw.Connection,
        patience: Patience,
        loop: asyncio.AbstractEventLoop,
        stamp: Stamp,
        runs_stamp: Stamp,
        watchers: Watchers,
        batched: Batched,
    ) -> None:
        super().__init__("writer", loop)
        self.marks = Marks()
        self.served = ServedMarks()
        self._database = database
        self._patience = patience
        self._connection: apsw.Connection | None = connection
        self._stamp = stamp
        self._runs_stamp = runs_stamp
        self._watchers = watchers
        self._batched = batched
        self._log_pages = 0
        self._checkpoints = Checkpoints(database, patience)
        self._suspect = False  # an I/O error came by: recover before the next write
        self._flushing = False  # marks are due
        connection.set_wal_hook(self._log_grew)

    def flush_marks(self) -> asyncio.Future[Any]:
        """Resolved when a first portion is durable; the rest follows in the next transactions."""
        return self.submit(self._start_flush)

    def _start_flush(self, _: apsw.Connection) -> None:
        self._gather()
        self._flushing = True

    def _gather(self) -> None:
        self.marks.gather()
        self.served.gather()

    def collect(self, now: float, limit: int, runs_before: float) -> asyncio.Future[Any]:
        """Resolved with `Removed` when that is durable."""
        return self.submit(self._collect, now, limit, runs_before)

    def _collect(
        self, connection: apsw.Connection, now: float, limit: int, runs_before: float
    ) -> statements.Removed:
        removed = statements.collect(connection, now, limit)
        if not removed.more and runs_before:
            removed = run_statements.collect_runs(connection, runs_before, limit).after(removed)
        if spending_statements.collect(connection, now, limit):
            removed = replace(removed, more=True)
        if removed.done:
            self._stamp.changing()  # as for a swap over a done row
        self._runs_stamp.changing()
        self.marks.gather()
        self.marks.drop(removed.keys)
        return removed

    def _resolve(self, outcomes: Sequence[Outcome]) -> None:
        """Waiters of this process are woken by the commit itself, not by the next look at the database."""
        super()._resolve(outcomes)
        if committed := sum(error is None for _, _, error in outcomes):
            self._batched(committed)
        if not self._watchers:
            return
        for (perform, args, _), result, _ in outcomes:
            if perform in SWAPS and result is not None and result.won:
                self._watchers.row_changed(args[0][KEY], args[0][VERSION])
            elif isinstance(result, statements.Removed):
                for key in result.keys:
                    self._watchers.row_changed(key, 0)  # no row

    # --- in the thread -------------------------------------------------------------------------------

    def _handle(self, jobs: list[Job]) -> list[Outcome]:
        refused: list[Outcome] = []
        while True:
            try:
                return refused + self._commit(jobs)
            except Unstorable as error:
                self._roll_back()
                refused.append((error.job, None, unavailable(error.error)))
                jobs = [job for job in jobs if job is not error.job]
            except BaseException as error:  # whatever it was, somebody waits for an answer
                self._distrust(error)
                return refused + [(job, None, unavailable(error)) for job in jobs]

    def _commit(self, jobs: list[Job]) -> list[Outcome]:
        connection = self._connection or self._reopen()
        connection.execute("BEGIN IMMEDIATE")
        self._stamp.changed()
        self._runs_stamp.changed()
        outcomes: list[Outcome] = []
        for job in jobs:
            perform, args, _ = job
            try:
                result = perform(connection, *args)
            except OWN_FAULT as error:
                raise Unstorable(job, error) from error
            outcomes.append((job, result, None))
            if perform in SETTLED_SWAPS and result.won:
                self._stamp.changing()
            if perform in RUN_WRITES:
                self._runs_stamp.changing()
        portion = self.marks.take() if self._flushing else []
        served = self.served.take() if self._flushing else []
        try:
            if portion:
                statements.mark(connection, portion)
            if served:
                self._runs_stamp.changing()
                run_statements.mark_served(connection, served)
            reach(Point.COMMIT_BEGUN)
            connection.execute("COMMIT")
        except BaseException:
            self.marks.put_back(portion)
            self.served.put_back(served)
            raise
        self._flushing = bool(self.marks) or bool(self.served)
        reach(Point.COMMITTED)
        return outcomes

    def _reopen(self) -> apsw.Connection:
        connection = self._database.connect(self._patience)
        try:
            if self._suspect:
                # Copies the log into the database, fsyncs that, and starts the log from nothing.
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            connection.set_wal_hook(self._log_grew)
        except BaseException:
            close_quietly(connection)
            raise
        self._suspect = False
        self._log_pages = 0
        self._connection = connection
        return connection

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except apsw.Error as error:
                self._distrust(error)

    def _distrust(self, error: BaseException) -> None:
        """Nothing is written on this connection again. Waiting in vain for another process is the one
        trouble that says nothing about the disk."""
        if isinstance(error, apsw.BusyError):
            self._roll_back()
            return
        self._suspect = True
        close_quietly(self._connection)
        self._connection = None

    def _log_grew(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _pause(self) -> float | None:
        return 0.0 if self._flushing and self._connection is not None else None

    def _between(self) -> None:
        is_open = self._stamp.is_open or self._runs_stamp.is_open
        if is_open and self._queue.empty() and self._connection is not None:
            self._close_stamps(self._connection)
        if self._flushing and self._queue.empty() and self._connection is not None:
            self._handle([])
        if self._connection is not None:
            self._checkpoints.tend(self._connection, self._log_pages)

    def _close_stamps(self, connection: apsw.Connection) -> None:
        """Under the lock nobody's change is waiting to be committed: all that were are there to be read."""
        connection.execute("BEGIN IMMEDIATE")
        self._stamp.changed()
        self._runs_stamp.changed()
        connection.execute("ROLLBACK")

    def _leave(self) -> None:
        self._gather()
        before = 0
        while self._connection is not None and self._left() != before:  # until nothing moves any more
            before = self._left()
            self._flushing = True
            self._handle([])
        self._checkpoints.wait()
        close_quietly(self._connection)
        self._connection = None

    def _left(self) -> int:
        return len(self.marks) + len(self.served)
