"""What was overwritten in the ledger leaves its file.

SQLite's `secure_delete` blanks what it frees, but a page that is split keeps some of what was on it. Writing
the whole file anew leaves none, and keeps every writer waiting meanwhile: done at once where that is short,
or where nobody else is there to wait.
"""

from __future__ import annotations

import contextlib

import apsw

from proxy.store.database import Database, Patience, close_quietly, unavailable

# Written anew in about a second, of the five that a writer is ready to wait.
SHORT = 64 * 1024 * 1024
# How often it is tried beside others, each time for as long as a writer waits.
TRIES = 10
LEFT = (
    "the ledger is large and in use, so its file was not written anew, and unused places in it may have "
    "some of what was overwritten: run this again when no other semel uses it"
)
BUSY = "the ledger was too busy to be written anew: run this again"


def scrub(database: Database, *, alone: bool) -> str:
    """What is left to do. `alone`: no other process works with it."""
    connection = None
    try:
        connection = database.connect(Patience())
        size = connection.pragma("page_count") * connection.pragma("page_size")
        if size > SHORT and not alone:
            _empty_log(connection)
            return LEFT
        connection.pragma("temp_store", "FILE")  # as large as the ledger
        return "" if _tried(connection, "VACUUM") and _empty_log(connection) else BUSY
    except Exception as error:
        raise unavailable(error) from error
    finally:
        close_quietly(connection)


def _tried(connection: apsw.Connection, statement: str) -> bool:
    for _ in range(TRIES):
        with contextlib.suppress(apsw.BusyError):
            connection.execute(statement)
            return True
    return False


def _empty_log(connection: apsw.Connection) -> bool:
    """A moment when nobody reads is enough, and one of these comes soon."""
    for _ in range(TRIES):
        with contextlib.suppress(apsw.BusyError):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            return True
    return False
