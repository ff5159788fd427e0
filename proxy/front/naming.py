"""Which rule a request meets and what the call is called; remembered for requests that come again.

A retry, a poll, a shared search is often the same request to the last byte. What is remembered is kept
under a keyed digest of all those bytes, so no body and no credential stays behind.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

from proxy.core.approval import binding, needs_person
from proxy.core.canonical import CANONICAL_VERSION, Body, is_json
from proxy.core.document import document_of
from proxy.core.encoding import codings
from proxy.core.headers import Headers, without_header
from proxy.core.hints import Hints, as_hinted
from proxy.core.identity import ANY_OCCURRENCE, Asked, Identity, frame, identify, left_out, naming, wording
from proxy.core.matching import Match, Seen, default_rule, find_rule, find_shadow, hidden_in_case
from proxy.core.policy import TOOL_METHOD, ClientKey, Mode, PolicySet, Repeat, Rule, Scope, Upstream
from proxy.core.redaction import (
    Veiling,
    hide_body,
    hide_headers,
    hide_names,
    hide_path,
    hide_query,
    naming_veil,
    redacts,
)
from proxy.core.retry_evidence import NO_EVIDENCE, Evidence, evidence_of
from proxy.core.upstream_key import LOOKED_INTO, can_carry
from proxy.front.address import UpstreamAddress
from proxy.front.as_now import also_hiding, as_asked_now
from proxy.front.aside import Aside
from proxy.front.reading import asks_for_a_token, readable_body
from proxy.spool import Spool

# A larger body is named aside, and so is every compressed one: what it becomes does not show in its size.
NAMED_INLINE = 256 * 1024
# And so many values, where a rule looks at them.
LOOKED_AT_INLINE = 500
# Requests up to this size, with arguments up to this size, are remembered; this many of them.
REMEMBERED_SIZE, REMEMBERED = 16 * 1024, 4096
# After so many lookups in vain nothing seems to come again: look, and remember, only now and then.
IN_VAIN, SELDOM = 256, 16
# Larger arguments are told to people as a digest. The name was made from all of them.
TOLD_ARGUMENTS = 64 * 1024


class ToName(NamedTuple):
    """A request that has its upstream: everything that its name depends on, but for the secret."""

    upstream: Upstream
    address: UpstreamAddress
    method: str
    headers: Headers
    body: Spool | None
    occurrence: int
    tenant: str
    origin: str = ""  # in a run: the name under which its calls are named
    canonical: int = CANONICAL_VERSION
    pin: str = ""  # stands for the recipe that the run is pinned to
    present: Upstream | None = None  # in a run: as the policies are now, where those ask people
    recorded: bool = False  # read from a record, where what must be hidden is hidden already
    # Of a call to a tool of an MCP server:
    endpoint: str = ""  # the path there
    hints: Hints | None = None  # what the server says of the tool
    answers: bytes = b""  # what the client says beside the arguments; a person permits that too

    @property
    def host(self) -> str:
        """Where it goes, if that is not the only place there is: two servers may have a tool of one name."""
        return ("" if self.address.place is None else self.address.place.origin) + self.endpoint

    @property
    def counted(self) -> Headers:
        """The headers that may take part in the name: not the one that semel replaces by its own."""
        replaced = self.upstream.replaced
        return without_header(self.headers, replaced) if replaced else self.headers


class Named(NamedTuple):
    """`identity` is None for what passes without a record. In a run it names all occurrences together,
    `shared` is the call of the whole tenant from which the rule fills it, and `evidence` is what the request
    says about being a retry. `bound_to`: what a person has to permit; empty where nobody has to. `goes_live`:
    it is recorded because a budget counts it, and is never given again."""

    match: Match
    safe: bool
    identity: Identity | None
    shared: Identity | None = None
    evidence: Evidence = NO_EVIDENCE
    bound_to: bytes = b""
    goes_live: bool = False


class Namer:
    def __init__(self, *, veiling: Veiling, body_limit: int, aside: Aside) -> None:
        self.veiling = veiling
        self._secret = veiling.secret
        self._body_limit = body_limit
        self._aside = aside
        self._salt = os.urandom(32)
        self._policies: PolicySet | None = None
        self._remembered: OrderedDict[bytes, Named] = OrderedDict()
        self._asked = self._in_vain = 0

    async def name(self, policies: PolicySet, request: ToName) -> Named:
        if policies is not self._policies:  # a reload: other rules, other names
            self._policies = policies
            self._remembered.clear()
        if (
            len(request.address.raw_path) + (0 if request.body is None else request.body.size)
            > REMEMBERED_SIZE
        ):
            return await self._find(request)
        if not request.origin:  # a run is there to be asked again
            self._asked += 1
            if self._in_vain > IN_VAIN and self._asked % SELDOM:
                return await self._find(request)
        ticket = self._ticket(request)
        named = self._remembered.get(ticket)
        if named is not None:
            self._in_vain = 0
            self._remembered.move_to_end(ticket)
            return named
        self._in_vain += not request.origin
        named = await self._find(request)
        # It may have been found aside, and there may have been a reload meanwhile.
        if policies is self._policies and len(_arguments(named)) <= REMEMBERED_SIZE:
            self._remembered[ticket] = named
            if len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)
        return named

    def _ticket(self, request: ToName) -> bytes:
        """Everything that a name can depend on, as it came; Semel-Occurrence is among the headers."""
        address, body = request.address, request.body
        whose = f"{request.tenant} {request.origin} {request.pin}"
        where = address.upstream if address.place is None else address.upstream + " " + address.place.origin
        target = f"{whose} {request.method} {where} {address.raw_path}#{request.endpoint}".encode()
        if request.method == TOOL_METHOD:
            target += repr((request.hints, request.answers)).encode()
        query = b"" if address.query is None else b"?" + address.query.encode()
        whole = body.whole() if body is not None else b""
        parts = (target, query, whole, *chain.from_iterable(request.headers))
        return blake2b(frame(parts), digest_size=16, key=self._salt).digest()

    async def _find(self, request: ToName) -> Named:
        if _is_quick(request):
            return name_now(request, self._secret, self._body_limit)
        return await self._aside.run(name_now, request, self._secret, self._body_limit)

    async def shadow(self, request: ToName) -> Match | None:
        """Its rule, if that only looks on."""
        if not request.upstream.shadows:
            return None
        if not request.upstream.looks or _is_quick(request):
            return _shadow(request, self._body_limit)
        return await self._aside.run(_shadow, request, self._body_limit)


def _is_quick(request: ToName) -> bool:
    body = request.body
    if body is None:
        return True
    if body.size > NAMED_INLINE or codings(request.headers):
        return False
    # A rule's expression may look at every value, and values are told apart by commas.
    looks = request.upstream.looks or request.upstream.guards
    return not looks or body.whole().count(b",") <= LOOKED_AT_INLINE


def _shadow(request: ToName, body_limit: int) -> Match | None:
    seen = seen_of(request, body_limit)
    return find_shadow(request.upstream, request.method, request.address.raw_path, seen)


def name_now(request: ToName, secret: bytes, body_limit: int) -> Named:
    """As it is recorded: large arguments are told as a digest."""
    named = name_in_full(request, secret, body_limit)
    return named if named.identity is None else named._replace(identity=_as_told(named.identity))


def _as_told(identity: Identity) -> Identity:
    if len(identity.arguments) <= TOLD_ARGUMENTS:
        return identity
    return identity._replace(arguments=arguments_digest(identity.arguments))


def name_in_full(request: ToName, secret: bytes, body_limit: int) -> Named:
    """The rule and the name. Pure: the same request under the same policies and secret has the same name."""
    upstream, address, method, headers = request.upstream, request.address, request.method, request.counted
    seen = seen_of(request, body_limit)
    match = find_rule(upstream, method, address.raw_path, seen)
    if match is None:
        has_grant_type = asks_for_a_token(seen.body)
        match = default_rule(method, has_grant_type=has_grant_type, accounts=upstream.accounts)
    if upstream.hides_by_looks:
        match = also_hiding(match, hidden_in_case(upstream, method, address.raw_path, seen))
    if request.hints is not None:
        rule = as_hinted(match.rule, request.hints, trusted=upstream.trust_annotations)
        match = match._replace(rule=rule)
    asks = match
    if request.present is not None:
        match, asks = as_asked_now(match, request.present, method, address.raw_path, seen)
    rule = match.rule
    bound_to = b""
    if rule.approval is not None and rule.mode is Mode.ONCE:
        bound_to = _bound_to(request, asks, match, seen.body, secret)
    safe = rule.is_safe(method) and not bound_to  # what a person must permit is no mere read
    # Outside a run there is no attempt to count in: a safe call that is not shared goes live each time.
    goes_live = safe and rule.mode is Mode.ONCE and rule.repeat is Repeat.ORDINAL and not request.origin
    if (goes_live and rule.budget is None) or rule.mode in (Mode.PASS, Mode.DENY):
        return Named(match, safe, None)
    asked = _asked(request, match, seen.body, secret)
    if not request.origin:
        identity = identify(asked, rule, secret)
        return Named(match, safe, identity, bound_to=bound_to, goes_live=goes_live)
    in_run = asked._replace(run=request.origin, occurrence=ANY_OCCURRENCE, canonical=request.canonical)
    shares = rule.mode is Mode.CACHE or (rule.scope is Scope.TENANT and not safe)
    # In a run the client's key is only evidence: SDKs mint new ones after a crash, and those must find the
    # shared call that may be in doubt.
    shared = identify(asked, _without_client_key(rule), secret) if shares else None
    evidence = evidence_of(headers, asked.body, rule.key, upstream.credentials, secret)
    if rule.key.normalize:
        evidence = evidence._replace(wording=wording(in_run, rule, secret))
    return Named(match, safe, identify(in_run, rule, secret), shared, evidence, bound_to)


def _asked(request: ToName, match: Match, body: Body, secret: bytes) -> Asked:
    upstream, address = request.upstream, request.address
    veil = naming_veil(match.rule, request.tenant, secret, recorded=request.recorded)
    return Asked(
        tenant=request.tenant,
        upstream=upstream.name,
        method=request.method,
        raw_path=hide_path(address.raw_path, match.rule.path, veil).encode(),
        query=hide_query(address.query, veil).encode() if address.query else b"",
        headers=hide_headers(request.counted, veil),
        path_names=hide_names(match.names, veil) if match.names else match.names,
        body=hide_body(body, veil),
        occurrence=request.occurrence,
        credentials=upstream.credentials,
        host=request.host,
    )


def named_by_head(
    request: ToName, secret: bytes, body_limit: int
) -> tuple[Named, Callable[[bytes], Identity]] | None:
    """What the request is called, and how others are that have the same head: by what their bodies hold. None
    where more than that may hang on a body: which rule it meets, whether a person is asked, what is hidden of
    it, how it is read. Outside runs, and with a body in JSON."""
    upstream, seen = request.upstream, seen_of(request, body_limit)
    if upstream.looks or request.origin or codings(request.headers) or not is_json(seen.body.media_type):
        return None
    named = name_now(request, secret, body_limit)
    rule = named.match.rule
    if named.identity is None or rule.approval is not None or redacts(rule):
        return None
    media_type, content_type, _ = seen.body
    name = naming(_asked(request, named.match, Body(), secret), rule, secret)

    def name_body(data: bytes) -> Identity:
        return _as_told(name(Body(media_type, content_type, data)))

    return named, name_body


def seen_of(request: ToName, body_limit: int) -> Seen:
    headers, query = request.counted, request.address.query
    return Seen(
        headers,
        query.encode() if query else b"",
        lambda: readable_body(headers, request.body, body_limit),
    )


def _bound_to(request: ToName, asks: Match, match: Match, body: Body, secret: bytes) -> bytes:
    """What a person has to permit; empty where nobody has to. `asks`: by the rule that asks."""
    address, approval = request.address, match.rule.approval
    query = address.query.encode() if address.query else b""
    assert approval is not None
    if not needs_person(approval, document_of(path={**match.names, **asks.names}, query=query, body=body)):
        return b""
    asked = Asked(
        tenant=request.tenant,
        upstream=request.upstream.name,
        method=request.method,
        raw_path=address.raw_path.encode(),
        query=query,
        headers=request.headers,
        path_names=match.names,
        body=body,
        host=f"{request.host} {blake2b(request.answers).hexdigest()}" if request.answers else request.host,
    )
    excluded = _replaced(request, body, match.rule)
    return binding(asked, match.rule, secret, excluded=excluded, further=asks.rule.key.counted)


def _replaced(request: ToName, body: Body, rule: Rule) -> tuple[str, ...]:
    """What a person does not permit: what does not count, and a client's key where semel sends its own in its
    place. Where it cannot, that goes out as it is."""
    key, sent = rule.upstream_key, request.body
    raw = None if sent is None or sent.size > LOOKED_INTO else sent.whole()
    carried = key is not None and can_carry(key, request.headers, raw)
    return left_out(body, rule.key) if carried else rule.key.exclude


def _without_client_key(rule: Rule) -> Rule:
    return replace(rule, key=replace(rule.key, client_key=ClientKey.IGNORE))


def _arguments(named: Named) -> bytes:
    return b"" if named.identity is None else named.identity.arguments


def arguments_digest(arguments: bytes) -> bytes:
    """Canonical JSON too, of a shape that arguments do not have."""
    return b'["digest","%b"]' % blake2b(arguments, digest_size=32).hexdigest().encode()
