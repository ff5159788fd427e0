"""Tools of the agent's own, as the wire has them: a call is begun, and what came of it is reported.

docs/local-tools.md is the protocol. What is begun goes the way of every request; only that, in the end, the
answer of the upstream is "do it yourself".
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

from proxy.admin import browsers
from proxy.asking import Live, Reply
from proxy.core.canonical import NotCanonical, parse_json, parse_pairs
from proxy.core.headers import Headers
from proxy.core.identity import CLIENTS_OWN
from proxy.core.intent import Call, State
from proxy.core.policy import TOOL_METHOD, TOOLS_NAME, PolicySet
from proxy.errors import BadRequest, MethodNotAllowed, NotFound, Refusal, UnsupportedMediaType
from proxy.front.address import ToolAddress, UpstreamAddress
from proxy.front.connection import Connection
from proxy.front.door import Visitor
from proxy.front.incoming import ON_LOOPBACK, Asked
from proxy.front.run_ref import Speaker
from proxy.front.sending import Told
from proxy.spool import Spool
from proxy.stream import CutOff
from proxy.tools.errand import Errand
from proxy.tools.reports import Held, Reports
from proxy.tools.workshop import NotDone, Workshop

_JSON = (b"Content-Type", b"application/json")
_FENCE = re.compile(r"[1-9][0-9]{0,17}")
_CALL = re.compile(r"[0-9a-f]{32}")
LONGEST_REASON = 1000


class HandedOut(NamedTuple):
    """The caller does it. Without a call: nobody wants to hear of it."""

    call: Call | None = None

    @property
    def status(self) -> str:
        return "passed" if self.call is None else "executed"

    @property
    def id(self) -> str:
        return "" if self.call is None else self.call.id


def check_caller(method: str, headers: Headers, visitor: Visitor) -> None:
    """As at the desk: no page of another site may begin or end anything through a person's browser."""
    if method != "POST":
        raise MethodNotAllowed("A tool is begun, and reported on, with POST.", allowed="POST")
    if visitor.role is None:
        browsers.check(headers, ON_LOOPBACK)


def begun(
    address: ToolAddress,
    headers: Headers,
    policies: PolicySet,
    body: Spool | None,
    told: Told,
    speaker: Speaker,
    visitor: Visitor,
) -> Asked:
    """No header names such a call, but for a key of the client's own: clients in two languages mean the same
    call by the same tool and arguments."""
    whole = b"{}" if body is None else body.whole()
    if body is not None:
        _check_json(headers)
    _check_arguments(whole)
    keys = tuple(pair for pair in headers if pair[0].lower() == CLIENTS_OWN)
    return Asked(
        TOOL_METHOD,
        (_JSON, *keys),
        UpstreamAddress(TOOLS_NAME, f"/{address.tool}", None),
        policies,
        policies.tools,
        body or Spool.of(whole),
        replace(told, tool=address.tool),
        speaker,
        visitor.tenant,
        Errand(),
    )


def _check_json(headers: Headers) -> None:
    """A form of another site cannot send this type without asking first, and nobody answers that."""
    sent = [value for name, value in headers if name.lower() == b"content-type"]
    if [value.partition(b";")[0].strip().lower() for value in sent] != [b"application/json"]:
        raise UnsupportedMediaType("Send JSON, with Content-Type: application/json.")


def _check_arguments(body: bytes) -> None:
    if not isinstance(_read(body), dict):
        raise BadRequest('The arguments of a tool are a JSON object, as {"order": 42}.')


def _read(body: bytes) -> Any:  # noqa: ANN401 (JSON)
    try:
        return parse_json(body)
    except NotCanonical as error:
        raise BadRequest(f"The body is not JSON with one meaning: {error}.") from None


class ToolDesk:
    def __init__(self, workshop: Workshop, reports: Reports) -> None:
        self._workshop = workshop
        self._reports = reports
        self._seeing_off: set[asyncio.Task[None]] = set()

    # ---- handing out ----

    async def ask(
        self, asking: Coroutine[Any, Any, Reply], errand: Errand, connection: Connection
    ) -> Reply | HandedOut:
        """The answer, or the errand, whatever comes first."""
        task = asyncio.ensure_future(asking)
        either: set[asyncio.Future[Any]] = {task, errand.handed}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            errand.leave()
            task.cancel()
            raise
        if not errand.handed.done():
            errand.leave()
            return await task
        seeing_off = asyncio.create_task(_see_off(task))
        self._seeing_off.add(seeing_off)
        seeing_off.add_done_callback(self._seeing_off.discard)
        call = errand.handed.result()
        if connection.transport is None or connection.transport.is_closing():
            job = self._workshop.job(call.key, call.fence)
            if job is not None:  # not one byte of it has left: nobody can have begun it
                job.tell(NotDone("whoever asked for it had left before it was handed out"))
        return HandedOut(call)

    def execute(self, handed: HandedOut) -> tuple[int, Headers, bytes]:
        """What the caller is told to do."""
        call, beat = handed.call, self._workshop.lease.heartbeat
        said = {} if call is None else {"call": call.id, "fence": call.fence, "heartbeat": beat}
        code, headers, body = _json({"execute": said})
        named = () if call is None else ((b"Semel-Call", call.id.encode()),)
        return code, (*headers, (b"Semel-Status", handed.status.encode()), *named), body

    # ---- reports ----

    async def report(
        self, address: ToolAddress, headers: Headers, body: Spool | None, visitor: Visitor
    ) -> tuple[int, Headers, bytes]:
        if _CALL.fullmatch(address.call) is None:
            raise NotFound("A call's id has 32 hex digits; it stands in what `begin` answered.")
        held = Held(visitor.tenant, address.tool, address.call, _fence(address.query))
        said = b"" if body is None else body.whole()
        if said:
            _check_json(headers)
        match address.report:
            case "complete":
                state = await self._reports.complete(held, _answer(said))
            case "fail":
                state = await self._reports.fail(held, _reason(said))
            case "heartbeat":
                state = await self._reports.heartbeat(held)
            case other:
                raise NotFound(f"There is nothing to report as {other[:64]!r}: complete, fail or heartbeat.")
        beats = {"heartbeat": self._workshop.lease.heartbeat} if state is State.PENDING else {}
        return _json({"state": state.value, **beats})


async def _see_off(asking: asyncio.Task[Reply]) -> None:
    """In a run whoever did it has its answer, as soon as that is recorded."""
    try:
        reply = await asking
    except (Refusal, CutOff):
        return  # whoever reports is told
    if not isinstance(reply, Live):  # it came to nothing, and somebody else has done it since
        return
    try:
        async for _ in reply.reader.parts():
            pass
    except CutOff:
        if reply.delivery is not None:
            reply.delivery.abandoned()
    else:
        if reply.delivery is not None:
            reply.delivery.complete()
    finally:
        reply.leave()


def _fence(query: str | None) -> int:
    try:
        given = parse_pairs((query or "").encode())
    except NotCanonical:
        given = {}
    (fence, *more) = given.get("fence", [""])
    if more or given.keys() != {"fence"} or _FENCE.fullmatch(fence) is None:
        raise BadRequest("Say by ?fence=N which claim this is about; it stands in what `begin` answered.")
    return int(fence)


def _answer(body: bytes) -> bytes:
    """Recorded as it is, byte for byte."""
    said = _read(body)
    if not isinstance(said, dict) or len(said) != 1 or said.keys().isdisjoint(("result", "error")):
        raise BadRequest('Send {"result": …}, or {"error": {"type": …, "message": …}}.')
    if "error" in said and not _is_error(said["error"]):
        raise BadRequest('An error has the texts "type" and "message", and nothing else.')
    return body


def _is_error(error: Any) -> bool:  # noqa: ANN401 (JSON)
    texts = isinstance(error, dict) and all(isinstance(value, str) for value in error.values())
    return texts and error.keys() == {"type", "message"}


def _reason(body: bytes) -> str:
    said = _read(body)
    reason = said.get("reason") if isinstance(said, dict) and said.keys() == {"reason"} else None
    if not isinstance(reason, str) or not 0 < len(reason) <= LONGEST_REASON:
        raise BadRequest(f'Send {{"reason": "…"}}, of at most {LONGEST_REASON} characters.')
    return reason


def _json(document: dict[str, Any]) -> tuple[int, Headers, bytes]:
    body = json.dumps(document).encode() + b"\n"
    return 200, (_JSON, (b"Content-Length", b"%d" % len(body))), body
