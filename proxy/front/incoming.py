"""From an HTTP request to a named call: read the body, pick the rule, build what will be sent and kept."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

from aiohttp.web import BaseRequest

from proxy.core.canonical import Body, NotCanonical, parse_pairs
from proxy.core.encoding import Undecodable, codings, decode
from proxy.core.headers import Headers, end_to_end, without_semel
from proxy.core.identity import CREDENTIAL_HEADERS, Asked, identify
from proxy.core.policy import Match, Mode, PolicySet, Repeat, Upstream, default_rule, find_rule
from proxy.errors import BadRequest, Denied, TooLarge, UnknownUpstream
from proxy.exchange import Ask
from proxy.front.address import UpstreamAddress
from proxy.front.connection import Connection
from proxy.ledger import Intent
from proxy.spool import Spool
from proxy.store.codec import StoredRequest
from proxy.upstream.base import Outgoing
from proxy.upstream.client import request_head

# A stale keep-alive must not cause doubt: calls with effects use a connection only while it is warm.
WARM, LUKEWARM = 1.0, 15.0
# Naming a larger body is left to a thread, so that other callers do not wait for it.
NAMED_INLINE = 256 * 1024
TENANT = "default"
_TOOL = re.compile(rb"[\x21-\x7e][\x20-\x7e]{0,127}")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    body: int = 32 * 1024 * 1024
    spool: int = 1024 * 1024
    spool_directory: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A request that has a rule. `ask` is None for what passes without a record."""

    upstream: Upstream
    match: Match
    safe: bool
    outgoing: Outgoing
    ask: Ask | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the Semel-* headers say."""

    tool: str = ""
    occurrence: int = 1
    refresh: bool = False


def said_to_semel(headers: Headers) -> Told:
    said: dict[bytes, bytes] = {}
    for raw_name, value in headers:
        name = raw_name.lower()
        if name.startswith(b"semel-") and said.setdefault(name, value) != value:
            raise BadRequest(f"{raw_name.decode('latin-1')} is given twice with different values.")
    if not said:
        return Told()
    for name in (b"semel-run", b"semel-attempt"):
        if name in said:
            raise BadRequest("Runs are not supported yet: leave out Semel-Run and Semel-Attempt.")
    occurrence = said.get(b"semel-occurrence", b"1")
    if re.fullmatch(rb"[1-9][0-9]{0,8}", occurrence) is None:
        raise BadRequest("Semel-Occurrence is a number from 1 on.")
    refresh = said.get(b"semel-refresh", b"0")
    if refresh not in (b"0", b"1"):
        raise BadRequest("Semel-Refresh is 1 or left out.")
    tool = said.get(b"semel-tool", b"")
    if tool and _TOOL.fullmatch(tool) is None:
        raise BadRequest("Semel-Tool is at most 128 printable characters.")
    return Told(tool=tool.decode(), occurrence=int(occurrence), refresh=refresh == b"1")


def find_upstream(policies: PolicySet, address: UpstreamAddress) -> Upstream:
    upstream = policies.upstreams.get(address.upstream)
    if upstream is None:
        known = ", ".join(sorted(policies.upstreams)) or "none: start semel with --policies"
        raise UnknownUpstream(f"No policy file names the upstream {address.upstream!r}. Known: {known}.")
    return upstream


async def read_body(request: BaseRequest, connection: Connection, limits: RequestLimits) -> Spool | None:
    """The whole body, or None without one. Nothing happens upstream before it is complete."""
    length = request.headers.get("Content-Length")
    if length is not None and int(length) > limits.body:
        raise TooLarge(f"The body has {length} bytes, the limit is {limits.body} (limits.request_body).")
    expect = request.headers.get("Expect")
    if expect is not None:
        if expect.lower() != "100-continue":
            raise BadRequest("The only Expect that semel knows is 100-continue.")
        if not request.content.is_eof():
            connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if not request.body_exists:
        return None
    spool = Spool(limits.spool, limits.spool_directory)
    content = request.content
    while not content.at_eof():
        spool.append(await content.readany())
        if spool.size > limits.body:
            raise TooLarge(f"The body is over {limits.body} bytes (limits.request_body).")
    return spool


async def understand(
    request: BaseRequest,
    address: UpstreamAddress,
    upstream: Upstream,
    body: Spool | None,
    told: Told,
    limits: RequestLimits,
    secret: bytes,
) -> Incoming:
    headers: Headers = request.raw_headers
    match = find_rule(upstream, request.method, address.raw_path) or default_rule(
        request.method, has_grant_type=_asks_for_a_token(request, body)
    )
    rule = match.rule
    if rule.mode is Mode.DENY:
        raise Denied(f"The rule {rule.name!r} of upstream {upstream.name!r} denies this call.")
    safe = rule.is_safe(request.method)
    outgoing = _outgoing(request, address, upstream, headers, body, safe=safe)
    if rule.mode is Mode.PASS or (safe and rule.mode is Mode.ONCE and rule.repeat is Repeat.ORDINAL):
        return Incoming(upstream=upstream, match=match, safe=safe, outgoing=outgoing, ask=None)

    asked = Asked(
        tenant=TENANT,
        upstream=upstream.name,
        method=request.method,
        raw_path=address.raw_path.encode(),
        query=(address.query or "").encode(),
        headers=headers,
        path_names=match.names,
        body=_readable(headers, body, limits.body),
        occurrence=told.occurrence,
        credentials=upstream.credentials,
    )
    if body is None or body.size <= NAMED_INLINE:
        identity = identify(asked, rule, secret)
    else:
        identity = await asyncio.to_thread(identify, asked, rule, secret)
    kept = _without_credentials(outgoing.headers, upstream.credentials)
    intent = Intent(
        identity=identity,
        rule=rule,
        safe=safe,
        tenant=TENANT,
        upstream=upstream.name,
        tool=told.tool
        or rule.tool
        or f"{request.method} {rule.path.text if rule.path else address.raw_path}",
        occurrence=told.occurrence,
        request=StoredRequest(
            method=request.method, target=outgoing.target, headers=kept, arguments=identity.arguments
        ),
        body=body,
    )
    refresh = told.refresh and rule.mode is Mode.CACHE
    ask = Ask(intent=intent, outgoing=outgoing, refresh=refresh)
    return Incoming(upstream=upstream, match=match, safe=safe, outgoing=outgoing, ask=ask)


def _outgoing(
    request: BaseRequest,
    address: UpstreamAddress,
    upstream: Upstream,
    headers: Headers,
    body: Spool | None,
    *,
    safe: bool,
) -> Outgoing:
    forwarded = tuple(
        pair for pair in without_semel(end_to_end(headers)) if pair[0].lower() not in (b"host", b"expect")
    )
    if body is not None and not any(name.lower() == b"content-length" for name, _ in forwarded):
        forwarded += ((b"Content-Length", b"%d" % body.size),)
    query = "" if address.query is None else f"?{address.query}"
    outgoing = Outgoing(
        scheme=upstream.scheme,
        host=upstream.host,
        port=upstream.port,
        method=request.method,
        target=f"{upstream.base_path}{address.raw_path}{query}".encode(),
        headers=((b"Host", upstream.authority.encode()), *forwarded),
        body=body,
        timeouts=upstream.timeouts,
        max_idle=LUKEWARM if safe else WARM,
    )
    try:
        request_head(outgoing)
    except ValueError as error:
        raise BadRequest(f"The request cannot be forwarded as it is: {error}.") from None
    return outgoing


def _asks_for_a_token(request: BaseRequest, body: Spool | None) -> bool:
    """An OAuth token request is never recorded: its answer is a secret that must be fresh."""
    if body is None or body.size > NAMED_INLINE or not request.content_type.endswith("x-www-form-urlencoded"):
        return False
    try:
        return "grant_type" in parse_pairs(body.whole())
    except NotCanonical:
        return False


def _readable(headers: Headers, body: Spool | None, limit: int) -> Body:
    if body is None:
        return Body()
    data = body.whole()
    content_type = next((value for name, value in headers if name.lower() == b"content-type"), b"")
    media_type = content_type.split(b";", 1)[0].strip().lower().decode("latin-1")
    applied = codings(headers)
    if applied:
        try:
            data = decode(data, applied, limit)
        except Undecodable:
            return Body(data=data)
    return Body(media_type=media_type, content_type=content_type, data=data)


def _without_credentials(headers: Headers, further: tuple[str, ...]) -> Headers:
    secret = CREDENTIAL_HEADERS | {name.encode() for name in further}
    return tuple(pair for pair in headers if pair[0].lower() not in secret)
