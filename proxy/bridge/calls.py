"""A call of a tool, from the client's line to the line that answers it."""

from __future__ import annotations

import json
import time
import traceback
from typing import NamedTuple

from proxy.asking import Delivery, Labels, Live, Replayed, Unrecorded
from proxy.core.jsonrpc import ToolCall, error
from proxy.core.mcp_again import Again
from proxy.core.policy import TOOL_METHOD, PolicySet, Upstream
from proxy.errors import AnswerUnavailable, Refusal
from proxy.front.address import UpstreamAddress
from proxy.front.incoming import Asked, Incoming, enter_run, understand
from proxy.front.mcp import PASSED
from proxy.front.mcp_batch import BROKEN_OFF, CONNECTION_CLOSED
from proxy.front.mcp_memory import Annotations, Recollections, Server, Session
from proxy.front.naming import Namer
from proxy.front.rpc import Message
from proxy.front.run_ref import Speaker
from proxy.front.sending import Told
from proxy.front.tale import Tale
from proxy.observe import Observer
from proxy.problem import problem_of, render_rpc
from proxy.refusals import AT_PROXY, BESIDE
from proxy.runs.claiming import RunAsk
from proxy.spool import Spool
from proxy.stream import CutOff
from proxy.wiring import Works


class Client(NamedTuple):
    """Whose calls these are, and for which server."""

    policies: PolicySet
    upstream: Upstream
    speaker: Speaker
    tenant: str

    @property
    def session(self) -> Session:
        """One client, one server: for as long as this process lives."""
        return Session(Server(self.tenant, self.upstream.name, ""), self.speaker.run, b"stdio")


class Answer(NamedTuple):
    """The line, and in a run what says whether it was taken."""

    line: bytes
    delivery: Delivery | None = None


class Calls:
    def __init__(self, *, works: Works, namer: Namer, observer: Observer, client: Client) -> None:
        self._works = works
        self._namer = namer
        self._observer = observer
        self._client = client
        self._sessions = Recollections()
        self.annotations = Annotations()

    async def ask(self, call: ToolCall) -> Answer:
        tale, began = Tale(self._client.upstream.name, rpc=call.id), time.monotonic()
        answer = Answer(error(call.id, CONNECTION_CLOSED, BROKEN_OFF).strip())
        try:
            answer = await self._ask(call, tale)
            tale.code, tale.delivered = 200, True
        except Refusal as refusal:
            tale.status, tale.code, tale.problem = "refused", 200, problem_of(refusal).name
            refusal.detail = refusal.detail.replace(AT_PROXY, BESIDE)
            answer = Answer(render_rpc(refusal, call.id)[2].strip())
        except CutOff:
            tale.status = "refused"  # what was sent is recorded, or held: asking again shows which
        except Exception as defect:  # whoever asked must not wait for ever
            tale.status = "refused"
            told = "".join(traceback.format_tb(defect.__traceback__))  # its words may repeat what is secret
            self._observer.noted("defect", error=f"{told}{type(defect).__name__}")
        finally:
            self._observer.served(tale.served("TOOL", len(answer.line), time.monotonic() - began))
        return answer

    async def _ask(self, call: ToolCall, tale: Tale) -> Answer:
        asked = self._asked(call)
        entered = await enter_run(asked, self._works.books)
        if self._client.upstream.stateful:
            book = None if entered is None else entered.book
            assert asked.message is not None
            guard = self._sessions.guard(self._client.session, book, tale)
            asked = asked._replace(message=asked.message._replace(check=guard))
        if entered is not None:  # whatever else is said goes by without a record
            await self._works.books.passed(entered.book, PASSED)
        incoming = tale.incoming = await understand(asked, self._namer, entered)
        incoming.refuse_if_denied()
        if incoming.ask is None:
            if entered is not None:
                await self._works.books.passed(entered.book, f"rule {incoming.match.rule.name}")
            return await self._pass(incoming, tale)
        if isinstance(incoming.ask, RunAsk):
            reply = await self._works.runs.ask(incoming.ask)
        else:
            tale.call = incoming.ask.identity.id
            reply = await self._works.exchange.ask(incoming.ask)
        if isinstance(reply, Unrecorded):
            return await self._pass(incoming, tale)
        assert asked.message is not None
        answer = await self._given(reply, asked.message.again, tale)
        if tale.status in ("joined", "replayed") and not incoming.safe:
            self._sessions.given(tale.call, self._client.session)
        return answer

    def _asked(self, call: ToolCall) -> Asked:
        client = self._client
        hints = self.annotations.of(client.session.server, call.tool)
        message = Message(call, "POST", "/", (), Spool.of(call.text), hints)
        return Asked(
            TOOL_METHOD,
            message.counted_headers,
            UpstreamAddress(client.upstream.name, message.tool_path, None),
            client.policies,
            client.upstream,
            message.arguments,
            Told(),
            client.speaker,
            client.tenant,
            message=message,
        )

    async def _pass(self, incoming: Incoming, tale: Tale) -> Answer:
        labels = Labels(incoming.upstream.name, incoming.match.rule.name)
        outgoing = incoming.sending.outgoing()
        live = await self._works.exchange.forward(outgoing, labels, safe=False)
        tale.status = "passed"
        return Answer(await _read(live))

    async def _given(self, reply: Replayed | Live, again: Again, tale: Tale) -> Answer:
        if isinstance(reply, Live):
            tale.status = reply.how
            tale.call = "" if reply.flight.identity is None else reply.flight.identity.id
            try:
                line = await _read(reply)
            except BaseException:
                if reply.delivery is not None:
                    reply.delivery.abandoned()
                raise
            tale.cost_usd = reply.flight.cost_usd
            return Answer(again.message(line) if reply.joined else line, reply.delivery)
        tale.status, tale.call, tale.cost_usd = "replayed", reply.call.id, reply.call.cost_usd
        body = reply.answer.body
        whole = body if isinstance(body, bytes) else b"".join([part async for part in body])
        return Answer(_one_line(again.message(whole)), reply.delivery)


async def _read(live: Live) -> bytes:
    try:
        return b"".join([part async for part in live.reader.parts()])
    finally:
        live.leave()


def _one_line(message: bytes) -> bytes:
    """What a person gave as an answer may have several."""
    if b"\n" not in message and b"\r" not in message:
        return message
    try:
        return json.dumps(json.loads(message)).encode()
    except (ValueError, RecursionError):
        raise AnswerUnavailable("The recorded answer is no message of JSON-RPC.") from None
