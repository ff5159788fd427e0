"""One request, top to bottom: address, body, rule, name; ask the exchange; write what it says; tell of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from proxy.admin.api import Reply
from proxy.answers import Produced
from proxy.asking import Ask, Labels, Live, Replayed, Unrecorded, unheard
from proxy.core.clauses import Wire
from proxy.core.policy import PolicySet
from proxy.core.redaction import Veiling
from proxy.errors import InternalError, Refusal
from proxy.exchange import Exchange
from proxy.flying import Flights
from proxy.front import status_headers as own
from proxy.front.address import OwnAddress, ToolAddress, UpstreamAddress, parse_target
from proxy.front.aside import Aside
from proxy.front.connection import Connection
from proxy.front.door import Door
from proxy.front.express import Express
from proxy.front.forward import ForwardProxy
from proxy.front.giving import Giver, write
from proxy.front.incoming import (
    Asked,
    Incoming,
    RequestLimits,
    check_asker,
    check_protocol,
    enter_run,
    find_upstream,
    looked_on,
    read_body,
    said_to_semel,
    to_name,
    understand,
)
from proxy.front.mcp import McpDesk
from proxy.front.naming import Namer
from proxy.front.plans import Boarded, Plan, Plans
from proxy.front.recall import Recall
from proxy.front.reply import ReplyWriter, Written
from proxy.front.run_ref import agree
from proxy.front.sending import WARM
from proxy.front.tale import Tale
from proxy.front.tools import HandedOut, ToolDesk, begun, check_caller
from proxy.front.turns import HttpRequest
from proxy.front.upgrade import wished_protocol
from proxy.observe import Observer, Served
from proxy.problem import PROBLEMS, problem_of, render, render_rpc
from proxy.runs.asking import RunAsking
from proxy.runs.books import RunBooks
from proxy.runs.claiming import RunAsk
from proxy.shadow.judging import Named, Shadow
from proxy.stream import CutOff

OwnPages: TypeAlias = Callable[[HttpRequest, str, str], Awaitable[Reply]]  # path, token


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
        shadow: Shadow,
        tools: ToolDesk,
        flights: Flights,
        recall: Recall | None = None,
    ) -> None:
        self._recall = recall
        self._exchange = exchange
        self._runs = runs
        self._books = books
        self._policies = policies
        self._namer = Namer(veiling=veiling, body_limit=limits.body, aside=aside)
        self._plans = Plans(
            policies=policies, door=door, namer=self._namer, limits=limits, capture_of=flights.capture_of
        )
        self.express = Express(policies=policies, flights=flights, serve=self, observer=observer)
        self._giver = Giver(exchange=exchange, tools=tools, aside=aside, limits=limits)
        self._mcp = McpDesk(
            giver=self._giver,
            namer=self._namer,
            books=books,
            runs=runs,
            aside=aside,
            observer=observer,
            body_limit=limits.body,
        )
        self._door = door
        self._forward = forward
        self._shadow = shadow
        self._tools = tools
        self._observer = observer
        self._limits = limits
        self._own_pages = own_pages

    async def __call__(self, request: HttpRequest, boarded: Boarded | None = None) -> Written:
        """`boarded`: it is on its way already."""
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.request_started()
        began = time.monotonic() if boarded is None else boarded.began
        tale, writer = Tale(), ReplyWriter(request, connection)
        try:
            try:
                plan = self._plans.of(request, connection) if boarded is None else boarded.plan
                if plan is None:
                    written = await self._serve(request, connection, writer, tale)
                else:
                    written = await self._serve_by(plan, request, writer, tale, boarded)
            except Exception as error:
                written = self._failed(error, connection, writer, tale)
            tale.delivered = True
            return written
        finally:
            connection.request_ended(request.content)
            if not tale.own:
                self._observer.served(tale.served(request.method, writer.size, time.monotonic() - began))
            tale.incoming = None  # it leads back to its tale, and what is in a circle is freed late

    async def _serve_by(
        self, plan: Plan, request: HttpRequest, writer: ReplyWriter, tale: Tale, boarded: Boarded | None
    ) -> Written:
        """As `_serve`, where all but the body is known."""
        writer.request_is_read()
        tale.upstream = plan.upstream.name
        incoming = tale.incoming = plan.incoming(request.whole, tale.boards)
        tale.labels = plan.labels
        assert isinstance(incoming.ask, Ask)
        tale.call = incoming.ask.identity.id
        if boarded is None:
            reply = await self._exchange.ask(incoming.ask)
        else:
            tale.boards(boarded.live)
            reply = await self._exchange.ask(incoming.ask, boarded.live, boarded.began)
        assert not isinstance(reply, Unrecorded)  # only a safe call goes out without a record
        if isinstance(reply, Live) and reply.whole is not None:
            return self._giver.at_once(reply, reply.whole, writer, tale)
        return await self._give(reply, request, incoming, plan.policies, writer, tale)

    async def _serve(
        self, request: HttpRequest, connection: Connection, writer: ReplyWriter, tale: Tale
    ) -> Written:
        connection.check_head(request)
        check_protocol(request, writer)
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
            return await write(writer, answer, answer.headers)
        speaker = agree(told.speaker, address.speaker)
        visitor = self._door.for_calls(speaker.token)
        policies = self._policies()
        if isinstance(address, ToolAddress):
            check_caller(request.method, request.raw_headers, visitor)
            body = await read_body(request, connection, self._limits)
            writer.request_is_read()
            if address.report:
                tale.own = True
                return writer.whole(*await self._tools.report(address, request.raw_headers, body, visitor))
            tale.upstream = policies.tools.name
            asked = begun(address, request.raw_headers, policies, body, told, speaker, visitor)
            return await self._call(asked, "", request, connection, writer, tale)
        if address.place is None:
            upstream = find_upstream(policies, address)
        else:
            address, upstream = self._forward.reach(policies, address)
        tale.upstream = upstream.name
        check_asker(upstream, visitor, request.raw_headers, forward=tale.forward)
        body = await read_body(request, connection, self._limits)
        writer.request_is_read()
        upgrades = not request.plain and "Upgrade" in request.headers
        protocol = wished_protocol(request, connection, writer) if upgrades else ""
        method, headers = request.method, request.raw_headers
        asked = Asked(method, headers, address, policies, upstream, body, told, speaker, visitor.tenant)
        if upstream.protocol is Wire.MCP:

            async def call_it(named: Asked, into: ReplyWriter, told_of: Tale) -> Written:
                return await self._call(named, "", request, connection, into, told_of)

            return await self._mcp.serve(asked, request, connection, writer, tale, call_it)
        return await self._call(asked, protocol, request, connection, writer, tale)

    async def _call(
        self,
        asked: Asked,
        protocol: str,
        request: HttpRequest,
        connection: Connection,
        writer: ReplyWriter,
        tale: Tale,
    ) -> Written:
        """`protocol`: what the client would rather switch to."""
        shadowed = await self._namer.shadow(to_name(asked)) if asked.upstream.shadows else None
        if shadowed is not None:
            incoming = tale.incoming = looked_on(asked, shadowed, self._namer)
            if protocol and incoming.safe:
                self._shadow.passed(incoming.served())
                return await self._switch(protocol, incoming, connection, writer, tale)
            return await self._look_on(asked, incoming, request, writer, tale)
        entered = await enter_run(asked, self._books)
        errand = asked.errand
        boards = tale.boards if errand is None else unheard  # a tool is executed when it is handed out
        incoming = tale.incoming = await understand(asked, self._namer, entered, boards)
        incoming.refuse_if_denied()
        # A call with effects is recorded, whatever else it offers, and what a budget limits is counted.
        if protocol and incoming.safe and incoming.match.rule.budget is None:
            if entered is not None:
                await self._books.passed(entered.book, "upgrade")
            return await self._switch(protocol, incoming, connection, writer, tale)
        if incoming.ask is None:
            if entered is not None:
                await self._books.passed(entered.book, f"rule {incoming.match.rule.name}")
            return await self._giver.pass_on(incoming, writer, tale)
        if isinstance(incoming.ask, RunAsk):
            asking = self._runs.ask(incoming.ask)
        else:
            tale.call = incoming.ask.identity.id
            asking = self._exchange.ask(incoming.ask)
        reply = await asking if errand is None else await self._tools.ask(asking, errand, connection)
        if isinstance(reply, Unrecorded):
            tale.call = ""
            return await self._giver.pass_on(incoming, writer, tale)
        if isinstance(reply, HandedOut):
            return self._giver.hand_out(reply, writer, tale)
        if reply.delivery is not None:
            return await self._giver.hand_over(reply.delivery, reply, request, incoming, writer, tale)
        return await self._give(reply, request, incoming, asked.policies, writer, tale)

    async def _give(
        self,
        reply: Replayed | Live,
        request: HttpRequest,
        incoming: Incoming,
        policies: PolicySet,
        writer: ReplyWriter,
        tale: Tale,
    ) -> Written:
        written = await self._giver.give(reply, request, incoming, writer, tale)
        recall = self._recall if isinstance(reply, Replayed) else None
        if recall is not None and _is_alike_each_time(incoming, request):
            assert isinstance(reply, Replayed)
            told = tale.served(request.method, writer.size, 0.0)._replace(delivered=True)
            recall.learn(request.raw, reply, told, policies=policies, rule=incoming.match.rule)
        return written

    # ---- what is no call ----

    async def _connect(
        self, request: HttpRequest, connection: Connection, writer: ReplyWriter, tale: Tale
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
        self, protocol: str, incoming: Incoming, connection: Connection, writer: ReplyWriter, tale: Tale
    ) -> Written:
        tale.status = "passed"
        self._observer.noted("upgrade", upstream=incoming.upstream.name, protocol=protocol)
        tale.code, written = await self._forward.switch(protocol, incoming, connection, writer)
        return written

    # ---- shadow ----

    async def _look_on(
        self, asked: Asked, incoming: Incoming, request: HttpRequest, writer: ReplyWriter, tale: Tale
    ) -> Written:
        """Forwarded as if nobody stood between; what would have become of it is judged beside."""
        outgoing = incoming.sending.outgoing()._replace(max_idle=WARM)  # what breaks is not sent again

        async def name(books: RunBooks) -> Named:
            named = await understand(asked, self._namer, await enter_run(asked, books))
            named.refuse_if_denied()
            return Named(named.served(), named.ask, named.sending)

        beside = self._shadow.begin(incoming.served(), name, asked.body)
        labels = Labels(incoming.upstream.name, incoming.match.rule.name)
        tale.status = "passed"
        live = await self._exchange.forward(outgoing, labels, safe=incoming.safe, tap=beside.tape)
        if asked.speaker.run:
            return await self._giver.hand_over(beside.taken, live, request, incoming, writer, tale)
        return await self._giver.hand_on(live, writer, tale, own.looked_on)

    def _failed(self, error: Exception, connection: Connection, writer: ReplyWriter, tale: Tale) -> Written:
        """While nothing was written a refusal is told. After that the caller may only see a break: whatever
        we wrote would be taken for a part of the answer."""
        if isinstance(error, Refusal) and not writer.begun:
            return self._refuse(error, writer, tale)
        if not isinstance(error, CutOff) and not writer.begun:
            if not isinstance(error, ConnectionError):
                self._tell_defect(tale)
            raise error
        if not isinstance(error, CutOff | ConnectionError):
            self._observer.noted("reply-broken", call=tale.call, error=f"{type(error).__name__}: {error}")
        connection.abort()
        raise ConnectionResetError("cut off") from error

    def _tell_defect(self, tale: Tale) -> None:
        """On whatever page. The connection will write it, and tells nobody."""
        defect = PROBLEMS[InternalError]
        tale.own, tale.status, tale.code, tale.problem = False, "refused", defect.status, defect.name

    def _refuse(self, refusal: Refusal, writer: ReplyWriter, tale: Tale) -> Written:
        if tale.rpc is None:
            status, headers, body = render(refusal, forward=tale.forward)
        else:
            status, headers, body = render_rpc(refusal, tale.rpc)
        tale.status, tale.code, tale.problem = "refused", status, problem_of(refusal).name
        return writer.whole(status, headers, body)

    def refused_before_request(self, refusal: Refusal) -> None:
        """For what never became a request: malformed, too slow, too large a head."""
        problem = problem_of(refusal)
        self._observer.served(Served(status="refused", code=problem.status, problem=problem.name))


def _is_alike_each_time(incoming: Incoming, request: HttpRequest) -> bool:
    """Whether the same bytes ask for the same, in the same words: not what has a number of its own, nor what
    is done by whoever asks."""
    sending = incoming.sending
    own = sending.message is not None or sending.errand is not None
    return bool(request.raw) and request.method != "HEAD" and not own
