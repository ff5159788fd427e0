"""From an HTTP request to a named call: read the body, pick the rule, build what will be sent and kept."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

from aiohttp.web import BaseRequest

from proxy.core.canonical import Body, NotCanonical, parse_pairs
from proxy.core.encoding import Undecodable, codings, decode
from proxy.core.headers import Headers
from proxy.core.identity import Asked, identify
from proxy.core.policy import Match, Mode, PolicySet, Repeat, Upstream, default_rule, find_rule
from proxy.errors import BadRequest, Denied, TooLarge, UnknownUpstream
from proxy.exchange import Ask
from proxy.front.address import UpstreamAddress
from proxy.front.connection import Connection
from proxy.front.sending import TENANT, Sending, Told
from proxy.spool import Spool

# Naming a larger body is left to a thread, so that other callers do not wait for it.
NAMED_INLINE = 256 * 1024
NOTHING_TOLD = Told()
_TOOL = re.compile(rb"[\x21-\x7e][\x20-\x7e]{0,127}")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    body: int = 32 * 1024 * 1024
    spool: int = 1024 * 1024
    spool_directory: Path | None = None


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request that has a rule. `ask` is None for what passes without a record."""

    upstream: Upstream
    match: Match
    safe: bool
    sending: Sending
    ask: Ask | None


def said_to_semel(headers: Headers) -> Told:
    said: dict[bytes, bytes] = {}
    for raw_name, value in headers:
        if raw_name[:6].lower() == b"semel-" and said.setdefault(raw_name.lower(), value) != value:
            raise BadRequest(f"{raw_name.decode('latin-1')} is given twice with different values.")
    if not said:
        return NOTHING_TOLD
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
        # What arrived together with the head is here already; waiting for it would cost a round of the loop.
        spool.append(content.read_nowait() if content.is_eof() else await content.readany())
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
    method: str = request.method
    match = find_rule(upstream, method, address.raw_path) or default_rule(
        method, has_grant_type=_asks_for_a_token(request, body)
    )
    rule = match.rule
    if rule.mode is Mode.DENY:
        raise Denied(f"The rule {rule.name!r} of upstream {upstream.name!r} denies this call.")
    safe = rule.is_safe(method)
    headers: Headers = request.raw_headers
    sending = Sending(method, address, upstream, match, told, headers, body, safe)
    if rule.mode is Mode.PASS or (safe and rule.mode is Mode.ONCE and rule.repeat is Repeat.ORDINAL):
        return Incoming(upstream, match, safe, sending, None)
    asked = Asked(
        tenant=TENANT,
        upstream=upstream.name,
        method=method,
        raw_path=address.raw_path.encode(),
        query=address.query.encode() if address.query else b"",
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
    refresh = told.refresh and rule.mode is Mode.CACHE
    return Incoming(upstream, match, safe, sending, Ask(identity, rule, safe, refresh, sending))


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
