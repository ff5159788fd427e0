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
from proxy.front.door import Visitor
from proxy.front.incoming import ON_LOOPBACK, Asked
from proxy.front.run_ref import Speaker
from proxy.front.sending import Told
from proxy.spool import Spool
from proxy.stream import CutOff
from proxy.tools.errand import Errand
from proxy.tools.reports import Held, Reports
from proxy.tools.workshop import Lease

_JSON = (b"Content-Type", b"application/json")
_FENCE = re.compile(r"[1-9][0-9]{0,17}")
_CALL = re.compile(r"[0-9a-f]{32}")
LONGEST_REASON = 1000


class HandedOut(NamedTuple):
    """The caller does it. Without a call: nobody wants to hear of it."""

    call: Call | None = None


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
    tenant: str,
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
        tenant,
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


# ---- handing out ----


class Begging:
    """Asks that ended in the caller's own hands, and go on until what came of them is recorded."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, asking: Coroutine[Any, Any, Reply], errand: Errand) -> Reply | HandedOut:
        """The answer, or the errand, whatever comes first."""
        task = asyncio.ensure_future(asking)
        try:
            await asyncio.wait({task, errand.handed}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            errand.leave()
            task.cancel()
            raise
        if task.done() or not errand.handed.done():
            errand.leave()
            return await task
        seeing_off = asyncio.create_task(_see_off(task))
        self._tasks.add(seeing_off)
        seeing_off.add_done_callback(self._tasks.discard)
        return HandedOut(errand.handed.result())


async def _see_off(asking: asyncio.Task[Reply]) -> None:
    """In a run whoever did it has its answer, as soon as that is recorded."""
    try:
        reply = await asking
    except (Refusal, CutOff):
        return  # whoever reports is told
    assert isinstance(reply, Live)  # it was sent: it is in somebody's hands
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


def execute(handed: HandedOut, lease: Lease) -> tuple[int, Headers, bytes]:
    """What the caller is told to do."""
    call = handed.call
    said = {} if call is None else {"call": call.id, "fence": call.fence, "heartbeat": lease.heartbeat}
    status = b"passed" if call is None else b"executed"
    named = () if call is None else ((b"Semel-Call", call.id.encode()),)
    code, headers, body = _json({"execute": said})
    return code, (*headers, (b"Semel-Status", status), *named), body


# ---- reports ----


async def report(
    address: ToolAddress, headers: Headers, body: bytes, tenant: str, reports: Reports, lease: Lease
) -> tuple[int, Headers, bytes]:
    if _CALL.fullmatch(address.call) is None:
        raise NotFound("A call's id has 32 hex digits; it stands in what `begin` answered.")
    held = Held(tenant, address.tool, address.call, _fence(address.query))
    if body:
        _check_json(headers)
    match address.report:
        case "complete":
            state = await reports.complete(held, _answer(body))
        case "fail":
            state = await reports.fail(held, _reason(body))
        case "heartbeat":
            state = await reports.heartbeat(held)
        case other:
            raise NotFound(f"There is nothing to report as {other[:64]!r}: complete, fail or heartbeat.")
    beats = {"heartbeat": lease.heartbeat} if state is State.PENDING else {}
    return _json({"state": state.value, **beats})


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
