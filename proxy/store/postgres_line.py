"""One connection to PostgreSQL, opened when it is needed and again when it was lost; every use is bounded.

Each statement is a transaction of its own, sent with its values in one round trip and never prepared: nothing
is kept in a session, so a pooler may give every statement another one. A statement whose answer did not come
may have been committed: that is told apart from one that the server refused, which was not.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
from collections.abc import Awaitable, Sequence
from functools import cache
from typing import Any, Self, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proxy.errors import ConfigurationError, StoreUnavailable

Row: TypeAlias = tuple[Any, ...]
Statements: TypeAlias = Sequence[tuple[str, Sequence[Any]]]  # each with its values
T = TypeVar("T")

# A server that takes longer than this for what takes milliseconds is not there.
PATIENCE = 5.0
CONNECTING = 3
# Listings and collecting walk far; nobody waits for them with a call.
LONG = 60.0
# A server that was just tried in vain is not tried again by everybody at once.
RETRY_AFTER = 0.1


READ_ONLY = "25006"
# Deadlocks, and what amounts to them.
DEADLOCKS = ("40P01", "40001")
MOST_TRIES = 5


class Refused(Exception):
    """The server said no, or the values could not even be sent: nothing was changed."""

    def __init__(self, detail: str, code: str) -> None:
        super().__init__(detail)
        self.code = code


# Under this name every statement is written; an address may name another schema (`schema=`).
SCHEMA = "semel"
_A_SCHEMA = re.compile("[a-z_][a-z0-9_]{0,47}")


class Address:
    """Where the server is. The password never comes out again, in no message."""

    def __init__(self, url: str) -> None:
        url, self.schema = _with_schema(url)
        try:
            parts = conninfo_to_dict(url)
            host, port, name = (str(parts.get(part) or "") for part in ("host", "port", "dbname"))
            # A password with a bare / or @ in it is taken for something else, which would be shown.
            if (port and not port.replace(",", "").isdigit()) or "@" in host + name:
                raise ValueError
        except (psycopg.Error, ValueError):  # what libpq did not understand may be the password
            raise ConfigurationError(
                "The store's address is not one: write postgres://USER:PASSWORD@HOST:PORT/DATABASE, with "
                "special characters in it percent-encoded."
            ) from None
        self._password = str(parts.get("password") or "")
        self._given: dict[str, Any] = {
            **parts,
            "connect_timeout": CONNECTING,
            "target_session_attrs": "read-write",  # what a standby says may be old
            "application_name": parts.get("application_name") or "semel",
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": int(PATIENCE * 2000),
        }
        beside = "" if self.schema == SCHEMA else f"?schema={self.schema}"
        self.shown = f"postgres://{host or 'localhost'}:{port or 5432}/{name}{beside}"

    async def connect(self) -> psycopg.AsyncConnection[Row]:
        return await psycopg.AsyncConnection.connect(
            make_conninfo(**self._given),
            autocommit=True,
            prepare_threshold=None,
            cursor_factory=_cursors_in(self.schema),
        )

    def unavailable(self, error: BaseException) -> StoreUnavailable:
        text = " ".join(str(error).split()) or type(error).__name__
        if self._password:
            text = text.replace(self._password, "***")
        return StoreUnavailable(f"the store is not available: {text}")


def _with_schema(url: str) -> tuple[str, str]:
    """The address as libpq knows it, and the schema that it names."""
    address, mark, query = url.rpartition("?")
    options = query.split("&") if mark else []
    named = [option.removeprefix("schema=") for option in options if option.startswith("schema=")]
    if not named:
        return url, SCHEMA
    if _A_SCHEMA.fullmatch(named[-1]) is None:
        raise ConfigurationError("The store's address: a schema's name is made of a-z, 0-9 and _.")
    others = "&".join(option for option in options if not option.startswith("schema="))
    return (f"{address}?{others}" if others else address), named[-1]


@cache
def _cursors_in(schema: str) -> type[psycopg.AsyncRawCursor[Row]]:
    """Every name in a statement is written with its schema, because behind a pooler no setting of a session
    can be relied on: so the statement itself is changed. What people wrote is among its values."""
    if schema == SCHEMA:
        return psycopg.AsyncRawCursor
    here, there = f"{SCHEMA}.".encode(), f"{schema}.".encode()

    class InSchema(psycopg.AsyncRawCursor[Row]):
        async def execute(self, query: Any, *given: Any, **more: Any) -> Self:  # noqa: ANN401 (psycopg's)
            return await super().execute(query.replace(here, there), *given, **more)

    return InSchema


class Line:
    def __init__(self, address: Address, *, patience: float = PATIENCE) -> None:
        self._address = address
        self._patience = patience
        self._connection: psycopg.AsyncConnection[Row] | None = None
        self._turn = asyncio.Lock()
        self._retry_at = 0.0
        self._last_error: StoreUnavailable | None = None
        self._warned = ""
        self._closed = False

    @property
    def busy(self) -> bool:
        return self._turn.locked()

    async def ask(
        self, text: str, values: Sequence[Any] = (), *, again: bool = False, patience: float | None = None
    ) -> list[Row]:
        """`again`: it changes nothing, so a lost answer is asked for once more on a new connection. Goes on
        to its end when the asker leaves: half a conversation would spoil the connection."""
        return (await self.ask_all([(text, values)], again=again, patience=patience))[0]

    async def ask_all(
        self, statements: Statements, *, again: bool = False, patience: float | None = None
    ) -> list[list[Row]]:
        """In one transaction and one round trip. What was refused for a deadlock is tried again."""
        for tries_left in reversed(range(MOST_TRIES)):
            try:
                return await unhurried(self._ask(statements, again, patience or self._patience))
            except Refused as error:
                if error.code not in DEADLOCKS or not tries_left:
                    raise StoreUnavailable(str(error)) from None
        raise AssertionError("the last try ends it")

    async def attempt(self, text: str, values: Sequence[Any]) -> list[Row]:
        """Once. Raises Refused when it is certain that nothing was changed."""
        return (await unhurried(self._ask([(text, values)], False, self._patience)))[0]

    async def _ask(self, statements: Statements, again: bool, patience: float) -> list[list[Row]]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with self._turn:
            if loop.time() - began > patience:  # those before us have waited in vain
                raise self._address.unavailable(TimeoutError("the server does not answer"))
            try:
                return await self._try(statements, patience)
            except StoreUnavailable:
                if not again or self._closed or loop.time() - began > patience:
                    raise
            return await self._try(statements, patience)

    async def _try(self, statements: Statements, patience: float) -> list[list[Row]]:
        connection = await self._open()
        self._warned = ""
        timer = asyncio.get_running_loop().call_later(patience, cut, connection)
        try:
            if len(statements) == 1:
                rows = [await _perform(connection, *statements[0])]
            else:
                async with connection.pipeline():
                    cursors = [await _begin(connection, *each) for each in statements]
                rows = [await cursor.fetchall() for cursor in cursors]
        except (psycopg.Error, UnicodeError, OSError) as error:
            if connection.closed or connection.broken or not is_verdict(error):
                await self.drop()
                raise self._address.unavailable(error) from None
            code = error.sqlstate or "" if isinstance(error, psycopg.Error) else ""
            if code == READ_ONLY:  # no primary any more: the next connection looks for the one there is
                await self.drop()
            raise Refused(self._address.unavailable(error).detail, code) from None
        except BaseException:
            await self.drop()
            raise
        finally:
            timer.cancel()
        if self._warned:  # committed here, but not where a standby should have it by now
            raise self._address.unavailable(RuntimeError(self._warned))
        return rows

    async def _open(self) -> psycopg.AsyncConnection[Row]:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._connection is not None and not still_there(self._connection):
            await self.drop()
        if self._connection is None:
            loop = asyncio.get_running_loop()
            if self._last_error is not None and loop.time() < self._retry_at:
                raise StoreUnavailable(self._last_error.detail)
            try:
                async with asyncio.timeout(CONNECTING + 1):
                    self._connection = await self._address.connect()
            except (psycopg.Error, OSError, TimeoutError) as error:
                self._retry_at = loop.time() + RETRY_AFTER
                self._last_error = self._address.unavailable(error)
                raise self._last_error from None
            self._connection.add_notice_handler(self._heard)
        return self._connection

    def _heard(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warned = notice.message_primary or "the server warned of something"

    async def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        self._closed = True
        async with self._turn:
            await self.drop()


class Lines:
    """A few of them, for what does not wait in the same queue as everybody's calls."""

    def __init__(self, address: Address, number: int, *, patience: float = PATIENCE) -> None:
        self._lines = [Line(address, patience=patience) for _ in range(number)]
        self._next = 0

    def line(self) -> Line:
        """A free one; if there is none, each in turn."""
        free = next((line for line in self._lines if not line.busy), None)
        if free is None:
            self._next = (self._next + 1) % len(self._lines)
            free = self._lines[self._next]
        return free

    async def ask(
        self, text: str, values: Sequence[Any] = (), *, again: bool = False, patience: float | None = None
    ) -> list[Row]:
        return await self.line().ask(text, values, again=again, patience=patience)

    async def close(self) -> None:
        for line in self._lines:
            await line.close()


async def unhurried(work: Awaitable[T]) -> T:
    """Done to its end even if nobody waits for it any more."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_seen)
        raise


def _seen(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def is_verdict(error: BaseException) -> bool:
    """Whether the server, or the client before it sent anything, has refused the statement itself. Class 57
    and 08 are about the server and the connection: what was under way may have been committed."""
    if isinstance(error, UnicodeError | psycopg.DataError | psycopg.IntegrityError):
        return True
    code = getattr(error, "sqlstate", None)
    return bool(code) and not str(code).startswith(("57P", "08"))


def still_there(connection: psycopg.AsyncConnection[Row]) -> bool:
    """Nothing was asked, so whatever has come is a notice or the end."""
    if connection.closed or connection.broken:
        return False
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    if poll.poll(0):
        try:
            connection.pgconn.consume_input()
        except psycopg.Error:
            return False
        return not poll.poll(0) and not connection.broken
    return True


def cut(connection: psycopg.AsyncConnection[Row]) -> None:
    """Whoever waits on it sees its end at once. Its number is left alone: the loop is watching it."""
    try:
        copy = socket.socket(fileno=os.dup(connection.pgconn.socket))
    except (psycopg.Error, OSError):
        return  # closed already
    with copy:
        try:
            copy.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


async def _begin(
    connection: psycopg.AsyncConnection[Row], text: str, values: Sequence[Any]
) -> psycopg.AsyncCursor[Row]:
    return await connection.execute(text.encode(), values, binary=True)


async def _perform(connection: psycopg.AsyncConnection[Row], text: str, values: Sequence[Any]) -> list[Row]:
    cursor = await _begin(connection, text, values)
    return await cursor.fetchall() if cursor.description else []
