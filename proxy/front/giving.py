"""The kinds of answer, written to the caller: live, joined, from the record, passed on, or "do it yourself".

In a run whether the caller took it is part of the record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from proxy.answers import Produced
from proxy.asking import Delivery, Labels, Live, Replayed
from proxy.core.encoding import codings
from proxy.core.headers import Headers, without_header
from proxy.exchange import Exchange
from proxy.front import status_headers as own
from proxy.front.again import given_again
from proxy.front.aside import Aside
from proxy.front.incoming import Incoming, RequestLimits
from proxy.front.reply import ReplyWriter, Written
from proxy.front.suited import suited
from proxy.front.tale import Tale
from proxy.front.tools import HandedOut, ToolDesk
from proxy.front.turns import HttpRequest
from proxy.stream import Whole
from proxy.upstream.base import Tap


class Giver:
    def __init__(self, *, exchange: Exchange, tools: ToolDesk, aside: Aside, limits: RequestLimits) -> None:
        self._exchange = exchange
        self._tools = tools
        self._aside = aside
        self._suited = partial(suited, aside=aside, directory=limits.spool_directory)

    async def give(
        self,
        reply: Replayed | Live,
        request: HttpRequest,
        incoming: Incoming,
        writer: ReplyWriter,
        tale: Tale,
    ) -> Written:
        if isinstance(reply, Replayed):
            return await self._replay(reply, request, incoming, writer, tale)
        if reply.flight.identity is None:  # in a run only what is looked on at
            return await self.hand_on(reply, writer, tale, own.looked_on)
        return await self._live(reply, request, incoming, writer, tale)

    async def hand_over(
        self,
        delivery: Delivery,
        reply: Replayed | Live,
        request: HttpRequest,
        incoming: Incoming,
        writer: ReplyWriter,
        tale: Tale,
    ) -> Written:
        """In a run: whether the caller took it is part of the record."""

        def ends_by_itself() -> bool:
            """Who has seen the last event of a stream leaves when it likes, without taking the rest. Whether
            it was seen cannot be known, and a call with effects is rather given again than sent again."""
            return writer.known_stream and incoming.safe

        try:
            written = await self.give(reply, request, incoming, writer, tale)
            await writer.taken()
        except BaseException:
            if ends_by_itself() and writer.size == reply.size:
                delivery.complete()
            else:
                delivery.abandoned()
            raise
        delivery.complete()
        tale.handed = delivery
        if not ends_by_itself():
            writer.handed_over(delivery)
        return written

    def hand_out(self, handed: HandedOut, writer: ReplyWriter, tale: Tale) -> Written:
        tale.status, tale.code, tale.call = handed.status, 200, handed.id
        return writer.whole(*self._tools.execute(handed))

    async def pass_on(
        self, incoming: Incoming, writer: ReplyWriter, tale: Tale, tap: Tap | None = None
    ) -> Written:
        if incoming.sending.errand is not None:
            return self.hand_out(HandedOut(), writer, tale)
        labels = Labels(incoming.upstream.name, incoming.match.rule.name)
        outgoing = incoming.sending.outgoing()
        tale.status = "passed"
        live = await self._exchange.forward(outgoing, labels, safe=incoming.safe, tap=tap)
        return await self.hand_on(live, writer, tale, own.passed)

    async def send_unheard(self, incoming: Incoming) -> None:
        """Nobody waits for what is said to it."""
        labels = Labels(incoming.upstream.name, incoming.match.rule.name)
        live = await self._exchange.forward(incoming.sending.outgoing(), labels, safe=incoming.safe)
        try:
            async for _ in live.reader.parts():
                pass
        finally:
            live.leave()

    async def hand_on(
        self, live: Live, writer: ReplyWriter, tale: Tale, told: Callable[[Headers], Headers]
    ) -> Written:
        try:
            capture = live.flight.capture
            tale.status, tale.code = "passed", capture.status
            headers = told(capture.headers)
            return await writer.stream(
                capture.status, headers, live.reader.parts(), head_first=not capture.is_over
            )
        finally:
            tale.upstream_seconds = live.flight.seconds
            live.leave()

    async def _live(
        self, live: Live, request: HttpRequest, incoming: Incoming, writer: ReplyWriter, tale: Tale
    ) -> Written:
        if live.whole is not None:
            return self.at_once(live, live.whole, writer, tale)
        try:
            capture, in_run = live.flight.capture, live.delivery is not None
            if live.flight.identity is not None:
                tale.call = live.flight.identity.id
            tale.status, tale.code = live.how, capture.status
            make_headers = partial(own.live, how=tale.status, in_run=in_run, flight=live.flight)
            stored = own.is_stored(capture, incoming)
            whole = live.reader.whole()
            if live.joined:
                # The coding was negotiated by another caller; this one may need the plain form.
                body = whole if whole is not None else live.reader.parts()
                answer = Produced(capture.status, capture.headers, body)
                answer = await self._for_request(answer, request, incoming)
                return await write(writer, answer, make_headers(answer.headers, tale.call, stored=stored))
            headers = make_headers(_said_here(capture.headers, incoming), tale.call, stored=stored)
            if whole is not None:
                return writer.whole(capture.status, headers, whole)
            return await writer.stream(capture.status, headers, live.reader.parts())
        finally:
            tale.cost_usd, tale.upstream_seconds = live.flight.cost_usd, live.flight.seconds
            live.leave()

    def at_once(self, live: Live, whole: Whole, writer: ReplyWriter, tale: Tale) -> Written:
        """An answer that came in one piece, to who asked first: it is durable by now."""
        flight = live.flight
        try:
            tale.status, tale.code = live.how, whole.status
            headers = own.live(
                whole.headers,
                tale.call,
                how=tale.status,
                stored=bool(flight.stored),
                in_run=False,
                flight=flight,
            )
            return writer.whole(whole.status, headers, whole.body)
        finally:
            tale.cost_usd, tale.upstream_seconds = flight.cost_usd, flight.seconds
            live.leave()

    async def _for_request(self, answer: Produced, request: HttpRequest, incoming: Incoming) -> Produced:
        """An answer that was another's."""
        message = incoming.sending.message
        if message is None:
            return await self._suited(answer, request) if codings(answer.headers) else answer
        return await given_again(await self._suited(answer, request, plain=True), message.again, self._aside)

    async def _replay(
        self,
        replayed: Replayed,
        request: HttpRequest,
        incoming: Incoming,
        writer: ReplyWriter,
        tale: Tale,
    ) -> Written:
        answer = await self._for_request(replayed.answer, request, incoming)
        tale.status, tale.code, tale.call = "replayed", answer.status, replayed.call.id
        tale.cost_usd = replayed.call.cost_usd
        headers = own.replayed(answer.headers, replayed.call, now=time.time())
        return await write(writer, answer, headers)


def _said_here(headers: Headers, incoming: Incoming) -> Headers:
    """An MCP client that follows a redirect makes its call there. By the proxy that comes back to semel; by a
    base URL it would be made past it, and nobody would have it on record."""
    sending = incoming.sending
    leads_past = sending.message is not None and sending.address.place is None
    return without_header(headers, "location") if leads_past else headers


async def write(writer: ReplyWriter, answer: Produced, headers: Headers) -> Written:
    if isinstance(answer.body, bytes):
        return writer.whole(answer.status, headers, answer.body)
    return await writer.stream(answer.status, headers, answer.body)
