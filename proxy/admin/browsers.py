"""Other sites' pages may not reach semel through the browser of a person who can.

No answer allows another origin to read it (there is no CORS), and these checks keep them from deciding
anything: a page of another origin is told apart by Origin and Sec-Fetch-Site, which pages cannot set, and
a form cannot send JSON. A page that has rebound its own name to this machine is told apart by that name:
on loopback semel is called by an address or as localhost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address

from proxy.core.headers import Headers
from proxy.errors import CrossSite, Misdirected
from proxy.settings import Address

# `none`: a person typed the address or used a bookmark.
_OWN_SITES = frozenset({"same-origin", "none"})


def check(headers: Headers, listen: Address) -> None:
    hosts = list(_values(headers, b"host"))
    for host in hosts if listen.is_loopback else ():
        if not _is_ours(_name_in(host), listen.host):
            raise Misdirected(
                f"This semel listens on {listen.host} only, and is not called {_name_in(host)[:100]!r}: use "
                "that address, or localhost."
            )
    for site in _values(headers, b"sec-fetch-site"):
        if site.lower() not in _OWN_SITES:
            raise CrossSite("Pages of other sites may not speak to semel. Use `semel calls`, or curl.")
    for origin in _values(headers, b"origin"):
        if not _same(origin, hosts):
            raise CrossSite(
                f"The Origin {origin[:100]!r} is not semel's own. Pages of other sites may not speak to it."
            )


def _values(headers: Headers, wanted: bytes) -> Iterator[str]:
    return (value.decode("latin-1").strip() for name, value in headers if name.lower() == wanted)


def _same(origin: str, hosts: Iterable[str]) -> bool:
    """Behind a proxy that speaks TLS the scheme is not ours to know; the host and the port are."""
    scheme, _, authority = origin.lower().partition("://")
    return scheme in ("http", "https") and any(authority == host.lower() for host in hosts)


def _name_in(host: str) -> str:
    """The name in `name:port`, `[::1]:port`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host


def _is_ours(name: str, listen: str) -> bool:
    if name.lower() in ("localhost", listen.lower()):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
