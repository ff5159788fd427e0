"""Every statement on the ledger, named, each run against an open connection by the writer or the reader.

The texts are constant, so that SQLite's prepared form is found again. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import apsw

from proxy.core.budget import Charge
from proxy.core.intent import Call, Entry, State
from proxy.store import spending_statements as spending
from proxy.store.base import WON, Orphans, Page, Query, Swap
from proxy.store.codec import CALL_COLUMNS, ENTRY_COLUMNS, DamagedRecord, Row, row_to_call, row_to_entry

_COLUMNS = ", ".join(CALL_COLUMNS)
_HOLES = ", ".join(f"?{n}" for n in range(1, len(CALL_COLUMNS) + 1))
_ASSIGNMENTS = ", ".join(
    f"{name} = ?{n}" for n, name in enumerate(CALL_COLUMNS, 1) if name not in ("key", "born")
)
_BORN = CALL_COLUMNS.index("born") + 1
# A transaction that removes calls frees the pages of their bodies; others wait for it meanwhile.
MOST_BYTES = 4 * 1024 * 1024
BEYOND = 2**63 - 1  # above every id that SQLite gives

GET = f"SELECT {_COLUMNS} FROM calls WHERE key = ?"  # noqa: S608 (constants of this module, here and below)
# Without ON CONFLICT: what is not written takes no id, and ids are counted.
INSERT = f"INSERT INTO calls ({_COLUMNS}) VALUES ({_HOLES})"  # noqa: S608
# The guard: one more parameter, the version that the caller saw, of the row that it saw.
UPDATE = (
    f"UPDATE calls SET {_ASSIGNMENTS} "  # noqa: S608
    f"WHERE key = ?1 AND version = ?{len(CALL_COLUMNS) + 1} AND born = ?{_BORN}"
)
_LINE = f"INSERT INTO events (call, n, {', '.join(ENTRY_COLUMNS)}) "
# A new row has a new id, and under that no lines yet.
BEGIN_HISTORY = f"{_LINE} VALUES (?, 1, ?, ?, ?, ?, ?, ?, ?)"
# The next number is found inside the one write transaction, so lines cannot collide. Values and no SELECT:
# what reads the table that it adds to is gathered in a table of its own first.
_CALL = "(SELECT id FROM calls WHERE key = ?1)"
APPEND = (
    f"{_LINE} VALUES ({_CALL}, (SELECT coalesce(max(n), 0) + 1 FROM events WHERE call = {_CALL}), "  # noqa: S608
    "?2, ?3, ?4, ?5, ?6, ?7, ?8)"
)
HISTORY = (
    f"SELECT {', '.join(f'events.{name}' for name in ENTRY_COLUMNS)} FROM calls "  # noqa: S608
    "JOIN events ON events.call = calls.id WHERE calls.key = ? ORDER BY n"
)
VERSION = "SELECT version FROM calls WHERE key = ?"
STANDS = "SELECT 1 FROM calls WHERE key = ? AND version = ? AND born = ?"
# All watched rows in one step; only those that differ come back. The list is [[hex key, version], …].
DIFFERING = (
    "SELECT watched.value ->> 0, watched.value ->> 1 FROM json_each(?) AS watched "
    "LEFT JOIN calls ON calls.key = unhex(watched.value ->> 0) "
    "WHERE coalesce(calls.version, 0) <> watched.value ->> 1"
)
# The states stand in the text and not in a parameter, each with the very words of its partial index: only so
# does SQLite see that the index fits. `id` is the order in which calls were first seen.
_ASIDE = "(state = 'released' OR state = 'awaiting_approval' OR state = 'denied')"
_AMONG = {
    State.PENDING: "INDEXED BY calls_pending WHERE state = 'pending'",
    State.IN_DOUBT: "INDEXED BY calls_in_doubt WHERE state = 'in_doubt'",
    State.DONE: "NOT INDEXED WHERE state = 'done'",  # nearly every row: the first ones are found at once
    State.RELEASED: f"INDEXED BY calls_aside WHERE {_ASIDE} AND state = 'released'",
    State.AWAITING_APPROVAL: f"INDEXED BY calls_aside WHERE {_ASIDE} AND state = 'awaiting_approval'",
    State.DENIED: f"INDEXED BY calls_aside WHERE {_ASIDE} AND state = 'denied'",
}
_AMONG_ALL: list[tuple[State | None, str]] = [(None, "NOT INDEXED WHERE true"), *_AMONG.items()]
# Only what names a row: where SQLite has to sort (pending, in doubt), it sorts little. Without a state, and
# for `done`, it walks the rows from the newest on and needs not sort at all.
FIND = {
    state: (
        f"SELECT id, key FROM calls {among} AND id < ?1 AND (?2 = '' OR upstream = ?2) "  # noqa: S608
        "AND (?3 = '' OR tool = ?3) AND (?4 = '' OR run = ?4) AND (?5 = '' OR tenant = ?5) "
        "ORDER BY id DESC LIMIT ?6"
    )
    for state, among in _AMONG_ALL
}
# The owner as bytes, which can always be read.
PENDING_OWNERS = (
    "SELECT DISTINCT CAST(owner AS BLOB) FROM calls INDEXED BY calls_pending WHERE state = 'pending'"
)
PENDING_OF = (
    "SELECT key FROM calls INDEXED BY calls_pending "
    "WHERE state = 'pending' AND owner = CAST(? AS TEXT) ORDER BY id"
)
LIVE_CALLS = (
    "SELECT count(*) FROM calls WHERE upstream = ?1 AND rule = ?2 "
    "AND (expires_at IS NULL OR expires_at > ?3 OR state IN ('pending', 'in_doubt'))"
)
# By their indexes, and all of them together: what is in none of these is done.
COUNTS: dict[State, str] = {
    state: f"SELECT count(*) FROM calls {among}"  # noqa: S608
    for state, among in _AMONG.items()
    if state is not State.DONE
}
TOTAL = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'calls'), 0) - (SELECT n FROM vacant)"
OLDEST_QUESTION = f"SELECT min(created_at) FROM calls {_AMONG[State.AWAITING_APPROVAL]}"  # noqa: S608
OLDEST_DOUBT = "SELECT min(doubt_since) FROM calls INDEXED BY calls_in_doubt WHERE state = 'in_doubt'"
# Kept with the call: a mark that comes when the call has been collected has no place.
MARK = (
    "INSERT INTO marks (key, replays, last_at) SELECT ?1, ?2, ?3 FROM calls WHERE key = ?1 "
    "ON CONFLICT (key) DO UPDATE "
    "SET replays = replays + excluded.replays, last_at = max(last_at, excluded.last_at)"
)
REPLAYS = "SELECT replays FROM marks WHERE key = ?"
_EXPIRING = "(state = 'done' OR state = 'released' OR state = 'denied') AND expires_at IS NOT NULL"
# In a run only what a person forgot has a time; its number stays, and the row goes with the run.
_ALONE = "run = ''"
EXPIRED = (
    "SELECT id, key, state = 'done', "  # noqa: S608
    "length(request) + coalesce(length(answer_head), 0) + coalesce(length(answer_body), 0) AS size "
    f"FROM calls INDEXED BY calls_expiring WHERE {_EXPIRING} AND {_ALONE} AND expires_at < ? "
    "ORDER BY expires_at LIMIT ?"
)
EXPIRED_IN_ALL = f"SELECT count(*), coalesce(sum(size), 0) FROM ({EXPIRED})"  # noqa: S608
# In this order: a trigger keeps the history of every call that is there.
REMOVE_CALL = "DELETE FROM calls WHERE id = ?"
REMOVE_HISTORY = "DELETE FROM events WHERE call = ?"
REMOVE_MARK = "DELETE FROM marks WHERE key = ?"
# The rows that name a blob, and for each whether it goes by itself before ?2.
NAMES_BLOB = " UNION ALL ".join(
    "SELECT tenant, run, state IN ('pending', 'in_doubt'), "  # noqa: S608
    f"coalesce({_EXPIRING} AND {_ALONE} AND expires_at < ?2, false) "
    f"FROM calls INDEXED BY calls_{column} WHERE {column} <> '' AND {column} = ?1"
    for column in ("request_blob", "answer_blob")
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the database says for the census."""

    by_state: dict[State, int]
    oldest_doubt_at: float | None
    oldest_question_at: float | None
    database_bytes: int
    free_bytes: int  # of these


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """`done`: a done call is among them. `runs`: so many are over now. `more`: there are others."""

    keys: list[bytes]
    done: bool
    bytes: int
    more: bool
    runs: int = 0

    def after(self, earlier: Removed) -> Removed:
        return Removed(
            keys=earlier.keys + self.keys,
            done=earlier.done or self.done,
            bytes=earlier.bytes + self.bytes,
            more=self.more,
            runs=earlier.runs + self.runs,
        )


def swap(
    connection: apsw.Connection, row: Row, entry: Row, expected: int, charge: Charge | None = None
) -> Swap:
    """`row` and `entry` are columns. A lost swap changes nothing and shows what stands there instead."""
    # Whoever would lose anyway is told of the row: a budget that is used up keeps nobody from an answer.
    if charge is not None and charge.reserves and _would_win(connection, row, expected):
        exceeded = spending.exceeded(connection, charge)
        if exceeded is not None:
            return Swap(False, exceeded=exceeded)
    execute = connection.cursor().execute  # one for both: the connection's own makes one each time
    if expected == 0:
        won = _inserted(execute, row)
        if won:
            execute(BEGIN_HISTORY, (connection.last_insert_rowid(), *entry))
    else:
        execute(UPDATE, (*row, expected))
        won = bool(connection.changes())
        if won:
            execute(APPEND, (row[0], *entry))
    if not won:
        return Swap(False, get(connection, row[0]))
    if charge is not None:
        spending.apply(connection, charge)
    return WON


def _inserted(execute: Callable[..., object], row: Row) -> bool:
    """False: the key stands there already, and nothing was changed."""
    try:
        execute(INSERT, row)
    except apsw.ConstraintError as error:
        if getattr(error, "extendedresult", 0) != apsw.SQLITE_CONSTRAINT_UNIQUE:
            raise
        return False
    return True


def _would_win(connection: apsw.Connection, row: Row, expected: int) -> bool:
    if expected == 0:
        return version(connection, row[0]) == 0
    return one(connection, STANDS, (row[0], expected, row[_BORN - 1])) is not None


def swap_settled(
    connection: apsw.Connection, row: Row, entry: Row, expected: int, charge: Charge | None = None
) -> Swap:
    """The same over a row that may be done: the writer lets everybody know (stamp.py)."""
    return swap(connection, row, entry, expected, charge)


def note(connection: apsw.Connection, key: bytes, entry: Row) -> None:
    """Kept with the call: of one that has been collected there is no history to add to."""
    if version(connection, key):
        connection.execute(APPEND, (key, *entry))


def mark(connection: apsw.Connection, marks: Iterable[tuple[bytes, int, float]]) -> None:
    connection.executemany(MARK, marks)


def collect(connection: apsw.Connection, now: float, limit: int) -> Removed:
    """At least one of those whose time is over, at most `limit`, and no more than a moment's work."""
    return remove(connection, EXPIRED, (now, limit + 1), limit)


def remove(connection: apsw.Connection, text: str, bindings: tuple[Any, ...], limit: int) -> Removed:
    """Of the calls that `text` finds, at most `limit`, and no more than a moment's work."""
    found = list(connection.execute(text, bindings))
    sums = accumulate(size for *_, size in found[:limit])
    few = max(1, sum(total <= MOST_BYTES for total in sums))  # at least one, however large
    portion, rest = found[:few], found[few:]
    ids, keys = [(row[0],) for row in portion], [row[1] for row in portion]
    connection.executemany(REMOVE_CALL, ids)
    connection.executemany(REMOVE_HISTORY, ids)
    connection.executemany(REMOVE_MARK, [(key,) for key in keys])
    return Removed(
        keys=keys,
        done=any(done for _, _, done, _ in portion),
        bytes=sum(size for *_, size in portion),
        more=bool(rest),
    )


def expired_in_all(connection: apsw.Connection, now: float) -> tuple[int, int]:
    """How many there are, and their bytes."""
    for number, size in connection.execute(EXPIRED_IN_ALL, (now, -1)):
        return number, size
    raise AssertionError("a count is always there")


def names_blob(connection: apsw.Connection, digest: str) -> bool:
    """Whether a row names it."""
    return any(connection.execute(NAMES_BLOB, (digest, None)))


def will_name_blob(
    connection: apsw.Connection, now: float, over: frozenset[tuple[str, str]], digest: str
) -> bool:
    """Whether a row names it that is left when what is past its time has gone, with these runs."""
    rows = connection.execute(NAMES_BLOB, (digest, now))
    return any(not goes and (is_open or (tenant, run) not in over) for tenant, run, is_open, goes in rows)


def get(connection: apsw.Connection, key: bytes, known: Call | None = None) -> Call | None:
    if known is not None and one(connection, STANDS, (key, known.version, known.born)):
        return known
    for row in connection.execute(GET, (key,)):
        return row_to_call(row)
    return None


def get_many(connection: apsw.Connection, keys: Iterable[bytes]) -> list[Call]:
    """Those that are there and can be read."""
    return _read_each(connection, keys)[0]


def version(connection: apsw.Connection, key: bytes) -> int:
    return one(connection, VERSION, (key,)) or 0


def history(connection: apsw.Connection, key: bytes) -> list[Entry]:
    return [row_to_entry(row) for row in connection.execute(HISTORY, (key,))]


def replays(connection: apsw.Connection, key: bytes) -> int:
    return one(connection, REPLAYS, (key,)) or 0


def pending_owners(connection: apsw.Connection) -> list[bytes]:
    return [owner for (owner,) in connection.execute(PENDING_OWNERS)]


def pending_of(connection: apsw.Connection, owners: Iterable[bytes]) -> Orphans:
    keys = [key for owner in owners for (key,) in connection.execute(PENDING_OF, (owner,))]
    found, unreadable = _read_each(connection, keys)
    return Orphans(calls=found, unreadable=unreadable)


def find(connection: apsw.Connection, query: Query) -> Page:
    newest = BEYOND if query.after is None else query.after
    bindings = (newest, query.upstream, query.tool, query.run, query.tenant, query.limit + 1)
    with connection:  # one view for both: a row that is found is as it was found
        named = list(connection.execute(FIND[query.state], bindings))
        found, unreadable = _read_each(connection, [key for _, key in named[: query.limit]])
    more = len(named) > query.limit
    return Page(calls=found, next=named[query.limit - 1][0] if more else None, unreadable=unreadable)


def _read_each(connection: apsw.Connection, keys: Iterable[bytes]) -> tuple[list[Call], dict[str, str]]:
    """Row by row: one that cannot be read does not stand before the others, and is named with its reason."""
    found, unreadable = [], {}
    for key in keys:
        try:
            found.append(get(connection, key))
        except (DamagedRecord, UnicodeDecodeError) as error:
            unreadable[key.hex()] = str(error)
    return [call for call in found if call is not None], unreadable


def differing(connection: apsw.Connection, watched: str) -> list[tuple[bytes, int]]:
    return [(bytes.fromhex(key), seen) for key, seen in connection.execute(DIFFERING, (watched,))]


def figures(connection: apsw.Connection) -> Figures:
    with connection:  # one view of all: they are told from each other
        by_state = {state: one(connection, text, ()) for state, text in COUNTS.items()}
        by_state[State.DONE] = one(connection, TOTAL, ()) - sum(by_state.values())
    return Figures(
        by_state=by_state,
        oldest_doubt_at=one(connection, OLDEST_DOUBT, ()),
        oldest_question_at=one(connection, OLDEST_QUESTION, ()),
        database_bytes=connection.pragma("page_count") * connection.pragma("page_size"),
        free_bytes=connection.pragma("freelist_count") * connection.pragma("page_size"),
    )


def live_calls(connection: apsw.Connection, upstream: str, rule: str, now: float) -> int:
    number: int = one(connection, LIVE_CALLS, (upstream, rule, now))
    return number


def one(connection: apsw.Connection, text: str, bindings: tuple[Any, ...]) -> Any:  # noqa: ANN401 (SQL value)
    for (value,) in connection.execute(text, bindings):
        return value
    return None
