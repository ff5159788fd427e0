"""The tables in PostgreSQL, how an older database becomes a present one, and whether the server can serve.

All of it happens in one transaction under a lock that ends with it, so processes that start together do not
meet, and a crash leaves the old version or the new one. A database from a newer semel is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg

from proxy.errors import ConfigurationError, NoRecord
from proxy.store.archive import MARK, not_whole
from proxy.store.postgres_line import Address, Line, Row

# One file for each version, never edited once released.
MIGRATIONS = ("postgres.sql", "postgres_budgets.sql", "postgres_retention.sql")
KNOWN_VERSION = len(MIGRATIONS)
# Any number that nobody else in this database uses.
LOCK = 0x53_45_4D_45_4C

_HAS_META = "SELECT to_regclass('semel.meta') IS NOT NULL"
_VERSION = "SELECT convert_from(value, 'UTF8')::int FROM semel.meta WHERE name = 'schema'"
_SET = "INSERT INTO semel.meta VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_META = f"SELECT name, value FROM semel.meta WHERE name IN ('secret', '{MARK}')"  # noqa: S608 (constants)
_SECRET = "SELECT value FROM semel.meta WHERE name = 'secret'"  # noqa: S105 (a statement, not a password)
_SETTINGS = (
    "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('fsync'), "
    "current_setting('full_page_writes'), current_setting('server_encoding')"
)
# What a role without pg_monitor may not see of it comes as NULL.
STANDBYS = (
    "SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), "
    "current_setting('synchronous_standby_names') FROM pg_stat_replication"
)


async def move_in(address: Address, note: Callable[..., None], *, make: bool = True) -> bytes:
    """The secret of this database, which is now of the present version. ConfigurationError if it cannot
    serve, or if it has no record and none shall be made."""
    try:
        connection = await address.connect()
    except (psycopg.Error, OSError, TimeoutError) as error:
        raise ConfigurationError(
            f"{address.shown} cannot be used to keep the record: {address.unavailable(error).detail}. Is the "
            "server running, and may this user connect?"
        ) from None
    try:
        await _examine(connection, address, note)
        async with connection.transaction():
            secret = await _migrate(connection, address, make)
        await _prove_durable(connection, address)
        return secret
    except psycopg.Error as error:
        raise ConfigurationError(
            f"{address.shown} cannot be used to keep the record: {address.unavailable(error).detail}. The "
            f"user needs to own the schema `{address.schema}`, or to have CREATE on the database the first "
            "time."
        ) from None
    finally:
        await connection.close()


async def look(url: str, note: Callable[..., None]) -> str:
    """What is there, for people. ConfigurationError if it cannot serve."""
    address = Address(url)
    try:
        connection = await address.connect()
        try:
            await _examine(connection, address, note)
            server = await _one(connection, "SELECT current_setting('server_version')")
            if not await _one(connection, _HAS_META):
                return f"{address.shown}, PostgreSQL {server}, no record yet"
            version = await _one(connection, _VERSION)
            mark = await _one(connection, f"SELECT value FROM semel.meta WHERE name = '{MARK}'")  # noqa: S608
            if mark is not None:
                raise not_whole(address.shown, bytes(mark).decode())
            living = await _one(connection, "SELECT count(*) FROM semel.owners WHERE NOT dead")
        finally:
            await connection.close()
    except (psycopg.Error, OSError, TimeoutError) as error:
        raise ConfigurationError(
            f"{address.shown} cannot be reached: {address.unavailable(error).detail}"
        ) from None
    return f"{address.shown}, PostgreSQL {server}, schema {version}, {living} enrolled process(es)"


async def require_present(one: Callable[[str], Awaitable[Any]], shown: str) -> None:
    """For who only reads: it is of the present version, or ConfigurationError."""
    if not await one(_HAS_META):
        raise NoRecord(f"There is no record in {shown}.")
    version = await one(_VERSION)
    if version > KNOWN_VERSION:
        raise _newer(shown, version)
    if version < KNOWN_VERSION:
        raise ConfigurationError(
            f"{shown} was written by an older semel, and is only read here. Bring it up to date first: "
            f"semel gc --store {shown}"
        )


async def secret_of(line: Line, shown: str) -> bytes:
    """As it is when this process is to be seen among the living, after which no copy changes it.
    ConfigurationError if a ledger is still being copied into this store."""
    meta: dict[str, bytes] = dict(await line.ask(_META, again=True))
    if MARK in meta:
        raise not_whole(shown, bytes(meta[MARK]).decode())
    return bytes(meta["secret"])


def _newer(shown: str, version: int) -> ConfigurationError:
    return ConfigurationError(
        f"{shown} was written by a newer semel (schema {version}, this one knows {KNOWN_VERSION}): upgrade "
        "this process."
    )


async def _migrate(connection: psycopg.AsyncConnection[Row], address: Address, make: bool) -> bytes:
    await connection.execute(b"SET LOCAL synchronous_commit = on")
    await connection.execute(b"SELECT pg_advisory_xact_lock($1)", (LOCK,))
    version: int = await _one(connection, _VERSION) if await _one(connection, _HAS_META) else 0
    if version > KNOWN_VERSION:
        raise _newer(address.shown, version)
    if version == 0:
        if not make:
            raise NoRecord(
                f"There is no record in {address.shown}. Name the database that `semel serve` uses."
            )
        if await _one(connection, f"SELECT to_regnamespace('{address.schema}') IS NULL"):
            await connection.execute(f"CREATE SCHEMA {address.schema}".encode())
    for name in MIGRATIONS[version:]:
        await connection.execute((Path(__file__).parent / name).read_bytes())
    if version < KNOWN_VERSION:
        await connection.execute(_SET.encode(), ("schema", str(KNOWN_VERSION).encode()))
    secret = await _one(connection, _SECRET)
    if secret is None:
        secret = secrets.token_bytes(32)
        await connection.execute(_SET.encode(), ("secret", secret))
    return bytes(secret)


async def _examine(
    connection: psycopg.AsyncConnection[Row], address: Address, note: Callable[..., None]
) -> None:
    cursor = await connection.execute(_SETTINGS.encode())
    row = await cursor.fetchone()
    assert row is not None
    version, standby, fsync, pages, encoding = row
    for wrong, why in (
        (version < 130000, "PostgreSQL 13 or newer is needed"),
        (standby, "this server is a standby, and what it says may be old: name the primary"),
        (
            fsync != "on",
            "the server runs with fsync = off and loses what it promised when power fails: set it on",
        ),
        (
            pages != "on",
            "the server runs with full_page_writes = off, which a crash may not survive: set it on",
        ),
        (encoding != "UTF8", f"the database is in {encoding}: make one with ENCODING 'UTF8'"),
    ):
        if wrong:
            raise ConfigurationError(f"{address.shown} cannot be used to keep the record: {why}.")
    cursor = await connection.execute(STANDBYS.encode())
    if warning := standby_warning(*(await cursor.fetchone() or (0, 0, ""))):
        note("asynchronous-standby", detail=warning)


def standby_warning(standbys: int, waited_for: int, synchronous: str) -> str:
    """Empty: there is none, or commits wait for all of them."""
    if standbys and not synchronous:
        return (
            "commits do not wait for the standby: after a failover to it, calls that were recorded last are "
            "unknown and may be made again. Set synchronous_standby_names"
        )
    if standbys > waited_for > 0:
        return "commits do not wait for every standby: never fail over to one that is asynchronous"
    return ""


async def _prove_durable(connection: psycopg.AsyncConnection[Row], address: Address) -> None:
    """Inside a transaction, as at every commit that counts."""
    async with connection.transaction():
        await connection.execute(b"SELECT semel.be_durable()")
        commits = await _one(connection, "SELECT current_setting('synchronous_commit')")
    if commits not in ("on", "remote_apply"):
        raise ConfigurationError(
            f"{address.shown} cannot be used to keep the record: synchronous_commit stays {commits}."
        )


async def _one(connection: psycopg.AsyncConnection[Row], text: str) -> Any:  # noqa: ANN401 (an SQL value)
    cursor = await connection.execute(text.encode())
    row = await cursor.fetchone()
    return None if row is None else row[0]
