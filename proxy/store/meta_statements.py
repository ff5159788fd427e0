"""What the ledger knows of itself: its secret, the latest time it was told, whether it is whole."""

from __future__ import annotations

import apsw

from proxy.store.statements import one

SECRET = "SELECT value FROM meta WHERE name = 'secret'"  # noqa: S105 (a statement, not a password)
SWAP_SECRET = "UPDATE meta SET value = ? WHERE name = 'secret' AND value = ?"  # noqa: S105 (the same)
COPIED_FROM = "SELECT value FROM meta WHERE name = 'copying'"
CLOCK = "SELECT value FROM meta WHERE name = 'clock'"
SET_CLOCK = "INSERT INTO meta VALUES ('clock', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
TOUCH = "INSERT INTO meta VALUES ('ping', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


def touch(connection: apsw.Connection, stamp: bytes) -> None:
    """A write that reaches the disk, for readiness: an empty transaction would not notice a full disk."""
    connection.execute(TOUCH, (stamp,))


def clock_mark(connection: apsw.Connection) -> float:
    return next((float(mark) for (mark,) in connection.execute(CLOCK)), 0.0)


def raise_clock_mark(connection: apsw.Connection, now: float) -> None:
    if now > clock_mark(connection):
        connection.execute(SET_CLOCK, (repr(now).encode(),))


def secret(connection: apsw.Connection) -> bytes:
    value = one(connection, SECRET, ())
    assert isinstance(value, bytes)
    return value


def swap_secret(connection: apsw.Connection, old: bytes, new: bytes) -> bytes:
    connection.execute(SWAP_SECRET, (new, old))
    return secret(connection)


def copied_from(connection: apsw.Connection) -> str | None:
    """Of what this is a copy that is not finished."""
    value: bytes | None = one(connection, COPIED_FROM, ())
    return None if value is None else value.decode()
