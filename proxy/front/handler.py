"""One request, top to bottom: address, body, rule, name; ask the exchange; write what it says; tell of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from proxy.admin.api import Reply
from proxy.answers import Produced
from proxy.asking import Delivery, Labels, Live, Replayed, Unrecorded
from proxy.core.encoding import codings
from proxy.core.headers import Headers
from proxy.core.policy import PolicySet
from proxy.core.redaction import Veiling
from proxy.errors import Refusal
from proxy.exchange import Exchange
from proxy.front import status_headers as own
from proxy.front.address import OwnAddress, UpstreamAddress, parse_target
from proxy.front.aside import Aside
from proxy.front.connection import Connection
from proxy.front.door import Door
from proxy.front.forward import ForwardProxy
from proxy.front.in_run import enter
from proxy.front.incoming import (
    Incoming,
    RequestLimits,
    check_asker,
    check_protocol,
    find_upstream,
    read_body,
    said_to_semel,
    understand,
)
from proxy.front.naming import Namer
from proxy.front.reply import ReplyWriter, Written
from proxy.front.run_ref import agree
from proxy.front.suited import suited
from proxy.front.turns import HttpRequest
from proxy.front.upgrade import wished_protocol
from proxy.observe import Observer, Served
from proxy.problem import problem_of, render
from proxy.runs.asking import RunAsking
from proxy.runs.books import RunBooks
from proxy.runs.claiming import RunAsk
from proxy.stream import CutOff, Phase

OwnPages: TypeAlias = Callable[[HttpRequest, str, str], Awaitable[Reply]]  # path, token


@dataclass(slots=True)
class _Tale:
    """What will be told of this request, filled in as it becomes known."""

    incoming: Incoming | None = None
    status: str = "refused"
    code: int = 0
    call: str = ""
    problem: str = ""
    own: bool = False
    cost_usd: float | None = None
    forward: bool = False  # asked of the forward proxy
    delivered: bool = False


class Handler:
    def __init__(
        self,
        *,
        exchange: Exchange,
        runs: RunAsking,
        books: RunBooks,
        policies: Callable[[], PolicySet],
        veiling: Veiling,
        observer: Observer,
        limits: RequestLimits,
        own_pages: OwnPages,
        aside: Aside,
        door: Door,
        forward: ForwardProxy,
    ) -> None:
        self._exchange = exchange
        self._runs = runs
        self._books = books
        self._policies = policies
        self._namer = Namer(veiling=veiling, body_limit=limits.body, aside=aside)
        self._suited = partial(suited, aside=aside, directory=limits.spool_directory)
        self._door = door
        self._forward = forward
        self._observer = observer
        self._limits = limits
        self._own_pages = own_pages

    async def __call__(self, request: HttpRequest) -> Written:
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.request_started()
        began, tale, writer = time.monotonic(), _Tale(), ReplyWriter(request, connection)
        try:
            try:
                written = await self._serve(request, connection, writer, tale)
            except Exception as error:
                written = self._failed(error, connection, writer, tale)
            tale.delivered = True
            return written
        finally:
            connection.request_ended(request.content)
            self._tell(request, writer, tale, time.monotonic() - began)

    async def _serve(
        self, request: HttpRequest, connection: Connection, writer: ReplyWriter, tale: _Tale
    ) -> Written:
        connection.check_head(request)
        check_protocol(request)
        if request.method == "CONNECT":
            return await self._connect(request, connection, writer, tale)
        if connection.inside is None and request.raw_path[:1] == "/":
            address = parse_target(request.raw_path)
        else:
            address = self._forward.address(request, connection)
            tale.forward = isinstance(address, UpstreamAddress) and address.place is not None
        told = said_to_semel(request.raw_headers)
        if isinstance(address, OwnAddress):
            tale.own = True
            answer = Produced(*await self._own_pages(request, address.path, told.speaker.token))
            return await _write(writer, answer, answer.headers)
        speaker = agree(told.speaker, address.speaker)
        visitor = self._door.for_calls(speaker.token)
        policies = self._policies()
        if address.place is None:
            upstream = find_upstream(policies, address)
        else:
            address, upstream = self._forward.reach(policies, address)
        check_asker(upstream, visitor, request.raw_headers, forward=tale.forward)
        body = await read_body(request, connection, self._limits)
        writer.request_is_read()
        protocol = (
            ""
            if request.plain or "Upgrade" not in request.headers
            else wished_protocol(request, connection, writer)
        )
        entered = await enter(self._books, visitor.tenant, speaker, upstream) if speaker.run else None
        incoming = tale.incoming = await understand(
            request, address, policies, upstream, body, told, visitor.tenant, self._namer, entered
        )
        # A call with effects is recorded, whatever else it offers, and what a budget limits is counted.
        if protocol and incoming.safe and incoming.match.rule.budget is None:
            if entered is not None:
                await self._books.passed(entered.book, "upgrade")
            return await self._switch(protocol, incoming, connection, writer, tale)
        if incoming.ask is None:
            if entered is not None:
                await self._books.passed(entered.book, f"rule {incoming.match.rule.name}")
            return await self._pass(incoming, writer, tale)
        if isinstance(incoming.ask, RunAsk):
            reply = await self._runs.ask(incoming.ask)
        else:
            tale.call = incoming.ask.identity.id
            reply = await self._exchange.ask(incoming.ask)
        if isinstance(reply, Unrecorded):
            tale.call = ""
            return await self._pass(incoming, writer, tale)
        if reply.delivery is None:
            return await self._give(reply, request, incoming, writer, tale)
        return await self._hand_over(reply.delivery, reply, request, incoming, writer, tale)

    async def _give(
        self,
        reply: Replayed | Live,
        request: HttpRequest,
        incoming: Incoming,
        writer: ReplyWriter,
        tale: _Tale,
    ) -> Written:
        if isinstance(reply, Replayed):
            return await self._replay(reply, request, writer, tale)
        return await self._live(reply, request, incoming, writer, tale)

    async def _hand_over(
        self,
        delivery: Delivery,
        reply: Replayed | Live,
        request: HttpRequest,
        incoming: Incoming,
        writer: ReplyWriter,
        tale: _Tale,
    ) -> Written:
        """In a run: whether the caller took it is part of the record."""

        def ends_by_itself() -> bool:
            """Who has seen the last event of a stream leaves when it likes, without taking the rest. Whether
            it was seen cannot be known, and a call with effects is rather given again than sent again."""
            return writer.known_stream and incoming.safe

        try:
            written = await self._give(reply, request, incoming, writer, tale)
        except BaseException:
            if ends_by_itself() and writer.size == _whole_size(reply):
                delivery.complete()
            else:
                delivery.abandoned()
            raise
        delivery.complete()
        # A reset behind the last byte says that it was not read.
        if not ends_by_itself():
            connection = request.protocol
            assert isinstance(connection, Connection)
            connection.handed_over = delivery
        return written

    # ---- what is no call ----

    async def _connect(
        self, request: HttpRequest, connection: Connection, writer: ReplyWriter, tale: _Tale
    ) -> Written:
        """What comes out of it are requests of their own, or bytes that semel does not read."""
        tale.forward = tale.own = True  # what comes of it is told where it happens, a refusal here
        writer.is_last()
        try:
            return await self._forward.connect(request, connection)
        except Refusal:
            tale.own = False
            raise

    async def _switch(
        self, protocol: str, incoming: Incoming, connection: Connection, writer: ReplyWriter, tale: _Tale
    ) -> Written:
        tale.status = "passed"
        self._observer.noted("upgrade", upstream=incoming.upstream.name, protocol=protocol)
        tale.code, written = await self._forward.switch(protocol, incoming, connection, writer)
        return written

    # ---- the four kinds of answer ----

    async def _pass(self, incoming: Incoming, writer: ReplyWriter, tale: _Tale) -> Written:
        labels = Labels(incoming.upstream.name, incoming.match.rule.name)
        live = await self._exchange.forward(incoming.sending.outgoing(), labels, safe=incoming.safe)
        try:
            capture = live.flight.capture
            tale.status, tale.code = "passed", capture.status
            headers = own.passed(capture.headers)
            return await writer.stream(
                capture.status, headers, live.reader.parts(), head_first=not capture.is_over
            )
        finally:
            live.leave()

    async def _live(
        self, live: Live, request: HttpRequest, incoming: Incoming, writer: ReplyWriter, tale: _Tale
    ) -> Written:
        try:
            capture, in_run = live.flight.capture, live.delivery is not None
            if live.flight.identity is not None:
                tale.call = live.flight.identity.id
            tale.status, tale.code = _how(live), capture.status
            make_headers = partial(own.live, how=tale.status, in_run=in_run, flight=live.flight)
            stored = own.is_stored(capture, incoming)
            whole = live.reader.whole()
            if live.joined:
                # The coding was negotiated by another caller; this one may need the plain form.
                body = whole if whole is not None else live.reader.parts()
                answer = await self._suited(Produced(capture.status, capture.headers, body), request)
                return await _write(writer, answer, make_headers(answer.headers, tale.call, stored=stored))
            headers = make_headers(capture.headers, tale.call, stored=stored)
            if whole is not None:
                return writer.whole(capture.status, headers, whole)
            return await writer.stream(capture.status, headers, live.reader.parts())
        finally:
            tale.cost_usd = live.flight.cost_usd
            live.leave()

    async def _replay(
        self, replayed: Replayed, request: HttpRequest, writer: ReplyWriter, tale: _Tale
    ) -> Written:
        answer = replayed.answer
        if codings(answer.headers):
            answer = await self._suited(answer, request)
        tale.status, tale.code, tale.call = "replayed", answer.status, replayed.call.id
        tale.cost_usd = replayed.call.cost_usd
        headers = own.replayed(answer.headers, replayed.call, now=time.time())
        return await _write(writer, answer, headers)

    def _failed(self, error: Exception, connection: Connection, writer: ReplyWriter, tale: _Tale) -> Written:
        """While nothing was written a refusal is told. After that the caller may only see a break: whatever
        we wrote would be taken for a part of the answer."""
        if isinstance(error, Refusal) and not writer.begun:
            return self._refuse(error, writer, tale)
        if not isinstance(error, CutOff) and not writer.begun:
            raise error
        if not isinstance(error, CutOff | ConnectionError):
            self._observer.noted("reply-broken", call=tale.call, error=f"{type(error).__name__}: {error}")
        connection.abort()
        raise ConnectionResetError("cut off") from error

    def _refuse(self, refusal: Refusal, writer: ReplyWriter, tale: _Tale) -> Written:
        status, headers, body = render(refusal, forward=tale.forward)
        tale.status, tale.code, tale.problem = "refused", status, problem_of(refusal).name
        return writer.whole(status, headers, body)

    def refused_before_request(self, refusal: Refusal) -> None:
        """For what never became a request: malformed, too slow, too large a head."""
        problem = problem_of(refusal)
        self._observer.served(Served(status="refused", code=problem.status, problem=problem.name))

    def _tell(self, request: HttpRequest, writer: ReplyWriter, tale: _Tale, seconds: float) -> None:
        if tale.own:
            return
        incoming = tale.incoming
        self._observer.served(
            Served(
                upstream=incoming.upstream.name if incoming else "",
                rule=incoming.match.rule.name if incoming else "",
                mode=incoming.match.rule.mode.value if incoming else "",
                tool=incoming.sending.tool if incoming else "",
                safe=incoming.safe if incoming else True,
                method=request.method,
                status=tale.status,
                code=tale.code,
                call=tale.call,
                problem=tale.problem,
                seconds=seconds,
                size=writer.size,
                delivered=tale.delivered,
                cost_usd=tale.cost_usd or 0.0,
            )
        )


def _whole_size(reply: Replayed | Live) -> int | None:
    """None: it is not known yet."""
    if isinstance(reply, Replayed):
        return None if reply.call.answer is None else reply.call.answer.size
    capture = reply.flight.capture
    return capture.received if capture.phase is Phase.SEALED else None


def _how(live: Live) -> str:
    if live.joined:
        return "joined"
    return "replayed" if live.flight.from_record else "executed"


async def _write(writer: ReplyWriter, answer: Produced, headers: Headers) -> Written:
    if isinstance(answer.body, bytes):
        return writer.whole(answer.status, headers, answer.body)
    return await writer.stream(answer.status, headers, answer.body)
