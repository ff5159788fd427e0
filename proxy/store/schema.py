"""The tables of the embedded store, and how an older database becomes a present one.

`PRAGMA user_version` names the version. A migration, once released, is never edited: a new one is added.
Each runs in one transaction, so a crash leaves the old version or the new one and nothing between. A
database from a newer semel is refused before anything in its directory is touched.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import apsw

from proxy.errors import ConfigurationError

_VERSION_1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('secret', randomblob(32));

-- One row per call: intent and answer together. A rowid table, so that the unique index stays small
-- however large the rows are. Large columns come last.
CREATE TABLE calls (
  id INTEGER PRIMARY KEY AUTOINCREMENT, -- never given twice: history is filed under it
  key BLOB NOT NULL UNIQUE CHECK (length(key) = 16),
  fingerprint BLOB NOT NULL,
  named_by BLOB NOT NULL,
  tenant TEXT NOT NULL,
  run TEXT NOT NULL,
  attempt TEXT NOT NULL,
  seq INTEGER NOT NULL,
  occurrence INTEGER NOT NULL,
  upstream TEXT NOT NULL,
  rule TEXT NOT NULL,
  tool TEXT NOT NULL,
  safe INTEGER NOT NULL,
  state TEXT NOT NULL,
  version INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  owner TEXT NOT NULL,
  created_at REAL NOT NULL,
  sent_at REAL,
  settled_at REAL,
  expires_at REAL,
  sends INTEGER NOT NULL,
  unresolved INTEGER NOT NULL,
  request_blob TEXT NOT NULL,
  answer_status INTEGER,
  answer_size INTEGER,
  answer_recorded_at REAL,
  answer_place TEXT,
  answer_blob TEXT,
  answer_why_nowhere TEXT,
  doubt_since REAL,
  doubt_reason TEXT,
  doubt_status INTEGER,
  doubt_excerpt TEXT,
  record_version INTEGER NOT NULL,
  request BLOB NOT NULL,
  answer_head BLOB,
  answer_body BLOB
) STRICT;

-- A row is in at most one of these; `done`, where nearly all rows end, is in none.
CREATE INDEX calls_pending ON calls (owner) WHERE state = 'pending';
CREATE INDEX calls_in_doubt ON calls (doubt_since) WHERE state = 'in_doubt';
CREATE INDEX calls_aside ON calls (state) WHERE state IN ('released', 'awaiting_approval', 'denied');

-- n counts the lines of one call, changes and evidence alike. By the call's id and not by its key: ids grow,
-- so the lines of recent calls share a few pages, where keys would spread them over the whole file.
CREATE TABLE events (
  call INTEGER NOT NULL,
  n INTEGER NOT NULL,
  at REAL NOT NULL,
  actor TEXT NOT NULL,
  event TEXT NOT NULL,
  from_state TEXT,
  to_state TEXT,
  why TEXT NOT NULL,
  fence INTEGER NOT NULL,
  PRIMARY KEY (call, n)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER events_never_change BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'history is never rewritten'); END;
-- A call that is collected takes its history along; nothing else removes a line.
CREATE TRIGGER events_stay_with_their_call BEFORE DELETE ON events
WHEN EXISTS (SELECT 1 FROM calls WHERE id = OLD.call)
BEGIN SELECT RAISE(ABORT, 'history is never deleted while its call is there'); END;
"""

_VERSION_2 = """
-- How often a call was replayed. Apart from the row: rewriting a large row for a counter is waste.
CREATE TABLE marks (
  key BLOB PRIMARY KEY,
  replays INTEGER NOT NULL,
  last_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- How many calls are in each state. Kept by triggers in the transaction of the change, so no writer, old
-- or new, can make them differ from the rows.
CREATE TABLE counts (state TEXT PRIMARY KEY, n INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO counts VALUES ('pending', 0), ('in_doubt', 0), ('done', 0), ('released', 0),
  ('awaiting_approval', 0), ('denied', 0);
INSERT INTO counts SELECT state, count(*) FROM calls WHERE true GROUP BY state
  ON CONFLICT (state) DO UPDATE SET n = excluded.n;
CREATE TRIGGER count_new AFTER INSERT ON calls
BEGIN UPDATE counts SET n = n + 1 WHERE state = NEW.state; END;
CREATE TRIGGER count_moved AFTER UPDATE OF state ON calls WHEN NEW.state <> OLD.state
BEGIN
  UPDATE counts SET n = n - 1 WHERE state = OLD.state;
  UPDATE counts SET n = n + 1 WHERE state = NEW.state;
END;
CREATE TRIGGER count_gone AFTER DELETE ON calls
BEGIN UPDATE counts SET n = n - 1 WHERE state = OLD.state; END;
"""

_VERSION_3 = """
-- When a row was made. Rows are collected, and a key that comes back starts from version 1 again: who still
-- holds the old row must not take the new one for it.
ALTER TABLE calls ADD COLUMN born REAL NOT NULL DEFAULT 0.0;

-- What is collected when its time is over. What is open, or waits for a person, is not even in here.
CREATE INDEX calls_expiring ON calls (expires_at)
  WHERE state IN ('done', 'released', 'denied') AND expires_at IS NOT NULL;
-- Which rows name a blob. Nearly all rows name none, and are in neither.
CREATE INDEX calls_request_blob ON calls (request_blob) WHERE request_blob <> '';
CREATE INDEX calls_answer_blob ON calls (answer_blob) WHERE answer_blob <> '';
"""

_VERSION_4 = """
ALTER TABLE calls ADD COLUMN cost_usd REAL;
-- What only calls of a run remember, as JSON; and the run's pulse when the row was changed last.
ALTER TABLE calls ADD COLUMN in_run TEXT;
ALTER TABLE calls ADD COLUMN pulse INTEGER NOT NULL DEFAULT 0;
-- What has changed in a run since somebody looked. Calls outside runs are not in it.
CREATE INDEX calls_of_runs ON calls (tenant, run, pulse) WHERE run <> '';

-- Never deleted: the name of a run that is over stays known.
CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  created_at REAL NOT NULL,
  active_at REAL NOT NULL,
  state TEXT NOT NULL,
  version INTEGER NOT NULL, -- of the record, compared and swapped
  pulse INTEGER NOT NULL, -- grows with every change of the run, its calls and exchanges
  last_seq INTEGER NOT NULL,
  record TEXT NOT NULL,
  cleared INTEGER NOT NULL DEFAULT 0, -- expired, and nothing of it is left
  UNIQUE (tenant, name)
) STRICT;
CREATE INDEX runs_to_clear ON runs (id) WHERE state = 'expired' AND NOT cleared;
CREATE INDEX runs_by_activity ON runs (active_at) WHERE state <> 'expired';
CREATE INDEX runs_by_origin ON runs (tenant, coalesce(record ->> '$.origin', name));

-- Who was served from which call. Filed by attempt: an attempt asks only for its own.
CREATE TABLE exchanges (
  run INTEGER NOT NULL,
  attempt TEXT NOT NULL,
  call BLOB NOT NULL,
  number INTEGER NOT NULL,
  owner TEXT NOT NULL,
  fence INTEGER NOT NULL,
  end TEXT NOT NULL,
  final INTEGER NOT NULL,
  credentials BLOB NOT NULL,
  tokens TEXT NOT NULL,
  how TEXT NOT NULL,
  at REAL NOT NULL,
  pulse INTEGER NOT NULL,
  PRIMARY KEY (run, attempt, call, number, owner)
) STRICT, WITHOUT ROWID;
CREATE INDEX exchanges_by_pulse ON exchanges (run, attempt, pulse);

CREATE TABLE run_events (
  run INTEGER NOT NULL,
  n INTEGER NOT NULL,
  at REAL NOT NULL,
  actor TEXT NOT NULL,
  event TEXT NOT NULL,
  why TEXT NOT NULL,
  PRIMARY KEY (run, n)
) STRICT, WITHOUT ROWID;
"""

_VERSION_5 = """
-- The key that the upstream knows a call by, and what a person permitted, as JSON.
ALTER TABLE calls ADD COLUMN terms TEXT;
"""

_VERSION_6 = """
-- What was taken out of budgets: by account (a rule's, of a run, or with run = '' of a tenant), by what is
-- counted, and by bucket, which is named by its end. Times are milliseconds; 2^53 - 1: for good.
CREATE TABLE spending (
  tenant TEXT NOT NULL,
  run TEXT NOT NULL,
  upstream TEXT NOT NULL,
  rule TEXT NOT NULL,
  meter TEXT NOT NULL,
  bucket INTEGER NOT NULL,
  amount INTEGER NOT NULL CHECK (amount >= 0),
  peak INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  PRIMARY KEY (tenant, run, upstream, rule, meter, bucket)
) STRICT, WITHOUT ROWID;
CREATE INDEX spending_past ON spending (expires) WHERE expires < 9007199254740991;
"""

_VERSION_7 = """
-- The same rows as before, told apart by `=` and not by `IN`: for a list of three SQLite makes a table in
-- memory each time it looks, and it looks twice for every row that is written. That took half of a write.
DROP INDEX calls_aside;
CREATE INDEX calls_aside ON calls (state)
  WHERE state = 'released' OR state = 'awaiting_approval' OR state = 'denied';
DROP INDEX calls_expiring;
CREATE INDEX calls_expiring ON calls (expires_at)
  WHERE (state = 'done' OR state = 'released' OR state = 'denied') AND expires_at IS NOT NULL;
"""

_VERSION_8 = """
-- How many calls there are, without writing it down for each: ids are given one after another and never
-- twice, so it is the last of them less those that name no call any more. And in all states but `done` there
-- are few, which their indexes count. Triggers on a write, whatever they do, make SQLite keep a copy of what
-- stood there before: those that counted took a seventh of the time of a call's statements.
DROP TRIGGER count_new;
DROP TRIGGER count_moved;
DROP TRIGGER count_gone;
DROP TABLE counts;
CREATE TABLE vacant (n INTEGER NOT NULL) STRICT; -- ids that name no call any more
INSERT INTO vacant
  SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'calls'), 0) - (SELECT count(*) FROM calls);
CREATE TRIGGER call_gone AFTER DELETE ON calls BEGIN UPDATE vacant SET n = n + 1; END;
"""

MIGRATIONS: tuple[str, ...] = (
    _VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5, _VERSION_6, _VERSION_7, _VERSION_8,
)  # fmt: skip
KNOWN_VERSION = len(MIGRATIONS)


def migrate(connection: apsw.Connection) -> None:
    """Bring the database to KNOWN_VERSION, one version per transaction. Safe when two processes try at once:
    the version is read again under the write lock."""
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = _version(connection)
            if version < KNOWN_VERSION:
                connection.execute(MIGRATIONS[version])
                connection.pragma("user_version", version + 1)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if version >= KNOWN_VERSION:
            return


def _version(connection: apsw.Connection) -> int:
    version = connection.pragma("user_version")
    assert isinstance(version, int)
    return version


def refuse_newer(database: Path) -> None:
    """Raise ConfigurationError if a newer semel wrote this database. Reads two files and opens nothing:
    SQLite would leave a -wal and a -shm behind by merely looking."""
    version = _peek_version(database)
    if version > KNOWN_VERSION:
        raise ConfigurationError(
            f"{database} has version {version}, and this semel knows versions up to {KNOWN_VERSION}. "
            "Nothing was changed. Use the newer semel that wrote it, or another --state-dir."
        )


# The file format, https://www.sqlite.org/fileformat2.html: user_version stands at byte 60 of page 1; the
# write-ahead log is a 32-byte header and then frames of a 24-byte header and one page each.
_MAGIC = b"SQLite format 3\0"
_USER_VERSION = struct.Struct(">16s44xI")
_WAL_HEADER = struct.Struct(">8xI4x8s8x")  # page size, salts
_FRAME_HEADER = struct.Struct(">II8s8x")  # page number, size after commit (0: not a commit), salts


def _peek_version(database: Path) -> int:
    try:
        with database.open("rb") as file:
            header = file.read(_USER_VERSION.size)
    except FileNotFoundError:
        return 0
    version = _version_in(header) or 0  # what is no database is found out when it is opened
    logged = _peek_log(database.with_name(database.name + "-wal"))
    return version if logged is None else logged


def _version_in(page: bytes) -> int | None:
    if len(page) < _USER_VERSION.size:
        return None
    magic, version = _USER_VERSION.unpack(page)
    return version if magic == _MAGIC else None


def _peek_log(log: Path) -> int | None:
    """The user_version of the last committed first page in the write-ahead log, if it holds one."""
    try:
        fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        header = os.pread(fd, _WAL_HEADER.size, 0)
        if len(header) < _WAL_HEADER.size:
            return None
        page_size, salts = _WAL_HEADER.unpack(header)
        if not page_size:  # room for a log that has not begun
            return None
        committed = waiting = None
        offset = _WAL_HEADER.size
        while len(frame := os.pread(fd, _FRAME_HEADER.size, offset)) == _FRAME_HEADER.size:
            page, commit, frame_salts = _FRAME_HEADER.unpack(frame)
            if frame_salts != salts:
                break  # what an earlier round of the log left behind
            if page == 1:
                start = os.pread(fd, _USER_VERSION.size, offset + _FRAME_HEADER.size)
                waiting = _version_in(start)
            if commit:
                committed = waiting
            offset += _FRAME_HEADER.size + page_size
        return committed
    finally:
        os.close(fd)
