"""What would be sent, and what would be written down before: built only for a call that is really sent.

A replay needs none of it, so it is a recipe until the exchange asks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from proxy.core.clauses import UpstreamKey
from proxy.core.headers import MANY_HEADS, SEMEL_PREFIX, Headers, end_to_end
from proxy.core.identity import CREDENTIAL_HEADERS, Identity
from proxy.core.policy import Match, Upstream
from proxy.core.upstream_key import LOOKED_INTO, can_carry
from proxy.errors import BadRequest, Denied
from proxy.front.address import Place, UpstreamAddress
from proxy.front.run_ref import NOBODY, Speaker
from proxy.intended import Intent
from proxy.spool import Spool
from proxy.upstream.base import Outgoing
from proxy.upstream.client import request_head

# A stale keep-alive must not cause doubt: calls with effects use a connection only while it is warm.
WARM, LUKEWARM = 1.0, 15.0

# Wider than the headers that tell callers apart: those name the call, these are only left out of the record.
_SOUNDS_SECRET = re.compile(
    rb"token|secret|passw|passphrase|credential|authorization|authenticat|bearer|hmac|session|cookie|signature|api-?key|jwt"
    rb"|(?:^|[-_])(?:auth|otp|pin|sid)(?:$|[-_])|(?<!idempotency)[-_]key$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the Semel-* headers say."""

    tool: str = ""
    occurrence: int | None = None  # None: the client did not number it
    refresh: bool = False
    speaker: Speaker = NOBODY


class Sending(NamedTuple):
    method: str
    address: UpstreamAddress
    upstream: Upstream
    match: Match
    told: Told
    headers: Headers
    body: Spool | None
    safe: bool
    tenant: str
    bound_to: bytes = b""  # what a person has to permit

    @property
    def base_path(self) -> str:
        return (self.address.place or self.upstream).base_path

    def outgoing(self) -> Outgoing:
        """Raises BadRequest for what cannot be carried as it is, Denied for what would give away semel's own
        credential; nothing has been claimed by then."""
        upstream, address, body = self.upstream, self.address, self.body
        place = address.place or upstream
        query = "" if address.query is None else f"?{address.query}"
        target = f"{place.base_path}{address.raw_path}{query}".encode()
        size = None if body is None else body.size
        own = own_credential(upstream, place, self.method)
        headers, head = _outgoing_head(self.method, target, place.authority, self.headers, size, own)
        return Outgoing(
            scheme=place.scheme,
            host=place.host,
            port=place.port,
            method=self.method,
            target=target,
            headers=headers,
            body=body,
            timeouts=upstream.timeouts,
            max_idle=LUKEWARM if self.safe else WARM,
            head=head,
        )

    def intent(self, identity: Identity, outgoing: Outgoing) -> Intent:
        return Intent(
            identity=identity,
            rule=self.match.rule,
            safe=self.safe,
            tenant=self.tenant,
            upstream=self.upstream.name,
            tool=self.tool,
            occurrence=self.told.occurrence or 1,
            method=self.method,
            target=outgoing.target,
            headers=without_secrets(outgoing.headers, self.upstream.secrets),
            body=self.body,
            key=self._key(outgoing),
            bound_to=self.bound_to,
        )

    def _key(self, outgoing: Outgoing) -> UpstreamKey | None:
        """How the upstream will know the call; None: it has no such way, or this request cannot carry it."""
        key, body = self.match.rule.upstream_key, self.body
        if key is None or self.safe:
            return None
        readable = None if body is None or body.size > LOOKED_INTO else body.whole()
        return key if can_carry(key, outgoing.headers, readable) else None

    @property
    def tool(self) -> str:
        """The label for people: what the client says, what the rule says, or method and pattern."""
        rule = self.match.rule
        # Never the path itself: some APIs carry their token in it, and labels go into the log.
        pattern = rule.path.text if rule.path else "*"
        return self.told.tool or rule.tool or f"{self.method} {pattern}"


def own_credential(upstream: Upstream, place: Place | Upstream, method: str) -> tuple[bytes, bytes] | None:
    """What `inject` adds. The agent chooses the address and the method, and must not learn or spill it so."""
    if upstream.inject is None:
        return None
    if upstream.scheme == "https" and place.scheme != "https":
        raise Denied(
            f"semel adds a credential for the upstream {upstream.name!r}, and sends none in the clear: call "
            "it by https."
        )
    if method == "TRACE":
        raise Denied("TRACE gives back what was sent, and semel adds a credential here: use another method.")
    return upstream.inject.pair


@lru_cache(maxsize=MANY_HEADS)
def _outgoing_head(
    method: str,
    target: bytes,
    authority: bytes,
    headers: Headers,
    size: int | None,
    own: tuple[bytes, bytes] | None,
) -> tuple[Headers, bytes]:
    """The headers that go out, and all that goes out before the body of this size (None: there is none).
    `own`: the credential that takes the place of whatever the agent sent under its name."""
    forwarded = [(b"Host", authority)]
    framed, replaced = False, b"" if own is None else own[0].lower()
    for pair in end_to_end(headers):
        name = pair[0].lower()
        if not _stays_here(name) and name != replaced:
            forwarded.append(pair)
            framed = framed or name == b"content-length"
    if own is not None:
        forwarded.append(own)
    if size is not None and not framed:
        forwarded.append((b"Content-Length", b"%d" % size))
    try:
        return tuple(forwarded), request_head(method, target, forwarded)
    except ValueError as error:
        raise BadRequest(f"The request cannot be forwarded as it is: {error}.") from None


def _stays_here(name: bytes) -> bool:
    """Said to semel, or about the connection to it."""
    return name in (b"host", b"expect") or name.startswith(SEMEL_PREFIX)


@lru_cache(maxsize=MANY_HEADS)
def without_secrets(headers: Headers, further: tuple[str, ...]) -> Headers:
    return tuple([pair for pair in headers if not _may_be_secret(pair[0], further)])


@lru_cache(maxsize=256)
def _may_be_secret(raw_name: bytes, further: tuple[str, ...]) -> bool:
    """Not needed in the record: a resend takes it from whoever asks again."""
    name = raw_name.lower()
    listed = name in CREDENTIAL_HEADERS or name.decode("latin-1") in further
    return listed or _SOUNDS_SECRET.search(name) is not None
