"""The forward proxy's requests: which upstream's they are, who speaks, and whether semel itself is meant."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple

from proxy.core.headers import Headers
from proxy.core.policy import Mode, PolicySet, Rule, Upstream
from proxy.core.reachable import literal
from proxy.errors import BadRequest, UnknownUpstream
from proxy.front.address import (
    Address,
    Place,
    UpstreamAddress,
    parse_absolute,
    parse_target,
    split_target,
)
from proxy.front.run_ref import NOBODY, Speaker, agree, parse_user
from proxy.settings_values import Unknown

UNLISTED = "unlisted"  # the label of every host that no upstream names


def _unlisted(*rules: Rule) -> Upstream:
    return Upstream(name=UNLISTED, scheme="http", host="unlisted.invalid", port=80, rules=rules)


# By what `forward.unknown` says: recorded by the table without a rule, or handed on without a record.
_UNLISTED = {
    Unknown.RECORD: _unlisted(),
    Unknown.TUNNEL: _unlisted(Rule(name=UNLISTED, mode=Mode.PASS)),
}


def unlisted(unknown: Unknown) -> PolicySet:
    """By what calls of hosts are governed that no upstream names."""
    upstream = _UNLISTED.get(unknown)
    return PolicySet({} if upstream is None else {UNLISTED: upstream})


class Inside(NamedTuple):
    """What a CONNECT said, for all requests that come through it."""

    place: Place
    speaker: Speaker


class OwnPlaces:
    """Where semel itself is. Told once it listens."""

    def __init__(self) -> None:
        self.listening: frozenset[tuple[str, int]] = frozenset()

    def listen_at(self, names: Sequence[tuple[str, int]]) -> None:
        self.listening = frozenset(names)

    def are_everywhere(self) -> bool:
        """Whether where it listens says nothing about how others reach it."""
        return any(_is_any(host) for host, _ in self.listening)

    def are(self, host: str, port: int, reached_at: object = None) -> bool:
        """`reached_at`: the address at which this client found semel."""
        if (host, port) in self.listening or reached_at == (host, port):
            return True
        ports = {own_port for own_host, own_port in self.listening if _is_local(own_host)}
        return port in ports and _is_local(host)

    def lie_at(self, peer: object, local: object) -> bool:
        """Whether a connection from `local` to `peer`, as sockets name them, leads back to semel."""
        if not isinstance(peer, tuple) or not isinstance(local, tuple):
            return False
        host, port = _plain(peer[0]), peer[1]
        if (host, port) in self.listening:
            return True
        wild = any(own_port == port and _is_any(own_host) for own_host, own_port in self.listening)
        return wild and (host == _plain(local[0]) or _is_local(host))


def _plain(host: str) -> str:
    """An IPv4 address that is spelt as one of IPv6 is that address."""
    written = literal(host)
    return host if written is None else str(written)


def _is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::")  # noqa: S104 (compared, not bound)


def _is_local(host: str) -> bool:
    address = literal(host)
    return host == "localhost" if address is None else address.is_loopback or address.is_unspecified


def proxy_user(headers: Headers) -> Speaker:
    """`Proxy-Authorization: Basic base64(runref:token)`."""
    speakers = [_basic(value) for name, value in headers if name.lower() == b"proxy-authorization"]
    return agree(*speakers) if speakers else NOBODY


def _basic(value: bytes) -> Speaker:
    scheme, _, encoded = value.strip(b" \t").partition(b" ")
    if scheme.lower() != b"basic":
        raise BadRequest("Proxy-Authorization is Basic: HTTPS_PROXY=http://RUN:TOKEN@HOST:PORT.")
    try:
        decoded = base64.b64decode(encoded.strip(b" \t"), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise BadRequest("Proxy-Authorization is not base64 of RUN:TOKEN.") from None
    return parse_user(decoded)


def forward_address(
    target: str, headers: Headers, inside: Inside | None, own: OwnPlaces, reached_at: object
) -> Address:
    """Of a request in absolute form, or through a CONNECT. What names semel itself came directly, as it were.
    An upstream's address is only half of one: its place says where, and `reach` whose that is."""
    if inside is not None:
        return _through_connect(target, inside)
    place, rest = parse_absolute(target)
    speaker = proxy_user(headers)
    if own.are(place.host, place.port, reached_at):
        address = parse_target(rest)
        if isinstance(address, UpstreamAddress):
            return address._replace(speaker=agree(speaker, address.speaker))
        return address
    path, query = split_target(rest)
    return UpstreamAddress("", path, query, speaker, place)


def _through_connect(target: str, inside: Inside) -> Address:
    if not target.startswith("/"):
        place, target = parse_absolute(target)
        if place != inside.place:
            raise BadRequest(
                f"The request names {place.origin}, but the CONNECT it came through {inside.place.origin}."
            )
    path, query = split_target(target)
    return UpstreamAddress("", path, query, inside.speaker, inside.place)


def reach(
    policies: PolicySet, unknown: Unknown, address: UpstreamAddress
) -> tuple[UpstreamAddress, Upstream]:
    """Whose it is. Where it is the very address that the base URL makes of the same call, it becomes that."""
    place = address.place
    assert place is not None
    candidates = policies.at(place.host, place.port)
    if not candidates:
        unlisted = _UNLISTED.get(unknown)
        if unlisted is None:
            raise unknown_host(place.host, place.port)
        return address._replace(upstream=UNLISTED), unlisted
    upstream = candidates[0] if len(candidates) == 1 else _nearest(candidates, place, address.raw_path)
    if _is_under(upstream, place, address.raw_path):
        below = address.raw_path[len(upstream.base_path) :]
        return address._replace(upstream=upstream.name, raw_path=below, place=None), upstream
    return address._replace(upstream=upstream.name), upstream


def _is_under(upstream: Upstream, place: Place, path: str) -> bool:
    """Whether the base URL leads there too."""
    is_base = (place.scheme, place.host, place.port) == (upstream.scheme, upstream.host, upstream.port)
    return is_base and path.startswith(f"{upstream.base_path}/")


def _nearest(candidates: tuple[Upstream, ...], place: Place, path: str) -> Upstream:
    """Of several upstreams at one host the one whose base_url says more of the path. Never a guess: their
    rules differ."""
    under = [upstream for upstream in candidates if _is_under(upstream, place, path)]
    longest = max([len(upstream.base_path) for upstream in under], default=0)
    nearest = [upstream for upstream in under if len(upstream.base_path) == longest]
    if len(nearest) == 1:
        return nearest[0]
    names = ", ".join(sorted(upstream.name for upstream in nearest or candidates))
    raise UnknownUpstream(
        f"The host {place.host}:{place.port} may be that of several upstreams ({names}): name it in the "
        "'hosts' of one of them."
    )


def unknown_host(host: str, port: int) -> UnknownUpstream:
    return UnknownUpstream(
        f"No policy names the host {host}:{port}. Add it to an upstream's 'hosts', let it pass with "
        "forward: {unknown: tunnel}, or leave it out of the proxy with NO_PROXY."
    )
