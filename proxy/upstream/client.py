"""Sends a request once, or proves that it did not.

There is no retry in here. A request is serialised by us and written by us, so "not sent" means what it says:
no write was ever called. From the first write on, whatever is not a complete answer is `Lost`.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable

from proxy import faults
from proxy.core.policy import Timeouts
from proxy.core.reachable import Said
from proxy.faults import Point
from proxy.upstream.answer import Head
from proxy.upstream.base import Answered, Hears, NotSent, Outgoing, Result, Sink, UnderWay, WholeSink
from proxy.upstream.connection import Connection
from proxy.upstream.exchanging import ONE_WRITE, exchange, split
from proxy.upstream.reaching import OffLimits, Ways
from proxy.upstream.soon import Origin, Soon

MAY_NOT = "it may not be sent any more: its claim was lost, or its key grew too old, meanwhile"
# A pooled connection older than this is closed even if a caller would take it: servers close at 60 s or more.
KEEP_IDLE = 60.0

# What may go out as a request head. Line breaks inside a value are caught by counting them.
_HEAD = re.compile(
    rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++ [^\x00-\x20\x7f]++ HTTP/1\.1\r\n"
    rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++: [^\r\n\x00]*+\r\n)*+\r\n"
)


def request_head(method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes before the body. ValueError for what would not arrive as it is meant."""
    lines = [b"%b %b HTTP/1.1" % (method.encode("ascii"), target)]
    lines += [b"%b: %b" % pair for pair in headers]
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    if _HEAD.fullmatch(head) is None or head.count(b"\n") != len(lines) + 1:
        raise ValueError("the method, the target or a header holds a byte that may not be sent")
    return head


class HttpUpstream:
    """The client, and its pool of idle connections per origin, the most recently used on top."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        ssl_context: ssl.SSLContext | None = None,
        max_header_bytes: int = 64 * 1024,
        ways: Ways | None = None,
    ) -> None:
        self._clock = clock
        self._ways = ways or Ways()
        self._ssl_context = ssl_context
        self._max_header_bytes = max_header_bytes
        self._heads: dict[bytes, Head] = {}
        self._idle: dict[Origin, list[Connection]] = {}
        self._busy: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    async def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        """Raises ValueError, before any I/O, for a request that cannot be written as it is."""
        head = out.head or request_head(out.method, out.target, out.headers)
        deadline = self._clock() + out.timeouts.total
        origin = (out.scheme, out.host, out.port, out.said)
        connection = self._take_idle(origin, out.max_idle)
        if connection is None:
            try:
                connection = await self._connect(out)
            except _NO_CONNECTION as error:
                return _not_sent(error, out.host, out.port, out.timeouts)
        if self._closed:
            connection.abort()
            return NotSent("semel is shutting down")
        self._busy.add(connection)
        try:
            answer = connection.begin(
                head_only=out.method == "HEAD", timeouts=out.timeouts, deadline=deadline
            )
            first, rest = split(head, out.body)
            faults.reach(Point.BEFORE_FIRST_BYTE)
            if not connection.is_open():
                return NotSent(f"{out.host}:{out.port} closed the connection before anything was sent")
            if not may_send():
                return NotSent(MAY_NOT)
            connection.write(first)
            sent_all = rest is None and isinstance(sink, WholeSink) and not connection.unwritten()
            if sent_all:  # mostly the next that happens is the whole answer
                faults.reach(Point.REQUEST_SENT)
                await connection.changed()
                assert isinstance(sink, WholeSink)
                if answer.complete and sink.wants(answer.headers, answer.pending):
                    sink.take(answer.status, answer.headers, connection.take())
                    connection.end(sent_all=True)
                    return Answered(answer.status)
            return await exchange(connection, answer, out.body, rest, sink, sent_all=sent_all)
        except BaseException:
            connection.reusable = False
            raise
        finally:
            self.is_over(origin, connection)

    def send_soon(
        self, out: Outgoing, sink: WholeSink, may_send: Callable[[], bool], hears: Hears
    ) -> UnderWay | NotSent | None:
        """As `send`, over a connection that is there, with a request that is one write."""
        body = out.body
        if body is not None and (body.on_disk or body.size > ONE_WRITE):
            return None
        head = out.head or request_head(out.method, out.target, out.headers)
        origin = (out.scheme, out.host, out.port, out.said)
        connection = None if out.method == "HEAD" or self._closed else self._take_idle(origin, out.max_idle)
        if connection is None:
            return None
        soon = Soon(self, origin, connection, sink, hears)
        self._busy.add(connection)
        try:
            connection.begin_soon(soon, out.timeouts)
            faults.reach(Point.BEFORE_FIRST_BYTE)
            if not connection.is_open():
                why = f"{out.host}:{out.port} closed the connection before anything was sent"
            elif not may_send():
                why = MAY_NOT
            else:
                soon.wait(connection.write(head if body is None else head + body.whole()))
                return soon
        except BaseException:
            connection.reusable = False
            self.is_over(origin, connection)
            raise
        self.is_over(origin, connection)
        return NotSent(why)

    def is_over(self, origin: Origin, connection: Connection) -> None:
        """An exchange; what becomes of its connection hangs on how it ended."""
        self._busy.discard(connection)
        connection.forget()
        self._put_back(origin, connection)

    async def close(self) -> None:
        """Idle connections are closed, exchanges under way are broken off: drain before you call this."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        leaving = [*self._busy, *(connection for idle in self._idle.values() for connection in idle)]
        self._closed = True
        self._idle.clear()
        for connection in leaving:
            connection.fail("semel is shutting down")
        for connection in leaving:
            await connection.gone()

    # The pool.

    def _take_idle(self, origin: Origin, max_idle: float) -> Connection | None:
        idle = self._idle.get(origin)
        youngest = self._clock() - min(max_idle, KEEP_IDLE)
        while idle and idle[-1].idle_since > youngest:
            connection = idle.pop()
            if connection.quiet():
                return connection
            connection.abort()
        return None

    def _put_back(self, origin: Origin, connection: Connection) -> None:
        if not connection.reusable or not connection.is_open() or self._closed:
            connection.abort()
            return
        self._idle.setdefault(origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(KEEP_IDLE, self._sweep)

    def _sweep(self) -> None:
        oldest = self._clock() - KEEP_IDLE
        kept: dict[Origin, list[Connection]] = {}
        for origin, idle in self._idle.items():
            for connection in idle:
                if connection.is_open() and connection.idle_since > oldest:
                    kept.setdefault(origin, []).append(connection)
                else:
                    connection.abort()
        self._idle = kept
        self._sweeper = asyncio.get_running_loop().call_later(KEEP_IDLE, self._sweep) if kept else None

    # A new connection.

    async def _connect(self, out: Outgoing) -> Connection:
        """DNS, TCP and TLS. Whatever is raised here is raised before a byte of a request was written."""
        connection = Connection(asyncio.get_running_loop(), self._clock, self._max_header_bytes, self._heads)
        try:
            socket = await self._open(out.scheme, out.host, out.port, out.said, out.timeouts, connection)
        except BaseException:
            connection.abort()
            raise
        connection.lies_over(socket)
        return connection

    async def dial(
        self, scheme: str, host: str, port: int, said: Said, timeouts: Timeouts, protocol: asyncio.Protocol
    ) -> NotSent | None:
        """A connection for a protocol of the caller's own; None if it is there. Never pooled, and the
        caller's to close."""
        try:
            await self._open(scheme, host, port, said, timeouts, protocol)
        except _NO_CONNECTION as error:
            return _not_sent(error, host, port, timeouts)
        return None

    async def _open(
        self, scheme: str, host: str, port: int, said: Said, timeouts: Timeouts, protocol: asyncio.Protocol
    ) -> asyncio.Transport:
        """What reads the socket: below TLS where there is TLS, which `protocol` has above it."""
        loop, tls = asyncio.get_running_loop(), scheme == "https"
        async with asyncio.timeout(min(timeouts.connect, timeouts.total)):
            reached = await self._ways.connected(host, port, said)
            socket, _ = await loop.create_connection(
                asyncio.Protocol if tls else lambda: protocol, sock=reached
            )
            if tls:
                try:
                    above = await loop.start_tls(socket, protocol, self._tls(), server_hostname=host)
                except BaseException:
                    socket.abort()
                    raise
                if above is None:
                    raise ConnectionResetError("the connection broke during the TLS handshake")
                protocol.connection_made(above)
        return socket

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
            self._ssl_context.set_alpn_protocols(["http/1.1"])
        return self._ssl_context


# What connecting may raise; UnicodeError for a name that cannot be one.
_NO_CONNECTION = (OSError, UnicodeError, OffLimits)


def _not_sent(error: OSError | UnicodeError | OffLimits, host: str, port: int, timeouts: Timeouts) -> NotSent:
    if isinstance(error, OffLimits):
        return NotSent(str(error), for_good=True)
    return NotSent(_why_no_connection(error, host, port, timeouts))


def _why_no_connection(error: OSError | UnicodeError, host: str, port: int, timeouts: Timeouts) -> str:
    """For people: which host, and what is wrong with it."""
    place = f"{host}:{port}"
    match error:
        case TimeoutError():
            return f"no connection to {place} within {min(timeouts.connect, timeouts.total):g} s"
        case ssl.SSLCertVerificationError():
            return f"the certificate of {place} was not accepted: {error.verify_message}"
        case ssl.SSLError():
            return f"the TLS handshake with {place} failed: {error.reason or error}"
        case socket.gaierror() | UnicodeError():
            return f"the name {host} could not be resolved: {getattr(error, 'strerror', None) or error}"
        case ConnectionRefusedError():
            return f"{place} refused the connection"
        case _:
            return f"no connection to {place}: {error.strerror or str(error) or type(error).__name__}"
