"""Which addresses a host may have: the judgement alone, without a network."""

from __future__ import annotations

import random
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from proxy.core.reachable import Kind, Said, advice, kind_of, literal, may_be

PUBLIC = ["8.8.8.8", "93.184.216.34", "1.0.0.1", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1",
          "198.17.255.255", "198.20.0.0", "223.255.255.255", "11.0.0.0", "126.255.255.255", "128.0.0.1",
          "2606:4700::1", "2a00:1450:4001::1", "2001:4860:4860::8888",
          "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1", "64:ff9b::168.63.129.17"]  # fmt: skip
PRIVATE = ["10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "127.0.0.1",
           "127.255.255.255", "100.64.0.1", "100.127.255.255", "198.18.0.1", "198.19.255.255", "::1",
           "fc00::1", "fdff::1", "fec0::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::10.0.0.1",
           "64:ff9b::127.0.0.1", "2002:7f00:1::", "2002:a00:1::1", "::127.0.0.1", "::10.0.0.1",
           "::ffff:0:127.0.0.1", "2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:192.168.0.1"]  # fmt: skip
SPECIAL = ["0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "192.0.0.1", "192.0.0.192", "192.0.2.1",
           "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
           "255.255.255.255", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254", "::",
           "fe80::1", "fe80::1%1", "ff02::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1", "4000::1",
           "64:ff9b:1::1", "::ffff:169.254.169.254", "::ffff:0.0.0.0", "64:ff9b::169.254.169.254",
           "2002:a9fe:a9fe::", "::169.254.169.254", "64:ff9b::168.63.129.16", "2001:0:a9fe:a9fe::1",
           "2606:4700::5efe:169.254.169.254", "2001:2::1", "2001:20::1"]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        *((Kind.PUBLIC, each) for each in PUBLIC),
        *((Kind.PRIVATE, each) for each in PRIVATE),
        *((Kind.SPECIAL, each) for each in SPECIAL),
    ],
)
def test_kinds(kind: Kind, address: str) -> None:
    assert kind_of(ip_address(address)) is kind


def test_teredo_is_what_its_server_and_its_client_are() -> None:
    """The client is written upside down."""
    hidden = ~int(IPv4Address("10.0.0.1")) & 0xFFFFFFFF
    server = int(IPv4Address("65.54.227.120"))
    assert kind_of(IPv6Address(0x20010000 << 96 | server << 64 | hidden)) is Kind.PRIVATE
    shown = ~int(IPv4Address("8.8.8.8")) & 0xFFFFFFFF
    assert kind_of(IPv6Address(0x20010000 << 96 | server << 64 | shown)) is Kind.PUBLIC


def test_what_python_knows_to_be_somebody_s_own_is_never_public() -> None:
    """An independent opinion on addresses drawn at random, and at the borders of all networks."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    drawn = [ip_address(draw.getrandbits(32)) for _ in range(3000)]
    drawn += [IPv6Address(draw.getrandbits(128) >> draw.choice((0, 3, 60, 90))) for _ in range(3000)]
    for address in drawn:
        if address.is_private or address.is_link_local or address.is_multicast or address.is_reserved:
            assert _embeds(address) or kind_of(address) is not Kind.PUBLIC, address


def _embeds(address: IPv4Address | IPv6Address) -> bool:
    """Where Python looks at the outside of an address, and semel at what is inside."""
    if isinstance(address, IPv4Address):
        return False
    bits = int(address)
    return bits >> 32 in (0, 0xFFFF, 0xFFFF0000) or bits >> 96 == 0x20010000 or bits >> 112 == 0x2002


@pytest.mark.parametrize("said", list(Said))
@pytest.mark.parametrize("host", ["api.example", "localhost", "8.8.8.8"])
def test_a_public_address_is_for_every_host(host: str, said: Said) -> None:
    assert may_be(host, "8.8.8.8", said)


# (host, address) and for whom: said NOTHING, NAMED, PRIVATE, and each of them with `forward.private: allow`.
TABLE = [
    ("api.example", "10.0.0.1", "..p aaa"),
    ("api.example", "127.0.0.1", "..p aaa"),
    ("api.example", "169.254.169.254", "... ..."),
    ("api.example", "::ffff:169.254.169.254", "... ..."),
    ("api.example", "0.0.0.0", "... ..."),
    ("api.example", "fd00:ec2::254", "... ..."),
    ("10.0.0.1", "10.0.0.1", ".np aaa"),
    ("10.0.0.1", "::ffff:10.0.0.1", ".np aaa"),
    ("::ffff:10.0.0.1", "10.0.0.1", ".np aaa"),
    ("10.0.0.1", "10.0.0.2", "... ..."),
    ("169.254.169.254", "169.254.169.254", ".np aaa"),
    ("fe80::1%1", "fe80::1%1", ".np aaa"),
    ("localhost", "127.0.0.1", ".np aaa"),
    ("localhost", "::1", ".np aaa"),
    ("LOCALHOST.", "127.0.0.2", ".np aaa"),
    ("app.localhost", "127.0.0.1", ".np aaa"),
    ("localhost", "10.0.0.1", "..p aaa"),
    ("localhost", "169.254.169.254", "... ..."),
    ("notlocalhost", "127.0.0.1", "..p aaa"),
    ("localhost.example", "127.0.0.1", "..p aaa"),
    ("127.1", "127.0.0.1", "..p aaa"),
    ("2130706433", "127.0.0.1", "..p aaa"),
]


@pytest.mark.parametrize(("host", "address", "allowed"), TABLE)
def test_what_was_said_decides(host: str, address: str, allowed: str) -> None:
    given = [
        may_be(host, address, said, private=private)
        for private in (False, True)
        for said in (Said.NOTHING, Said.NAMED, Said.PRIVATE)
    ]
    assert given == [mark != "." for mark in allowed.replace(" ", "")]


@pytest.mark.parametrize("said", list(Said))
@pytest.mark.parametrize("host", ["mail.internal", "10.1.2.3"])
def test_advice_is_about_the_host_and_not_the_address(host: str, said: Said) -> None:
    told = advice(host, said)
    assert host in told
    assert any(key in told for key in ("private: true", "'hosts'"))


def test_only_an_address_is_one() -> None:
    assert literal("::ffff:127.0.0.1") == IPv4Address("127.0.0.1")
    assert [literal(name) for name in ("127.1", "localhost", "0x7f000001", "")] == [None] * 4
