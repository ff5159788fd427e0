"""One connection to a Redis server: commands go out in order, replies come back in order.

What is asked in one turn of the event loop goes out in one write, so that one fsync of the server serves it
all. Nothing is ever sent a second time. A reply that does not come in time ends the connection, and with it
everything that waits on it: an answer that comes later would be taken for another's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import hiredis

from proxy.errors import ConfigurationError

Part: TypeAlias = "bytes | str | int | float"
Reply: TypeAlias = Any  # what hiredis makes of it: bytes, int, None, lists of these, ReplyError
_NOTHING = object()


class Broken(Exception):
    """The connection is gone. What was asked on it may have been done or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server is and who we are to it. The password is never shown."""

    host: str
    port: int
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    database: int = 0
    tls: bool = False
    verify: bool = True
    prefix: str = "semel"
    durability: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def read_url(url: str) -> Address:
    """redis[s]://[[user]:password@]host[:port][/database][?prefix=NAME&verify=none&durability=best-effort]"""
    try:
        parts = urlsplit(url)
        port = parts.port or 6379
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        database = int(parts.path.strip("/") or 0)
    except ValueError:
        raise ConfigurationError(
            "the store's URL cannot be read; it has the form redis://user:password@host:6379/0"
        ) from None
    prefix, verify = options.pop("prefix", "semel"), options.pop("verify", "full")
    durability = options.pop("durability", "")
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise ConfigurationError("the store's URL has the form redis://host:6379/0, or rediss:// with TLS")
    if options or verify not in ("full", "none"):
        wrong = ", ".join(options) or "verify"
        raise ConfigurationError(f"the store's URL: {wrong}: known are prefix, verify, durability")
    if not prefix or set(prefix) & set("{} "):
        raise ConfigurationError("the store's URL: a prefix has no braces and no spaces")
    return Address(
        host=parts.hostname,
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=database,
        tls=parts.scheme == "rediss",
        verify=verify == "full",
        prefix=prefix,
        durability=durability,
    )


class Wire(asyncio.Protocol):
    """`on_push` hears every reply of a connection that subscribes; without it each goes to who asked."""

    def __init__(self, patience: float, on_push: Callable[[Reply], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._waiting: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._patience = patience
        self._on_push = on_push
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.why = ""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.lost.done()

    def ask(self, *command: Part) -> asyncio.Future[Reply]:
        """Goes out with everything else of this turn. Who leaves does not stop it."""
        reply: asyncio.Future[Reply] = self._loop.create_future()
        if not self.is_open:
            reply.set_exception(Broken(self.why or "not connected"))
            return reply
        self._write(command)
        self._waiting.append((reply, self._loop.time() + self._patience))
        if self._timer is None:
            self._timer = self._loop.call_later(self._patience, self._look_at_the_clock)
        return reply

    def tell(self, *command: Part) -> None:
        """For connections that subscribe: what comes back is a push."""
        if self.is_open:
            self._write(command)

    def _write(self, command: tuple[Part, ...]) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(hiredis.pack_command(command))  # type: ignore[arg-type]  # its stub means one part

    def _flush(self) -> None:
        out, self._out = self._out, []
        # A connection that was cut is told of soon; who waits hears of it then.
        if self._transport is not None and out and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def _look_at_the_clock(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        left = self._waiting[0][1] - self._loop.time()
        if left <= 0:
            self.end(f"no answer within {self._patience:g} s")
        else:
            self._timer = self._loop.call_later(left, self._look_at_the_clock)

    def end(self, why: str) -> None:
        """At once: what waits has failed, and what the kernel still holds is thrown away."""
        self.why = self.why or why
        if self._transport is not None:
            self._transport.abort()
        self._fail()

    def _fail(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.lost.done():
            self.lost.set_result(None)
        waiting, self._waiting = self._waiting, deque()
        for reply, _ in waiting:
            if not reply.done():
                reply.set_exception(Broken(self.why))
                reply.exception()  # perhaps nobody waits any more

    # --- asyncio.Protocol ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by what it does

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _NOTHING:
                self._hear(reply)
        except (hiredis.ProtocolError, IndexError):
            self.end("the server speaks no Redis protocol")

    def _hear(self, reply: Reply) -> None:
        if self._on_push is not None:
            self._on_push(reply)
            return
        waiting, _ = self._waiting.popleft()
        if not waiting.done():
            waiting.set_result(reply)

    def eof_received(self) -> bool:
        """The server has said its last word, so nothing that is asked can be answered any more."""
        self.end("the server closed the connection")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.why = self.why or (f"the connection broke: {type(error).__name__}" if error else "closed")
        self._fail()


async def connect(address: Address, patience: float, on_push: Callable[[Reply], None] | None = None) -> Wire:
    """A connection that has said who it is. Broken if that fails or takes too long."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(patience):
            _, wire = await loop.create_connection(
                lambda: Wire(patience, on_push), address.host, address.port, ssl=_context(address)
            )
    except TimeoutError:
        raise Broken(f"{address} did not accept a connection within {patience:g} s") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise Broken(f"{address} cannot be reached: {reason}") from None
    return wire


def _context(address: Address) -> ssl.SSLContext | None:
    if not address.tls:
        return None
    context = ssl.create_default_context()
    if not address.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def introduction(address: Address) -> list[tuple[Part, ...]]:
    """The first commands on every connection."""
    told: list[tuple[Part, ...]] = []
    if address.password:
        told.append(("AUTH", *([address.user] if address.user else []), address.password))
    if address.database:
        told.append(("SELECT", address.database))
    return told
