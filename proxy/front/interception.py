"""CONNECT: answered by semel in the host's place, or handed through unread, or refused.

In the host's place means: TLS with a certificate of semel's own authority, then requests as on any other
connection, which know where they were to go and who speaks. What is not TLS is taken for plain HTTP.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from proxy.ca import load_or_make
from proxy.core.policy import Mode, PolicySet, Timeouts
from proxy.core.reachable import Said
from proxy.errors import BadRequest, ConfigurationError, UnknownUpstream, UpstreamUnreachable
from proxy.front.address import Place, host_name, parse_authority
from proxy.front.aside import Aside
from proxy.front.connection import Connection
from proxy.front.door import Door
from proxy.front.forwarded import UNLISTED, Inside, OwnPlaces, proxy_user, unknown_host
from proxy.front.incoming import said_to_semel
from proxy.front.reply import Written
from proxy.front.run_ref import Speaker, agree
from proxy.front.through import through, tunnel_from
from proxy.front.tls import TlsServer
from proxy.front.trust import advice
from proxy.front.tunnel import End
from proxy.front.turns import HttpRequest
from proxy.leaf_certificates import Leaves
from proxy.observe import Observer, Served
from proxy.refusals import not_sent
from proxy.runs.books import RunBooks
from proxy.settings_values import Unknown
from proxy.upstream.base import NotSent

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
# A client that does not trust us tries again and again: what to do about it is told once in a while.
TOLD_AGAIN_AFTER, TOLD_HOSTS = 60.0, 256


class Dialer(Protocol):
    async def dial(
        self, scheme: str, host: str, port: int, said: Said, timeouts: Timeouts, protocol: asyncio.Protocol
    ) -> NotSent | None:
        """Connect, and nothing more; None if that went well."""


class Interception:
    def __init__(
        self,
        *,
        state: Path,
        unknown: Unknown,
        policies: Callable[[], PolicySet],
        door: Door,
        books: RunBooks,
        own: OwnPlaces,
        dialer: Dialer,
        aside: Aside,
        observer: Observer,
    ) -> None:
        self._state = state
        self._unknown = unknown
        self._policies = policies
        self._door = door
        self._books = books
        self._own = own
        self._dialer = dialer
        self._aside = aside
        self._observer = observer
        self._leaves: Leaves | None = None
        self._making = asyncio.Lock()
        self._told: OrderedDict[str, float] = OrderedDict()

    async def connect(self, request: HttpRequest, connection: Connection) -> Written:
        """Returns when the connection is no longer the request's: it has a successor, or has ended."""
        host, port = self._named(request, connection)
        speaker = agree(said_to_semel(request.raw_headers).speaker, proxy_user(request.raw_headers))
        tenant = self._door.for_calls(speaker.token).tenant
        if self._own.are(host, port, connection.reached_at()):
            raise UnknownUpstream("CONNECT names semel itself: call it directly, and put it into NO_PROXY.")
        listed = self._policies().at(host, port)
        if not listed and self._unknown is Unknown.DENY:
            raise unknown_host(host, port)
        if not listed and self._unknown is Unknown.TUNNEL:
            if speaker.run:
                book = await self._books.open(tenant, speaker.run, speaker.attempt)
                await self._books.passed(book, "tunnel")
            return await self._hand_through(host, port, connection)
        return await self._stand_in(host, port, speaker, connection)

    def _named(self, request: HttpRequest, connection: Connection) -> tuple[str, int]:
        if connection.inside is not None:
            raise BadRequest("This came through a CONNECT already: there is none inside of one.")
        if request.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in request.headers:
            raise BadRequest("A CONNECT has no body.")
        return parse_authority(request.raw_path)

    # ---- unread ----

    async def _hand_through(self, host: str, port: int, connection: Connection) -> Written:
        began, upstream = time.monotonic(), End()
        failed = await self._dialer.dial("http", host, port, Said.NOTHING, Timeouts(), upstream)
        if failed is not None:
            raise not_sent(failed)
        tunnel = tunnel_from(connection, upstream)
        told = Served(
            upstream=UNLISTED,
            rule=UNLISTED,
            mode=Mode.PASS.value,
            tool="CONNECT",
            method="CONNECT",
            status="passed",
            code=200,
        )
        try:
            await through(tunnel, connection, ESTABLISHED)
        finally:
            seconds = time.monotonic() - began
            self._observer.served(told._replace(seconds=seconds, size=tunnel.size))
        return Written(200, connection, keep_alive=False, body_length=tunnel.size)

    # ---- in the host's place ----

    async def _stand_in(self, host: str, port: int, speaker: Speaker, connection: Connection) -> Written:
        leaves = self._leaves or await self._open_authority()
        context = leaves.known(host)
        if context is None:
            context = await self._aside.run(leaves.context, host)
        below = connection.transport
        if below is None:
            raise ConnectionResetError("the client has left")
        connection.write(ESTABLISHED)
        tls = TlsServer(below, context, connection.connection_lost)
        behind = connection.hand_over(tls)
        if behind:
            tls.data_received(behind)
        try:
            async with asyncio.timeout(connection.limits.header_timeout):
                secured = await tls.opened
        except (TimeoutError, ssl.SSLError, ConnectionError) as error:
            if tls.begun:
                self._tell_of(host, error, leaves)
            below.close()
            raise ConnectionResetError("no TLS") from error
        if tls.gone:
            raise ConnectionResetError("the client has left")
        successor = connection.succeeded_by(
            Inside(Place("https" if secured else "http", host, port), speaker)
        )
        if secured:
            tls.attach(successor)
        else:
            successor.connection_made(below)
            below.set_protocol(successor)
            successor.data_received(bytes(tls.first))
        return Written(200, connection, keep_alive=False, body_length=0)

    async def _open_authority(self) -> Leaves:
        async with self._making:
            if self._leaves is None:
                try:
                    self._leaves = Leaves(await self._aside.run(load_or_make, self._state), spelt)
                except ConfigurationError as error:
                    self._observer.noted("authority-unusable", error=str(error))
                    raise UpstreamUnreachable(f"Nothing was sent. {error}") from error
            return self._leaves

    def _tell_of(self, host: str, error: BaseException, leaves: Leaves) -> None:
        now = time.monotonic()
        if now - self._told.get(host, -TOLD_AGAIN_AFTER) < TOLD_AGAIN_AFTER:
            return
        self._told[host] = now
        self._told.move_to_end(host)
        if len(self._told) > TOLD_HOSTS:
            self._told.popitem(last=False)
        reason = error.reason if isinstance(error, ssl.SSLError) else str(error)
        if isinstance(error, TimeoutError):
            reason = "the handshake took too long"
        self._observer.noted(
            "tls-not-agreed",
            host=host,
            error=reason or type(error).__name__,
            advice=advice(host, leaves.authority.path),
            ca=str(leaves.authority.path),
        )


def spelt(name: str) -> str | None:
    """The one spelling of a name that a client asks for inside TLS."""
    try:
        return host_name(name)
    except BadRequest:
        return None
