"""Every statement on accounts, named, run by the writer or the reader like those of statements.py.

The writer's transactions come one after another, and in one every swap sees what those before it took: that
alone keeps a limit.
"""

from __future__ import annotations

import apsw

from proxy.core.budget import FOR_GOOD, Account, Charge, Posting, Spent

_NAME = "tenant, run, upstream, rule, meter, bucket"
_OF = "tenant = ?1 AND run = ?2 AND upstream = ?3 AND rule = ?4"
SPENT = f"SELECT meter, bucket, amount, peak FROM spending WHERE {_OF} ORDER BY meter, bucket"  # noqa: S608 (constants, here and below)
COUNTED = f"SELECT coalesce(sum(amount), 0) FROM spending WHERE {_OF} AND meter = ?5 AND bucket > ?6"  # noqa: S608
RESERVE = (
    f"INSERT INTO spending ({_NAME}, amount, peak, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) "  # noqa: S608
    f"ON CONFLICT ({_NAME}) DO UPDATE SET amount = amount + excluded.amount, "
    "peak = max(peak, excluded.peak), expires = max(expires, excluded.expires)"
)
ADJUST = (
    f"UPDATE spending SET amount = max(0, amount + ?7), peak = max(peak, ?8) WHERE {_OF} "  # noqa: S608
    "AND meter = ?5 AND bucket = ?6"
)
REMOVE_PAST = (
    f"DELETE FROM spending WHERE ({_NAME}) IN (SELECT {_NAME} FROM spending INDEXED BY spending_past "  # noqa: S608
    f"WHERE expires < {FOR_GOOD} AND expires < ?1 LIMIT ?2)"
)
REMOVE_OF_RUN = "DELETE FROM spending WHERE tenant = ? AND run = ?"


def spent(connection: apsw.Connection, account: Account) -> list[Spent]:
    return [Spent(*row) for row in connection.execute(SPENT, account)]


def exceeded(connection: apsw.Connection, charge: Charge) -> tuple[Spent, ...] | None:
    """What the account holds, if the charge would pass a limit."""
    if any(_passes(connection, charge.account, posting) for posting in charge.postings):
        return tuple(spent(connection, charge.account))
    return None


def _passes(connection: apsw.Connection, account: Account, posting: Posting) -> bool:
    if posting.most is None:
        return False
    ((used,),) = connection.execute(COUNTED, (*account, posting.meter.value, posting.since))
    return bool(used + posting.amount > posting.most)


def apply(connection: apsw.Connection, charge: Charge) -> None:
    for posting in charge.postings:
        name = (*charge.account, posting.meter.value, posting.bucket)
        if posting.most is None:
            connection.execute(ADJUST, (*name, posting.amount, posting.peak))
        else:
            connection.execute(RESERVE, (*name, posting.amount, posting.peak, posting.expires))


def collect(connection: apsw.Connection, now: float, limit: int) -> bool:
    """What is past goes, at most so much of it; whether there may be more."""
    connection.execute(REMOVE_PAST, (int(now * 1000), limit))
    return connection.changes() == limit
