"""Certificates of hosts: what every TLS library wants of them, short-lived, bounded in number."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from proxy import leaf_certificates
from proxy.ca import load_or_make
from proxy.errors import BadRequest
from proxy.front.address import host_name, parse_authority
from proxy.front.interception import spelt
from proxy.leaf_certificates import VALID_FOR, Leaves

HOSTS = {
    "api.example.com": "api.example.com",
    "10.1.2.3": "10.1.2.3",
    "2001:db8::1": "2001:db8::1",
    "xn--mnchen-3ya.example": "xn--mnchen-3ya.example",
    "under_score.example": "under_score.example",
    ".".join(["a" * 60] * 4): ".".join(["a" * 60] * 4),  # longer than a common name may be
}


@pytest.fixture
def leaves(tmp_path: Path) -> Leaves:
    return Leaves(load_or_make(tmp_path), spelt)


@pytest.mark.parametrize("host", HOSTS)
def test_a_handshake_with_a_strict_client_succeeds(leaves: Leaves, host: str) -> None:
    """The client knows the authority alone, and checks the name and every extension."""
    trusting = ssl.create_default_context(cadata=leaves.authority.pem)
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = leaves.context(host).wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server, server_hostname=host)
    waiting = [client, server]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    other = trusting.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="other.example")
    assert other.server_hostname != host


@pytest.mark.parametrize("host", ["api.example.com", "10.1.2.3", "2001:db8::1"])
def test_a_certificate_says_all_that_verifiers_ask_for(leaves: Leaves, host: str) -> None:
    """Names as alternative names, usage, both key identifiers; checked by an independent verifier too."""
    certificate, authority = leaves.certificate(host, time.time()), leaves.authority.certificate
    store = Store([authority])
    (name,) = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    verifier = PolicyBuilder().store(store).build_server_verifier(name)
    assert verifier.verify(certificate, []) == [certificate, authority]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    issuer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert issuer.key_identifier == own.digest


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_accepts_it(leaves: Leaves, tmp_path: Path) -> None:
    """With its strictest check, as a server's, for the name."""
    leaf = tmp_path / "leaf.pem"
    certificate = leaves.certificate("api.example.com", time.time())
    leaf.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    verify = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile"]
    good = [*verify, str(leaves.authority.path), "-verify_hostname", "api.example.com", str(leaf)]
    bad = [*verify, str(leaves.authority.path), "-verify_hostname", "x.api.example.com", str(leaf)]
    assert subprocess.run(good, capture_output=True, check=False).returncode == 0
    assert subprocess.run(bad, capture_output=True, check=False).returncode != 0


def test_it_is_valid_for_a_week_from_yesterday_and_no_longer_than_the_authority(leaves: Leaves) -> None:
    """Clocks that are slow, authorities that are old."""
    now = time.time()
    certificate = leaves.certificate("x.example", now)
    at = datetime.fromtimestamp(int(now), UTC)
    assert certificate.not_valid_before_utc <= at - timedelta(hours=23)
    assert certificate.not_valid_after_utc == at + VALID_FOR
    end = leaves.authority.certificate.not_valid_after_utc
    last = leaves.certificate("x.example", end.timestamp() - 60)
    assert last.not_valid_after_utc == end


def test_one_a_host_until_half_of_its_time_is_over(tmp_path: Path) -> None:
    """Then it is made anew, long before it ends."""
    now = [time.time()]
    leaves = Leaves(load_or_make(tmp_path), spelt, clock=lambda: now[0])
    assert leaves.known("x.example") is None
    first = leaves.context("x.example")
    assert leaves.known("x.example") is first is leaves.context("x.example")
    assert leaves.context("y.example") is not first
    now[0] += VALID_FOR.total_seconds() / 2 + 1
    assert leaves.known("x.example") is None
    assert leaves.context("x.example") is not first


def test_their_number_is_bounded(leaves: Leaves, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that nobody asked for longest goes first."""
    monkeypatch.setattr(leaf_certificates, "KEPT", 3)
    for host in ("a.example", "b.example", "c.example"):
        leaves.context(host)
    kept = leaves.known("a.example")
    leaves.context("d.example")
    assert leaves.known("a.example") is kept
    assert leaves.known("b.example") is None


def test_names_have_one_spelling() -> None:
    """Case, the dot at the end, IDNA, IPv6."""
    assert host_name("API.Example.COM.") == "api.example.com"
    assert host_name("MÜNCHEN.example") == "xn--mnchen-3ya.example"
    assert parse_authority("[2001:DB8:0::1]:443") == ("2001:db8::1", 443)
    assert parse_authority("10.0.0.1", 80) == ("10.0.0.1", 80)
    for bad in ("*.example", "a..b", "-a.example", "a b", "1.2.3", "0x7f.1", "a" * 64 + ".x", ""):
        with pytest.raises(BadRequest):
            host_name(bad)
        assert spelt(bad) is None
