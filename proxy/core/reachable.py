"""Which addresses a host may turn out to have. Asked of the address that is connected to, never of a name.

A public address is for every host. Any other was said before, by whoever wrote the policy: as the address
itself, as a name that means this machine, or by `private: true`. A name never leads to what is only for one
link, for a group or for nobody: the services there (169.254.169.254) take no password.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address


class Said(Enum):
    """What is known of a host before it is resolved."""

    NOTHING = "nothing"  # no policy names it, or only by a wildcard
    NAMED = "named"  # a policy names it
    PRIVATE = "private"  # and says that its name may lead to a private address


class Kind(IntEnum):
    """The higher, the less is a host expected there."""

    PUBLIC = 0
    PRIVATE = 1  # of this machine, or of a network that its owner has to himself
    SPECIAL = 2  # nobody's server has a name there


# By the registries of special-purpose addresses (RFC 6890). Not by ipaddress's own word: that changes with
# Python's version.
_PRIVATE = tuple(
    map(
        ip_network,
        (
            *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8"),
            "100.64.0.0/10",  # shared by a provider's customers; VPNs use it
            "198.18.0.0/15",  # benchmarks; resolvers of some VPNs give these out for every name
            *("::1/128", "fc00::/7", "fec0::/10"),
        ),
    )
)
_SPECIAL = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.88.99.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            *("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),  # for documents
            # Where clouds keep the credentials of a machine, beside 169.254.169.254.
            *("100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32", "fd20:ce::/32"),
            *("2001::/23", "2001:db8::/32", "3fff::/20"),
        ),
    )
)
_GLOBAL_6 = ip_network("2000::/3")  # everything else of IPv6 is not given out to anybody

# Where an IPv6 address has an IPv4 address inside: what it leads to is that one. The second number: how far
# from the right its bits are.
_EMBEDDING = (
    (ip_network("::ffff:0:0/96"), 0),  # mapped
    (ip_network("::ffff:0:0:0/96"), 0),  # translated
    (ip_network("64:ff9b::/96"), 0),  # NAT64
    (ip_network("2002::/16"), 80),  # 6to4
    (ip_network("::/96"), 0),  # compatible, long out of use
)
_TEREDO = ip_network("2001::/32")
_LOOPBACK_6 = IPv6Address("::1")
# ISATAP: any prefix, then one of these, then an IPv4 address.
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
_LOW_32 = 0xFFFFFFFF


def kind_of(address: Address) -> Kind:
    if isinstance(address, IPv6Address):
        inside = list(_embedded(address))
        if inside:
            return max(map(kind_of, inside))
    if any(address in network for network in _SPECIAL):
        return Kind.SPECIAL
    if any(address in network for network in _PRIVATE):
        return Kind.PRIVATE
    return Kind.PUBLIC if address.version == 4 or address in _GLOBAL_6 else Kind.SPECIAL


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    bits = int(address)
    if address in _TEREDO:
        yield IPv4Address(bits >> 64 & _LOW_32)  # its server
        yield IPv4Address(~bits & _LOW_32)  # and its client, written upside down
        return
    if address == _LOOPBACK_6:
        return
    for network, shift in _EMBEDDING:
        if address in network:
            yield IPv4Address(bits >> shift & _LOW_32)
            return
    if bits >> 32 & _LOW_32 in _ISATAP:
        yield IPv4Address(bits & _LOW_32)


def literal(host: str) -> Address | None:
    """The address that a host is, if it is one and no name. An IPv4 address that is spelt as one of IPv6 is
    that address."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def may_be(host: str, address: str, said: Said, *, private: bool = False) -> bool:
    """Whether `host` may have this address, as a resolver spells it. `private`: names may lead to private
    addresses whatever policies say, and what a client writes out is as good as named."""
    found = literal(address)
    if found is None:
        return False
    kind = kind_of(found)
    if kind is Kind.PUBLIC:
        return True
    if said is not Said.NOTHING or private:
        written = literal(host)
        if written is not None:
            return written == found
        if _means_this_machine(host) and found.is_loopback:
            return True
    return kind is Kind.PRIVATE and (said is Said.PRIVATE or private)


def _means_this_machine(host: str) -> bool:
    name = host.lower().removesuffix(".")
    return name == "localhost" or name.endswith(".localhost")


def advice(host: str, said: Said) -> str:
    """What to do about a host that may not be reached, without the address: whoever asks need not know it."""
    if literal(host) is not None:  # or it would be reached
        return f"no policy names {host}, and it is not a public address: add it to an upstream's 'hosts'"
    led = f"the name {host} leads to an address that is not public"
    match said:
        case Said.NOTHING:
            return (
                f"{led}, and no policy names that host itself: add it to the 'hosts' of an upstream "
                "that says 'private: true'"
            )
        case Said.NAMED:
            return f"{led}: if that is meant, write 'private: true' into its policy"
        case Said.PRIVATE:
            return (
                f"{led}, and not of a private network either: if that is meant, write the address itself "
                "into 'base_url' or 'hosts'"
            )
