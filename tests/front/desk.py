"""The MCP desk without a network: what it would call, pass on, and say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from proxy.core.clauses import Wire
from proxy.core.headers import Headers
from proxy.core.policy import PolicySet, Upstream
from proxy.core.redaction import Veiling
from proxy.front.address import UpstreamAddress
from proxy.front.aside import Aside
from proxy.front.connection import Connection
from proxy.front.incoming import NOTHING_TOLD, Asked, Incoming
from proxy.front.mcp import McpDesk
from proxy.front.naming import Namer
from proxy.front.reply import ReplyWriter, Written
from proxy.front.run_ref import NOBODY
from proxy.front.tale import Tale
from proxy.front.turns import HttpRequest
from proxy.spool import Spool
from proxy.upstream.base import Outgoing, Tap
from tests.exchange.stage import Notebook

SHOP = Upstream(name="shop", scheme="http", host="shop.example", port=80, base_path="/mcp", protocol=Wire.MCP)
PLAIN: Headers = ((b"Host", b"semel"), (b"Content-Type", b"application/json"))


class Said(NamedTuple):
    status: int
    headers: Headers
    body: bytes


EMPTY = Said(200, ((b"Content-Type", b"application/json"),), b"{}")


@dataclass
class Page:
    """Where a reply would be written."""

    said: list[Said] = field(default_factory=list)
    deliveries: list[Any] = field(default_factory=list)

    def whole(self, status: int, headers: Headers, body: bytes) -> Written:
        self.said.append(Said(status, headers, body))
        return cast("Written", None)

    async def stream(
        self, status: int, headers: Headers, parts: AsyncIterator[bytes], *, head_first: bool = False
    ) -> Written:
        return self.whole(status, headers, b"".join([part async for part in parts]))

    def handed_over(self, delivery: Any) -> None:
        self.deliveries.append(delivery)


class Request(NamedTuple):
    method: str = "POST"
    version: tuple[int, int] = (1, 1)
    keep_alive: bool = True
    body_exists: bool = False


@dataclass
class Desk:
    """`answer`: what every call and everything passed on is answered with."""

    answer: Said = EMPTY
    upstream: Upstream = SHOP
    called: list[Asked] = field(default_factory=list)
    passed: list[Outgoing] = field(default_factory=list)
    taps: list[Tap | None] = field(default_factory=list)
    tales: list[Tale] = field(default_factory=list)
    notes: Notebook = field(default_factory=Notebook)

    def __post_init__(self) -> None:
        self.aside = Aside()
        namer = Namer(veiling=Veiling(b"s" * 32, encrypted=False), body_limit=100_000, aside=self.aside)
        self.desk = McpDesk(
            giver=cast("Any", self),
            namer=namer,
            books=cast("Any", None),
            runs=cast("Any", None),
            aside=self.aside,
            observer=self.notes,
            body_limit=100_000,
        )

    async def pass_on(self, incoming: Incoming, writer: ReplyWriter, tale: Tale, tap: Tap | None) -> Written:
        self.passed.append(incoming.sending.outgoing())
        self.taps.append(tap)
        return writer.whole(*self.answer)

    async def call_it(self, named: Asked, writer: ReplyWriter, tale: Tale) -> Written:
        self.called.append(named)
        self.tales.append(tale)
        tale.status = "executed"
        return writer.whole(*self.answer)

    async def post(
        self,
        body: bytes,
        headers: Headers = (),
        *,
        path: str = "/",
        method: str = "POST",
        typed: bool = True,
    ) -> tuple[Said, Tale]:
        page, tale = Page(), Tale()
        length = () if method != "POST" else ((b"Content-Length", b"%d" % len(body)),)
        asked = Asked(
            method,
            (*(PLAIN if typed else PLAIN[:1]), *headers, *length),
            UpstreamAddress("shop", path, None),
            PolicySet({"shop": self.upstream}),
            self.upstream,
            Spool.of(body) if method == "POST" else None,
            NOTHING_TOLD,
            NOBODY,
            "default",
        )
        await self.desk.serve(
            asked,
            cast("HttpRequest", Request()),
            cast("Connection", None),
            cast("ReplyWriter", page),
            tale,
            self.call_it,
        )
        (said,) = page.said
        return said, tale

    def close(self) -> None:
        self.aside.close()
