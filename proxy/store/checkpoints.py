"""The write-ahead log is copied into the database now and then, without anybody noticing.

Copying thousands of pages takes a tenth of a second and more, and the writer must not stand still for it. So
a thread copies while the writer goes on appending; the writer then copies the small rest itself, between two
batches, and lets the log start anew. A mere copy beside a busy writer would let the log grow without end.
"""

from __future__ import annotations

import contextlib
import threading

import apsw

from proxy.giving_way import as_usual
from proxy.store.database import PATIENCE, Database, Patience, close_quietly

# Pages in the log before it is copied. SQLite's usual 1,000 would mean several rounds per second at 2,000
# calls/s, each with fsyncs of its own; pages that change again and again (counts, the ends of the tables) are
# copied once per round, so fewer rounds are less work. 4,000 pages are 16 MiB.
PAGES = 4000
# So few pages are left to the writer: about as long as one more batch.
REST = 200
# While the thread copies, the writer appends; so often it goes over what came meanwhile.
PASSES = 4
# When the thread cannot keep up, the writer stops and copies everything itself.
TOO_LONG = 4 * PAGES
# How long the writer waits for readers before it lets the log grow on: a reader may be a person's export.
READERS = 0.02


class Checkpoints:
    """All but `_copy` belongs to the writer's thread."""

    def __init__(self, database: Database, patience: Patience) -> None:
        self._database = database
        self._patience = patience  # of the writer's connection
        self._thread: threading.Thread | None = None
        self._due = PAGES

    def tend(self, connection: apsw.Connection, pages: int) -> None:
        """Called between batches with the length of the log. Raises what the disk says,
        and RuntimeError when no thread can be had."""
        copying = self._thread is not None and self._thread.is_alive()
        if pages < self._due:
            if not copying:
                self._thread = None
        elif self._thread is None:
            thread = threading.Thread(target=self._copy, name="semel-log", daemon=True)
            thread.start()
            self._thread = thread  # only now: one that could not be started cannot be waited for
        elif not copying or pages >= self._due + TOO_LONG:
            self.wait()
            self._start_anew(connection, pages)

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _start_anew(self, connection: apsw.Connection, pages: int) -> None:
        self._patience.bound = READERS
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            self._due = PAGES
        except apsw.BusyError:
            self._due = pages + PAGES
        finally:
            self._patience.bound = PATIENCE

    def _copy(self) -> None:
        """Errors are left to the writer: it meets them in its own part, and knows what to do."""
        as_usual()  # started by the writer, which gives way; while it waits the log grows
        connection = None
        with contextlib.suppress(apsw.Error):
            connection = self._database.connect(Patience())
            for _ in range(PASSES):
                pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if pages - copied <= REST:
                    break
        close_quietly(connection)
