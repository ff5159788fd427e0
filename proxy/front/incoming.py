"""From an HTTP request to a call: what semel is told, the body, the rule and the name."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

from aiohttp import StreamReader
from aiohttp.http import HttpVersion11

from proxy.admin import browsers
from proxy.asking import Ask, Boards, unheard
from proxy.core.amended import amended
from proxy.core.clauses import Wire
from proxy.core.headers import MANY_HEADS, Headers, without_nominated, without_session
from proxy.core.matching import DEFAULT_PASS, Match
from proxy.core.policy import TOOL_SCHEME, Mode, PolicySet, Upstream
from proxy.core.trace import trace_of
from proxy.errors import BadRequest, Denied, StoreUnavailable, TooLarge, UnknownUpstream
from proxy.front.address import UpstreamAddress
from proxy.front.connection import Connection
from proxy.front.door import Visitor
from proxy.front.in_run import Entered, enter, run_ask
from proxy.front.naming import Namer, ToName
from proxy.front.reply import ReplyWriter
from proxy.front.rpc import Message
from proxy.front.run_ref import Speaker, check_attempt, check_run
from proxy.front.sending import Sending, Told
from proxy.front.turns import HttpRequest
from proxy.observe import Served
from proxy.runs.books import RunBooks
from proxy.runs.claiming import RunAsk
from proxy.settings import Address
from proxy.spool import Spool
from proxy.tools.errand import Errand

NOTHING_TOLD = Told()
PASSED = Match(DEFAULT_PASS, {})
# So long, in seconds, an answer is kept that nobody is given again.
KEPT_FOR_PEOPLE = 3600.0
# By what names semel is called: without tokens it listens on loopback. A client of the forward proxy names
# the upstream's host instead.
ON_LOOPBACK, _BY_ANY_NAME = Address("127.0.0.1", 0), Address("0.0.0.0", 0)  # noqa: S104 (not bound)
# A misspelt one must not be ignored: a deliberate repeat would become a replay without a word.
KNOWN = frozenset(
    {b"semel-run", b"semel-attempt", b"semel-tool", b"semel-token", b"semel-occurrence", b"semel-refresh"}
)
_TOOL = re.compile(rb"[\x21-\x7e][\x20-\x7e]{0,127}")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    body: int = 32 * 1024 * 1024
    spool: int = 1024 * 1024
    spool_directory: Path | None = None


class Asked(NamedTuple):
    """A request that is read and has its upstream, and no rule yet."""

    method: str
    headers: Headers
    address: UpstreamAddress
    policies: PolicySet
    upstream: Upstream
    body: Spool | None
    told: Told
    speaker: Speaker
    tenant: str
    errand: Errand | None = None  # of a tool of its own: it is done by whoever asks
    message: Message | None = None  # of a tool of an MCP server: what goes out


# What a run says of a request that is named.
_UPSTREAM, _ORIGIN, _CANONICAL, _PIN, _PRESENT = map(
    ToName._fields.index, ("upstream", "origin", "canonical", "pin", "present")
)
# Where it goes, by which rule, in which mode, as which tool; whether it is safe, its method, its trace.
Labels: TypeAlias = tuple[str, str, str, str, bool, str, str]


class Incoming(NamedTuple):
    """A request that has a rule. `ask` is None for what passes without a record."""

    upstream: Upstream
    match: Match
    safe: bool
    sending: Sending
    ask: Ask | RunAsk | None

    def refuse_if_denied(self) -> None:
        """When it is known what is told of it: a refusal is counted by its rule."""
        rule = self.match.rule
        if rule.mode is Mode.DENY:
            raise Denied(f"The rule {rule.name!r} of upstream {self.upstream.name!r} denies this call.")

    def served(self) -> Served:
        """As it is told, but for what becomes of it."""
        return Served(*self.labels(), status="refused")

    def labels(self) -> Labels:
        """What is told of it first: where it goes, by which rule, under which name."""
        rule, sending = self.match.rule, self.sending
        trace = trace_of(sending.headers)
        return self.upstream.name, rule.name, str(rule.mode), sending.tool, self.safe, sending.method, trace


@lru_cache(maxsize=MANY_HEADS)
def said_to_semel(headers: Headers) -> Told:
    said: dict[bytes, bytes] = {}
    for raw_name, value in headers:
        if (
            raw_name[:1] in b"sS"
            and raw_name[:6].lower() == b"semel-"
            and said.setdefault(raw_name.lower(), value) != value
        ):
            raise BadRequest(f"{raw_name.decode('latin-1')} is given twice with different values.")
    if not said:
        return NOTHING_TOLD
    for name in said.keys() - KNOWN:
        raise BadRequest(f"There is no header {name.decode('latin-1')!r}{_suggestion(name)}")
    run, attempt = said.get(b"semel-run"), said.get(b"semel-attempt")
    occurrence = said.get(b"semel-occurrence", b"")
    if b"semel-occurrence" in said and re.fullmatch(rb"[1-9][0-9]{0,8}", occurrence) is None:
        raise BadRequest("Semel-Occurrence is a number from 1 on.")
    refresh = said.get(b"semel-refresh", b"0")
    if refresh not in (b"0", b"1"):
        raise BadRequest("Semel-Refresh is 1 or left out.")
    tool = said.get(b"semel-tool", b"")
    if tool and _TOOL.fullmatch(tool) is None:
        raise BadRequest("Semel-Tool is at most 128 printable characters.")
    return Told(
        tool=tool.decode(),
        occurrence=int(occurrence) if occurrence else None,
        refresh=refresh == b"1",
        speaker=Speaker(
            run="" if run is None else check_run(run.decode("latin-1")),
            attempt="" if attempt is None else check_attempt(attempt.decode("latin-1")),
            token=said.get(b"semel-token", b"").decode("latin-1"),
        ),
    )


def _suggestion(name: bytes) -> str:
    known = [word.decode() for word in KNOWN]
    near = difflib.get_close_matches(name.decode("latin-1"), known, n=1, cutoff=0.6)
    return f": did you mean {near[0]!r}?" if near else f"; semel knows {', '.join(sorted(known))}."


def find_upstream(policies: PolicySet, address: UpstreamAddress) -> Upstream:
    upstream = policies.upstreams.get(address.upstream)
    if upstream is None:
        known = ", ".join(sorted(policies.upstreams)) or "none: start semel with --policies PATH"
        raise UnknownUpstream(
            f"No policy file names the upstream {address.upstream[:64]!r}. Use /{{upstream}}/{{path}}; "
            f"known upstreams: {known}."
        )
    if upstream.protocol is Wire.TOOLS:
        raise UnknownUpstream(f"{upstream.name!r} are the agent's own tools: POST /_semel/tools/{{tool}}.")
    if upstream.scheme == TOOL_SCHEME:
        raise UnknownUpstream(
            f"{upstream.name!r} has no base_url: `semel mcp --upstream {upstream.name} -- COMMAND` runs it."
        )
    return upstream


def check_asker(upstream: Upstream, visitor: Visitor, headers: Headers, *, forward: bool) -> None:
    """Where semel adds a credential and asks for no token, whoever reaches it may use that credential. Pages
    of all sites reach it, through a browser on this machine: they are told apart as at the desk."""
    if upstream.inject is not None and visitor.role is None:
        browsers.check(headers, _BY_ANY_NAME if forward else ON_LOOPBACK)


def check_protocol(request: HttpRequest, writer: ReplyWriter) -> None:
    """What aiohttp lets through and could not be handed on as it is."""
    if request.version.major != 1:
        raise BadRequest("semel speaks HTTP/1.1 and HTTP/1.0.")
    coding = None if request.plain else request.headers.get("Transfer-Encoding")
    if coding is None:
        return
    # Nobody knows where such a request ends: what follows is not read.
    if coding.strip(" \t").lower() != "chunked":
        writer.is_last()
        # The body would be handed on in that coding, and the header that says so is hop-by-hop.
        raise BadRequest("The only Transfer-Encoding that semel knows is chunked.")
    if request.version < HttpVersion11:
        writer.is_last()
        raise BadRequest("HTTP/1.0 has no Transfer-Encoding: somebody on the way handed it on unread.")


async def read_body(request: HttpRequest, connection: Connection, limits: RequestLimits) -> Spool | None:
    """The whole body, or None without one. Nothing happens upstream before it is complete."""
    if not request.plain:
        _check_framing(request, connection, limits)
    if request.stream is None and not request.whole:
        return None
    spool = Spool(limits.spool, limits.spool_directory)
    if request.stream is None:
        _add(request.whole, spool, limits)
        return spool
    content, patience = request.stream, connection.limits.header_timeout
    while not content.at_eof():
        # What arrived together with the head is here already; waiting for it would cost a round of the loop.
        _add(
            content.read_nowait() if content.is_eof() else await _next_part(content, patience), spool, limits
        )
    return spool


def _check_framing(request: HttpRequest, connection: Connection, limits: RequestLimits) -> None:
    length = request.headers.get("Content-Length")
    if length is not None and int(length) > limits.body:
        raise TooLarge(f"The body has {length} bytes, the limit is {limits.body} (limits.request_body).")
    expect = request.headers.get("Expect")
    if expect is not None:
        if expect.lower() != "100-continue":
            raise BadRequest("The only Expect that semel knows is 100-continue.")
        if not request.content.is_eof():
            connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def _add(part: bytes, spool: Spool, limits: RequestLimits) -> None:
    try:
        spool.append(part)
    except OSError as error:
        raise StoreUnavailable(
            f"The body cannot be put aside while it arrives ({error.strerror}), and nothing was sent: "
            "call again when that is mended."
        ) from error
    if spool.size > limits.body:
        raise TooLarge(f"The body is over {limits.body} bytes (limits.request_body).")


async def _next_part(content: StreamReader, patience: float) -> bytes:
    """A body may take its time, but not stand still."""
    try:
        async with asyncio.timeout(patience):
            return await content.readany()
    except TimeoutError:
        stands_still = BadRequest(
            f"No byte of the body arrived for {patience:g} seconds, and nothing was sent: send it whole."
        )
        content.set_exception(stands_still)  # nor is its rest waited for when that is said
        raise stands_still from None


async def enter_run(asked: Asked, books: RunBooks) -> Entered | None:
    return await enter(books, asked.tenant, asked.speaker, asked.upstream) if asked.speaker.run else None


def looked_on(asked: Asked, match: Match, namer: Namer) -> Incoming:
    """A request that is only forwarded, whatever the rule would do with it: without a name and a run."""
    safe = match.rule.is_safe(asked.method)
    return Incoming(asked.upstream, match, safe, sending_of(asked, asked.upstream, match, safe, namer), None)


def sending_of(
    asked: Asked, upstream: Upstream, match: Match, safe: bool, namer: Namer, bound_to: bytes = b""
) -> Sending:
    return Sending(
        method=asked.method,
        address=asked.address,
        upstream=upstream,
        match=match,
        told=asked.told,
        headers=without_session(asked.headers),
        body=asked.body,
        safe=safe,
        tenant=asked.tenant,
        veiling=namer.veiling,
        bound_to=bound_to,
        errand=asked.errand,
        message=asked.message,
    )


def to_name(asked: Asked) -> ToName:
    headers, occurrence = without_nominated(without_session(asked.headers)), asked.told.occurrence or 1
    named = ToName(asked.upstream, asked.address, asked.method, headers, asked.body, occurrence, asked.tenant)
    if asked.message is None:
        return named
    message = asked.message
    return named._replace(endpoint=message.raw_path, hints=message.hints, answers=message.call.answers)


def to_pass(asked: Asked, namer: Namer, safe: bool) -> Incoming:
    """A request that is forwarded without a record, whatever the rules say."""
    sending = sending_of(asked, asked.upstream, PASSED, safe, namer)
    return Incoming(asked.upstream, PASSED, safe, sending, None)


async def understand(
    asked: Asked, namer: Namer, entered: Entered | None, boards: Boards = unheard
) -> Incoming:
    """`entered`: the run that it is asked in. `boards` hears what the caller waits for. Whoever asks says
    `refuse_if_denied` before anything else."""
    told, upstream, request = asked.told, asked.upstream, to_name(asked)
    if entered is not None:
        pinned, present = entered.pinned, upstream if upstream.guards else None
        upstream = pinned.upstream
        request = amended(
            request,
            (_UPSTREAM, upstream),
            (_ORIGIN, entered.origin),
            (_CANONICAL, pinned.canonical),
            (_PIN, pinned.pin),
            (_PRESENT, present),
        )
    named = await namer.name(asked.policies, request)
    match, safe, identity, *_ = named
    if named.goes_live and identity is not None:
        # Another call each time. Its answer is kept for a while, for people.
        match = match._replace(rule=replace(match.rule, ttl=min(match.rule.ttl, KEPT_FOR_PEOPLE)))
        identity = identity._replace(key=os.urandom(len(identity.key)), named_by=b"")
    rule = match.rule
    sending = sending_of(asked, upstream, match, safe, namer, named.bound_to)
    if identity is None:
        return Incoming(upstream, match, safe, sending, None)
    if entered is not None:
        return Incoming(upstream, match, safe, sending, run_ask(named, identity, sending, entered, boards))
    refresh = told.refresh and rule.mode is Mode.CACHE
    return Incoming(
        upstream, match, safe, sending, Ask(identity, rule, safe, refresh, sending, boards=boards)
    )
