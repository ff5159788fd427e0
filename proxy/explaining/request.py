"""A request as a person gives it, and as the record kept it, ready to be named.

The address is what the agent calls, in any of three forms: of the proxy, of the upstream, or a path alone.
Header values are never repeated in a message: they may be secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from proxy.core.clauses import Wire
from proxy.core.headers import Headers
from proxy.core.identity import CLIENTS_OWN, CREDENTIAL_HEADERS, key_in_body, sort_headers
from proxy.core.intent import Call
from proxy.core.jsonrpc import Unclear, hear
from proxy.core.policy import (
    DEFAULT_PORTS,
    TOOL_METHOD,
    TOOLS_NAME,
    ClientKey,
    Credential,
    KeyRecipe,
    PolicySet,
    Rule,
    Upstream,
)
from proxy.errors import BadRequest, ConfigurationError, UnknownUpstream
from proxy.front.address import OwnAddress, Place, ToolAddress, UpstreamAddress, parse_target, split_target
from proxy.front.forwarded import reach
from proxy.front.naming import ToName
from proxy.front.reading import readable_body
from proxy.front.rpc import Message, as_counted, endpoint_of
from proxy.front.sending import without_secrets
from proxy.policy_file.values import host_and_port
from proxy.settings import Address
from proxy.settings_values import Unknown
from proxy.spool import Spool
from proxy.store.codec import StoredRequest

_URL = re.compile(r"(https?)://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
# A key is looked for in bodies up to this size.
LONGEST_LOOKED_INTO = 32 * 1024 * 1024
_JSON, _FORM = b"application/json", b"application/x-www-form-urlencoded"


def read_headers(lines: Sequence[str]) -> Headers:
    """As curl takes them: 'Name: value'."""
    found: list[tuple[bytes, bytes]] = []
    for number, line in enumerate(lines, 1):
        header = _HEADER.fullmatch(line)
        if header is None:
            raise ConfigurationError(f"-H number {number} is not a header: write it as 'Name: value'.")
        found.append((header[1].encode(), header[2].rstrip(" \t").encode()))
    return tuple(found)


def with_content_type(headers: Headers, body: bytes) -> Headers:
    """A body without a type is taken for what it looks like."""
    if not body or any(name.lower() == b"content-type" for name, _ in headers):
        return headers
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return (*headers, (b"Content-Type", _FORM))
    return (*headers, (b"Content-Type", _JSON))


def find_address(url: str, policies: PolicySet, listen: Address) -> UpstreamAddress:
    """Whose call this is. Raises BadRequest for what the proxy would refuse, UnknownUpstream."""
    found = _URL.fullmatch(url)
    if found is None:
        return _at_proxy(url)
    scheme, authority, rest = found[1].lower(), found[2], found[3]
    target = rest if rest.startswith("/") else "/" + rest
    if "@" in authority:
        raise BadRequest("Credentials do not belong in an address: give them with -H 'Authorization: …'.")
    try:
        host, port = host_and_port(authority, DEFAULT_PORTS[scheme])
    except ValueError as error:
        raise BadRequest(f"The address cannot be read: {error}.") from None
    if (host, port) == (listen.host, listen.port):
        return _at_proxy(target)
    at_upstream = [
        upstream
        for upstream in policies.reached
        if (upstream.scheme, upstream.host, upstream.port) == (scheme, host, port)
        and _below(target, upstream.base_path) is not None
    ]
    if at_upstream:
        upstream = max(at_upstream, key=lambda one: (len(one.base_path), one.name))
        return _at_proxy(f"/{upstream.name}{_below(target, upstream.base_path)}")
    if policies.at(host, port):
        path, query = split_target(target)
        at_host = UpstreamAddress("", path, query, place=Place(scheme, host, port))
        return reach(policies, Unknown.DENY, at_host)[0]
    address = _at_proxy(target)
    if address.upstream not in policies.upstreams:
        known = ", ".join(sorted(policies.upstreams)) or "none: name policy files with --policies PATH"
        raise UnknownUpstream(
            f"No upstream has {scheme}://{authority} as its base_url or among its hosts, and none is named "
            f"{address.upstream[:64]!r}; known upstreams: {known}."
        )
    return address


def _below(target: str, base_path: str) -> str | None:
    """The part of a target that comes after the upstream's base path, or None."""
    if not target.startswith(base_path):
        return None
    rest = target.removeprefix(base_path)
    if rest.startswith("/"):
        return rest
    return None if rest and not rest.startswith("?") else "/" + rest


def _at_proxy(target: str) -> UpstreamAddress:
    address = parse_target(target)
    if isinstance(address, OwnAddress):
        raise BadRequest(f"{address.path} is semel's own page: nothing is recorded there.")
    if isinstance(address, ToolAddress):
        if address.call:
            raise BadRequest("That is a report on a call; ask about the tool: /_semel/tools/{tool}.")
        return UpstreamAddress(TOOLS_NAME, f"/{address.tool}", None, address.speaker)
    return address


# ---- tools ----


def as_tool_call(request: ToName, limit: int) -> ToName:
    """As the proxy names it, where a tool is called: by its name and arguments."""
    protocol = request.upstream.protocol
    if protocol is Wire.TOOLS:
        keys = tuple(pair for pair in request.headers if pair[0].lower() == CLIENTS_OWN)
        body = request.body or Spool.of(b"{}")
        return request._replace(method=TOOL_METHOD, headers=as_counted(keys), body=body)
    if protocol is not Wire.MCP:
        return request
    try:
        calls = hear(readable_body(request.headers, request.body, limit).data).calls
    except Unclear as unclear:
        raise BadRequest(str(unclear)) from None
    if request.method != "POST" or len(calls) != 1:
        raise BadRequest(
            "Of what is said to an MCP server only calls of tools are recorded, and everything else passes: "
            'ask about a POST of {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": '
            '{"name": …, "arguments": …}}.'
        )
    base_path = (request.address.place or request.upstream).base_path
    raw_path, body = endpoint_of(request.address.raw_path, base_path), Spool.of(calls[0].text)
    message = Message(calls[0], "POST", raw_path, request.headers, body)
    return request._replace(
        method=TOOL_METHOD,
        address=request.address._replace(raw_path=message.tool_path),
        headers=message.counted_headers,
        body=message.arguments,
        endpoint=raw_path,
        answers=calls[0].answers,
    )


# ---- the record ----


def recorded_request(call: Call, stored: StoredRequest, body: bytes, upstream: Upstream) -> ToName:
    """The recorded request as it came, but for what the record does not keep (`hidden`)."""
    target, place = stored.target.decode("latin-1"), _place_of(stored, upstream)
    below = None if place is not None else _below(target, upstream.base_path)
    where, named, tool = (below if below is not None else target).partition("#")
    path, mark, query = where.partition("?")
    if named:  # a tool of an MCP server: no path has a #
        endpoint = endpoint_of(path, (place or upstream).base_path)
        path, headers = f"/{tool}", as_counted(stored.headers)
    else:
        endpoint, headers = "", stored.headers
    return ToName(
        upstream=upstream,
        address=UpstreamAddress(upstream.name, path, query if mark else None, place=place),
        method=stored.method,
        headers=headers,
        body=Spool.of(body) if body else None,
        occurrence=call.occurrence,
        tenant=call.tenant,
        recorded=True,
        endpoint=endpoint,
    )


def _place_of(stored: StoredRequest, upstream: Upstream) -> Place | None:
    """Where it went, if that is not the base_url but another of the upstream's hosts. (The base_url may have
    been another one when it went there.)"""
    sent_to = next((value for name, value in stored.headers if name.lower() == b"host"), b"")
    if not sent_to or sent_to == upstream.authority:
        return None
    host, port = host_and_port(sent_to.decode("latin-1"), DEFAULT_PORTS[upstream.scheme])
    is_known = PolicySet({upstream.name: upstream}).at(host, port)
    return Place(upstream.scheme, host, port) if is_known else None


def taken_over(typed: Headers, recorded: Headers, rule: Rule, further: tuple[str, ...]) -> Headers:
    """The headers that count which the record has and nobody typed: nearly always a -H that was forgotten."""

    def counts(pair: tuple[bytes, bytes]) -> bool:
        return bool(sort_headers((pair,), rule.key.counted, further).keyed)

    given = {name.lower() for name, _ in typed}
    return tuple(pair for pair in recorded if pair[0].lower() not in given and counts(pair))


def credentials_count(request: ToName, rule: Rule) -> bool:
    """A run is one trust domain: there they count only if the rule says so."""
    by_default = rule.key.credential is Credential.AUTO and not request.origin
    return by_default or rule.key.credential is Credential.INCLUDE


def client_key_counts(request: ToName, rule: Rule) -> bool:
    """In a run it is only evidence of a retry."""
    return rule.key.client_key is not ClientKey.IGNORE and not request.origin


def client_keys(request: ToName, rule: Rule) -> list[bytes]:
    """What the client put where the upstream takes a key, or its Idempotency-Key."""
    body = readable_body(request.counted, request.body, LONGEST_LOOKED_INTO)
    if in_body := key_in_body(body, rule.key.implied):
        return [in_body]
    return sort_headers(request.counted, key_header=rule.key.implied.client_header).client_keys


def key_place(rule: Rule) -> str:
    """In words: where a client puts a key of its own."""
    if rule.key.implied.client_field:
        return f"body.{rule.key.implied.client_field}"
    return f"header {rule.key.implied.client_header or CLIENTS_OWN.decode()}"


def under(request: ToName, rule: Rule, key: KeyRecipe) -> ToName:
    """The same request, had the rule this recipe."""
    rules = tuple(replace(one, key=key) if one is rule else one for one in request.upstream.rules)
    return request._replace(upstream=replace(request.upstream, rules=rules))


def hidden(request: ToName) -> Headers:
    """The headers of a request that a record of it would not keep."""
    kept = set(without_secrets(request.headers, request.upstream.secrets))
    return tuple(pair for pair in request.headers if pair not in kept)


def with_hidden_of(recorded: ToName, other: ToName) -> ToName:
    return recorded._replace(headers=(*recorded.headers, *hidden(other)))


def with_unknown_hidden(recorded: ToName, named: Sequence[str]) -> ToName:
    """With secrets that nobody else has, in every header that may hold one; `named`: the rule's headers."""
    unknown = b"not kept in the record"
    keyed = tuple((name.encode(), unknown) for name in named)
    secret = ((min(CREDENTIAL_HEADERS), unknown),)
    only_hidden = hidden(recorded._replace(headers=(*secret, *keyed)))
    return recorded._replace(headers=(*recorded.headers, *only_hidden))
