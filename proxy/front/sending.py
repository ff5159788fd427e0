"""What would be sent, and what would be written down before: built only for a call that is really sent.

A replay needs none of it, so it is a recipe until the exchange asks.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from proxy.core.amended import amended
from proxy.core.canonical import Body
from proxy.core.clauses import OnDoubt, UpstreamKey
from proxy.core.headers import MANY_HEADS, SEMEL_PREFIX, Headers, end_to_end
from proxy.core.identity import CREDENTIAL_HEADERS, Identity
from proxy.core.matching import Match
from proxy.core.policy import Upstream
from proxy.core.redaction import (
    Veil,
    Veiling,
    hidden_arguments,
    hide_body,
    hide_headers,
    hide_path,
    hide_query,
    is_hidden_whole,
    naming_veil,
    record_veil,
    redacts,
    sounds_secret,
    veil_of,
)
from proxy.core.scrubbing import Secrets, secrets_of
from proxy.core.upstream_key import LOOKED_INTO, can_carry
from proxy.errors import BadRequest, Denied
from proxy.front.address import Place, UpstreamAddress
from proxy.front.reading import readable_body
from proxy.front.rpc import Message, without_arguments
from proxy.front.run_ref import NOBODY, Speaker
from proxy.intended import Alike, Intent, Veiled
from proxy.spool import Spool
from proxy.tools.errand import Errand
from proxy.upstream.base import Outgoing
from proxy.upstream.client import request_head

# A stale keep-alive must not cause doubt: calls with effects use a connection only while it is warm.
WARM, LUKEWARM = 1.0, 15.0

# Wider than the headers that tell callers apart: those name the call, these are only left out of the record.
_SOUNDS_SECRET = re.compile(
    rb"token|secret|passw|passphrase|credential|authorization|authenticat|bearer|hmac|session|cookie|signature|api-?key|jwt"
    rb"|(?:^|[-_])(?:auth|otp|pin|sid)(?:$|[-_])|(?<!idempotency)[-_]key$"
)


_NOTHING = nullcontext()
# What differs between those that are prepared.
_BODY_OUT = Outgoing._fields.index("body")
_IDENTITY, _BODY_WRITTEN, _SECRETS = map(Intent._fields.index, ("identity", "body", "secrets"))
_ADDRESSES = frozenset({b"referer", b"origin"})
_OF_THE_BODY = frozenset(
    {b"content-encoding", b"content-length", b"content-md5", b"digest", b"content-digest"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the Semel-* headers say."""

    tool: str = ""
    occurrence: int | None = None  # None: the client did not number it
    refresh: bool = False
    speaker: Speaker = NOBODY


class Prepared(NamedTuple):
    """What is sent and written down of requests that differ in bodies of one length only."""

    outgoing: Outgoing
    intent: Intent


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
    veiling: Veiling
    bound_to: bytes = b""  # what a person has to permit
    errand: Errand | None = None  # whoever asks does it
    message: Message | None = None  # a tool of an MCP server is called: this is what goes out
    prepared: Prepared | None = None

    @property
    def base_path(self) -> str:
        return (self.address.place or self.upstream).base_path

    def prepared_for(self, identity: Identity, body: Spool) -> Prepared:
        """Of what is prepared: what `outgoing` and `intent` would give with this body."""
        assert self.prepared is not None
        outgoing, intent = self.prepared
        return Prepared(
            amended(outgoing, (_BODY_OUT, body)),
            amended(
                intent,
                (_IDENTITY, identity),
                (_BODY_WRITTEN, body),
                (_SECRETS, partial(self._secrets_with, body)),
            ),
        )

    def outgoing(self) -> Outgoing:
        """Raises BadRequest for what cannot be carried as it is, Denied for what would give away semel's own
        credential; nothing has been claimed by then."""
        upstream, address, body = self.upstream, self.address, self.body
        if self.prepared is not None:
            return amended(self.prepared.outgoing, (_BODY_OUT, body))
        method, raw_path, said, message = self.method, address.raw_path, self.headers, self.message
        if self.errand is not None:
            self.errand.check()
        if message is not None:
            message.check()
            _, method, raw_path, said, body, *_ = message
        place = address.place or upstream
        query = "" if address.query is None else f"?{address.query}"
        target = f"{place.base_path}{raw_path}{query}".encode()
        size = None if body is None else body.size
        own = own_credential(upstream, place, method)
        headers, head = _outgoing_head(method, target, place.authority, said, size, own)
        return Outgoing(
            scheme=place.scheme,
            host=place.host,
            port=place.port,
            method=method,
            target=target,
            headers=headers,
            body=body,
            timeouts=upstream.timeouts,
            max_idle=LUKEWARM if self.safe else WARM,
            said=upstream.said_of(place.host, place.port),
            head=head,
            errand=self.errand,
            rpc=None if message is None else message.id,
            aloft=_NOTHING if message is None else message.aloft,
        )

    def intent(self, identity: Identity, outgoing: Outgoing) -> Intent:
        if self.prepared is not None:
            return amended(
                self.prepared.intent,
                (_IDENTITY, identity),
                (_BODY_WRITTEN, self.body),
                (_SECRETS, self.secrets),
            )
        rule = self.match.rule
        always = veil_of(self.veiling.secret, self.tenant)
        target = self._target(always)
        headers = without_secrets(outgoing.headers, self.upstream.secrets)
        if self.message is not None:  # of it the arguments are recorded, and nothing that repeats them
            headers = without_arguments(without_the_body(headers))
        return Intent(
            identity=identity,
            rule=self.match.rule,
            safe=self.safe,
            tenant=self.tenant,
            upstream=self.upstream.name,
            tool=self.tool,
            occurrence=self.told.occurrence or 1,
            method=self.method,
            target=target,
            headers=headers,
            body=self.body,
            key=self._key(outgoing),
            bound_to=self.bound_to,
            veiled=self._veiled(identity, headers) if redacts(rule) else None,
            secrets=self.secrets,
        )

    def prepare(self, identity: Identity) -> Sending:
        """Of a rule that neither redacts nor names a key of the upstream's: those hang on the body. Raises
        what `outgoing` does. The body is still to come, and nothing of this one's stays behind."""
        outgoing = self.outgoing()
        unsaid = identity._replace(arguments=b"")
        intent = self.intent(unsaid, outgoing)._replace(body=None, secrets=Secrets, alike=Alike())
        return self._replace(body=None, prepared=Prepared(outgoing._replace(body=None), intent))

    def _target(self, veil: Veil) -> bytes:
        """What is recorded of it."""
        address = self.address
        path = hide_path(address.raw_path, self.match.rule.path, veil)
        query = "" if address.query is None else f"?{hide_query(address.query, veil)}"
        if self.message is not None:  # where it went, and for which tool: no path has a #
            return f"{self.base_path}{self.message.raw_path}{query}#{path[1:]}".encode()
        return f"{self.base_path}{path}{query}".encode()

    def _veiled(self, identity: Identity, headers: Headers) -> Veiled:
        rule, (secret, encrypted) = self.match.rule, self.veiling
        veil = record_veil(rule, self.tenant, secret)
        body, arguments = hide_body(self._readable(), veil), identity.arguments
        if veil != naming_veil(rule, self.tenant, secret):  # the arguments show what the rule hides by now
            arguments = hidden_arguments(arguments, veil)
        return Veiled(
            target=self._target(veil),
            # The body is recorded as it is read, not as it was encoded.
            headers=without_the_body(hide_headers(headers, veil)),
            body=b"" if self._is_long or is_hidden_whole(body) else body.data,
            arguments=arguments,
            keeps_whole=encrypted and rule.in_doubt is not OnDoubt.HOLD,
        )

    @property
    def _is_long(self) -> bool:
        """A long body is hidden whole: nobody waits for it to be read."""
        return self.body is not None and self.body.size > LOOKED_INTO

    def _readable(self) -> Body:
        return (
            Body(data=b"a long body")
            if self._is_long
            else readable_body(self.headers, self.body, LOOKED_INTO)
        )

    def _secrets_with(self, body: Spool) -> Secrets:
        return self._replace(body=body).secrets()

    def secrets(self) -> Secrets:
        """In clear, what the record does not hold: no word of an upstream that is kept may hold it either."""
        rule, upstream = self.match.rule, self.upstream
        kept = set(without_secrets(self.headers, upstream.secrets))
        veil = record_veil(rule, self.tenant, self.veiling.secret)
        own = () if upstream.inject is None else (upstream.inject.pair,)
        hidden = tuple(
            pair
            for pair in (*self.headers, *own)
            if pair not in kept or pair[0].lower().decode("latin-1") in veil.headers
        )
        query = "" if self.address.query is None else f"?{self.address.query}"
        return secrets_of(f"{self.address.raw_path}{query}", rule.path, hidden, self._readable(), veil)

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
        otherwise = f"{self.method} {pattern}" if self.message is None else self.message.call.tool
        return self.told.tool or rule.tool or otherwise


def without_the_body(headers: Headers) -> Headers:
    """Without what is true of these very bytes only."""
    return tuple(pair for pair in headers if pair[0].lower() not in _OF_THE_BODY)


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
    return tuple(
        [pair for pair in headers if not _may_be_secret(pair[0], further) and not _leads_to_secret(*pair)]
    )


def _leads_to_secret(name: bytes, value: bytes) -> bool:
    """An address with a secret in its query, or before its host."""
    if name.lower() not in _ADDRESSES:
        return False
    pieces = re.split("[?&;#]", value.decode("latin-1"))
    return b"@" in value or any(sounds_secret(piece.partition("=")[0]) for piece in pieces if "=" in piece)


@lru_cache(maxsize=256)
def _may_be_secret(raw_name: bytes, further: tuple[str, ...]) -> bool:
    """Not needed in the record: a resend takes it from whoever asks again."""
    name = raw_name.lower()
    listed = name in CREDENTIAL_HEADERS or name.decode("latin-1") in further
    return listed or _SOUNDS_SECRET.search(name) is not None
