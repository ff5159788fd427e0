"""What MCP clients say, sorted: calls of tools are recorded, everything else passes.

Lifecycle, lists, resources, notifications and the streams that a client opens go by as they are. A message
that cannot be read with one meaning goes nowhere: it might be a call.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from proxy.core.encoding import Undecodable, codings, decode
from proxy.core.headers import Headers
from proxy.core.jsonrpc import (
    CANCELLED,
    INVALID_REQUEST,
    LIST_TOOLS,
    PARSE_ERROR,
    Heard,
    Id,
    Other,
    ToolCall,
    Unclear,
    error,
    hear,
)
from proxy.core.policy import TOOL_METHOD
from proxy.core.retry_evidence import of_request
from proxy.errors import Refusal
from proxy.front.aside import Aside
from proxy.front.connection import Connection
from proxy.front.giving import Giver
from proxy.front.incoming import Asked, enter_run, to_pass
from proxy.front.mcp_batch import Serving, Together
from proxy.front.mcp_memory import Annotations, Listed, Recollections, Server, Session, UnderWay
from proxy.front.naming import Namer
from proxy.front.reply import ReplyWriter, Written
from proxy.front.rpc import Message, endpoint_of
from proxy.front.sending import without_the_body
from proxy.front.tale import Tale
from proxy.front.turns import HttpRequest
from proxy.observe import Observer
from proxy.runs.asking import RunAsking
from proxy.runs.books import RunBooks
from proxy.spool import Spool
from proxy.stream import CutOff
from proxy.upstream.base import Tap

# A stream that a client only listens on may be silent for as long as this, in seconds.
LISTENING = 86400.0
# A longer message is read beside the loop.
READ_INLINE = 64 * 1024
PASSED = "mcp"
_CHARSET = re.compile(rb"""charset\s*=\s*["']?([^"';,\s]*)""", re.IGNORECASE)
_UTF8 = frozenset({b"utf-8", b"utf8", b"us-ascii", b"ascii"})
FORM, LONGEST_NAME = b"application/x-www-form-urlencoded", 256
_FIRST_PAIR = re.compile(rb"[A-Za-z_][A-Za-z0-9_.%-]*=")
GONE_BY = ((b"Semel-Status", b"refused"), (b"Content-Length", b"0"))

CallIt: TypeAlias = Callable[[Asked, ReplyWriter, Tale], Awaitable[Written]]


class McpDesk:
    def __init__(
        self,
        *,
        giver: Giver,
        namer: Namer,
        books: RunBooks,
        runs: RunAsking,
        aside: Aside,
        observer: Observer,
        body_limit: int,
    ) -> None:
        self._giver = giver
        self._namer = namer
        self._books = books
        self._runs = runs
        self._aside = aside
        self._observer = observer
        self._body_limit = body_limit
        self._under_way = UnderWay()
        self._annotations = Annotations()
        self._sessions = Recollections()
        self._endings: set[asyncio.Task[None]] = set()

    async def serve(
        self,
        asked: Asked,
        request: HttpRequest,
        connection: Connection,
        writer: ReplyWriter,
        tale: Tale,
        call_it: CallIt,
    ) -> Written:
        address = asked.address
        endpoint = endpoint_of(address.raw_path, (address.place or asked.upstream).base_path)
        asked = asked._replace(address=address._replace(raw_path=endpoint))
        if is_form(asked.headers, asked.body):
            return await self._pass(asked, (), writer, tale)
        try:
            if asked.method != "POST":
                return await self._unsaid(asked, writer, tale)
            heard = await self._hear(asked)
        except Unclear as unclear:
            return _unclear(unclear, writer, tale)
        others = await self._going_on(asked, heard)
        if not heard.calls:
            return await self._others(asked, heard, others, writer, tale)
        if not heard.is_batch:
            (call,) = heard.calls
            return await self._call(asked, call, call_it, writer, tale)
        tale.own = True  # each part of it is told by itself
        together = Together(request, connection, self._observer, asked.upstream.name)
        return await together.serve(self._parts(asked, heard.calls, others, call_it), writer)

    def _parts(
        self, asked: Asked, calls: tuple[ToolCall, ...], others: tuple[Other, ...], call_it: CallIt
    ) -> Iterator[tuple[Serving, tuple[Id, ...]]]:
        for call in calls:
            yield partial(self._call, asked, call, call_it), (call.id,)
        if others:
            yield partial(self._pass_some, asked, others), _requests(others)

    async def _hear(self, asked: Asked) -> Heard:
        headers, body = asked.headers, asked.body or Spool.of(b"")
        if body.size <= READ_INLINE and not codings(headers):
            return heard_in(headers, body, self._body_limit)
        return await self._aside.run(heard_in, headers, body, self._body_limit)

    # ---- calls ----

    async def _call(
        self, asked: Asked, call: ToolCall, call_it: CallIt, writer: ReplyWriter, tale: Tale
    ) -> Written:
        tale.rpc = call.id
        session = Session.of(asked)
        message = Message(
            call,
            asked.method,
            asked.address.raw_path,
            asked.headers if _is_all(call, asked) else without_the_body(asked.headers),
            Spool.of(call.text),
            self._annotations.of(session.server, call.tool),
            aloft=self._under_way.aloft(session),
        )
        if asked.upstream.stateful:
            entered = await enter_run(asked, self._books)
            book = None if entered is None else entered.book
            message = message._replace(check=self._sessions.guard(session, book, tale))
        named = asked._replace(
            method=TOOL_METHOD,
            headers=message.counted_headers,
            address=asked.address._replace(raw_path=message.tool_path),
            body=message.arguments,
            message=message,
        )
        caller = self._under_way.called(session, call.id)
        written = await call_it(named, writer, tale)
        caller.took(tale.handed)
        safe = tale.incoming is not None and tale.incoming.safe
        if asked.upstream.stateful and not safe and tale.status in ("joined", "replayed"):
            self._sessions.given(tale.call, session)
        return written

    # ---- everything else ----

    async def _unsaid(self, asked: Asked, writer: ReplyWriter, tale: Tale) -> Written:
        """Only what is POSTed is said. A server that does not look at the method would take a message for
        said all the same, so none passes. Raises Unclear."""
        if asked.body is not None and asked.body.size:
            for each in (await self._hear(asked)).messages:
                if isinstance(each, ToolCall) or each.method:
                    raise Unclear(INVALID_REQUEST, "Messages are sent with POST.", each.id)
        if asked.method == "DELETE" and self._under_way.is_busy(Session.of(asked)):
            return self._end_later(asked, writer, tale)
        return await self._pass(asked, (), writer, tale)

    async def _going_on(self, asked: Asked, heard: Heard) -> tuple[Other, ...]:
        """Without cancellations that could stop a call with effects."""
        others = [each for each in heard.messages if isinstance(each, Other)]
        return tuple(
            [each for each in others if each.method != CANCELLED or await self._may_cancel(asked, each)]
        )

    async def _may_cancel(self, asked: Asked, cancelled: Other) -> bool:
        session, id_ = Session.of(asked), cancelled.params.get("requestId")
        if not isinstance(id_, int | str):
            return False
        if self._under_way.cancelled(session, id_):
            return True
        if not self._under_way.knows(session, id_):  # another process may serve it
            entered = await enter_run(asked, self._books)
            if entered is not None:
                tokens = of_request(session.id, id_, self._namer.veiling.secret)
                await self._runs.gave_up(entered.book, tokens)
        return False

    async def _others(
        self, asked: Asked, heard: Heard, others: tuple[Other, ...], writer: ReplyWriter, tale: Tale
    ) -> Written:
        if not others:
            tale.code = 202
            return writer.whole(202, GONE_BY, b"")
        if len(others) == len(heard.messages):
            return await self._pass(asked, others, writer, tale)
        return await self._pass_some(asked, others, writer, tale)

    async def _pass_some(
        self, asked: Asked, others: tuple[Other, ...], writer: ReplyWriter, tale: Tale
    ) -> Written:
        """Of a batch."""
        body = b"[" + b",".join([each.text for each in others]) + b"]"
        headers = without_the_body(asked.headers)
        return await self._pass(asked._replace(headers=headers, body=Spool.of(body)), others, writer, tale)

    def _end_later(self, asked: Asked, writer: ReplyWriter, tale: Tale) -> Written:
        """A session that ends takes its calls with it, and who leaves never stops one with effects: the
        server hears of it when they are over."""
        tale.code = 202

        async def end() -> None:
            await self._under_way.quiet(Session.of(asked))
            with suppress(Refusal, CutOff):
                await self._giver.send_unheard(to_pass(asked, self._namer, False))

        ending = asyncio.create_task(end())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        return writer.whole(202, GONE_BY, b"")

    async def _pass(
        self, asked: Asked, others: tuple[Other, ...], writer: ReplyWriter, tale: Tale
    ) -> Written:
        listens = asked.method == "GET"
        if listens:
            upstream = asked.upstream
            timeouts = replace(upstream.timeouts, idle=max(upstream.timeouts.idle, LISTENING))
            asked = asked._replace(upstream=replace(upstream, timeouts=timeouts))
        entered = await enter_run(asked, self._books)
        if entered is not None:
            await self._books.passed(entered.book, PASSED)
        incoming = tale.incoming = to_pass(asked, self._namer, listens)
        lists = any(each.method == LIST_TOOLS for each in others)
        tap: Tap | None = Listed(self._annotations, Server.of(asked)) if lists else None
        with self._under_way.passed(Session.of(asked), _requests(others)):
            return await self._giver.pass_on(incoming, writer, tale, tap)


def heard_in(headers: Headers, body: Spool, limit: int) -> Heard:
    """Raises Unclear. A server reads what the headers say: another coding, or another alphabet, of the same
    bytes may be another message."""
    for name, value in headers:
        if name.lower() == b"content-type" and any(
            each.lower() not in _UTF8 for each in _CHARSET.findall(value)
        ):
            raise Unclear(PARSE_ERROR, "A message is written in UTF-8, and in nothing else.")
    try:
        return hear(decode(body.whole(), codings(headers), limit) if codings(headers) else body.whole())
    except Undecodable as undecodable:
        raise Unclear(PARSE_ERROR, f"The body cannot be decoded: {undecodable}.") from None


def is_form(headers: Headers, body: Spool | None) -> bool:
    """OAuth's requests are forms. Nobody takes one for a message, whatever they think of its type."""
    kinds = [value.strip().lower() for name, value in headers if name.lower() == b"content-type"]
    if kinds not in ([FORM], [FORM + b";charset=utf-8"], [FORM + b"; charset=utf-8"]) or codings(headers):
        return False
    return body is not None and _FIRST_PAIR.match(body.read(0, LONGEST_NAME)) is not None


def _is_all(call: ToolCall, asked: Asked) -> bool:
    """The body is the call, as it came."""
    return asked.body is not None and asked.body.size == len(call.text) and not codings(asked.headers)


def _requests(others: tuple[Other, ...]) -> tuple[Id, ...]:
    """Those that are to be answered."""
    return tuple(each.id for each in others if each.method and each.id is not None)


def _unclear(unclear: Unclear, writer: ReplyWriter, tale: Tale) -> Written:
    tale.code, tale.problem = 400, "bad-request"
    body = error(unclear.id, unclear.code, f"semel: {unclear} Nothing was sent.")
    headers = (
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"%d" % len(body)),
        (b"Semel-Status", b"refused"),
    )
    return writer.whole(400, headers, body)
