"""Certificates for the hosts that semel stands in for: signed by its own authority, short-lived, one a host.

They are made when a client first connects to a host, kept in memory, and made anew well before they end. One
key serves all of them: it never leaves this process, and signing is then all that a new host costs.
"""

from __future__ import annotations

import os
import ssl
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proxy.ca import BACKDATED, Authority

VALID_FOR = timedelta(days=7)
# Renewed when half of its time is over: a connection may live on long after it was opened.
RENEWED_AFTER = VALID_FOR / 2
KEPT = 1024
# The common name is for people, and may not be longer; who reads the certificate looks at the other names.
_LONGEST_COMMON_NAME = 64
_KEY_USAGE = x509.KeyUsage(
    digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=False, crl_sign=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


class _Kept(NamedTuple):
    context: ssl.SSLContext
    renew_at: float


class Leaves:
    """TLS contexts by host. Asked from the event loop and from threads. `spelt` gives a name its one form, or
    None to what is none."""

    def __init__(
        self,
        authority: Authority,
        spelt: Callable[[str], str | None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.authority = authority
        self._spelt = spelt
        self._clock = clock
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, host: str) -> ssl.SSLContext | None:
        """What is at hand and will do for a while."""
        with self._lock:
            kept = self._kept.get(host)
            if kept is None or kept.renew_at <= self._clock():
                return None
            self._kept.move_to_end(host)
            return kept.context

    def context(self, host: str) -> ssl.SSLContext:
        """`host`: a name in its ASCII form, in lower case and without a dot at the end, or an IP address."""
        context = self.known(host)
        if context is not None:
            return context
        now = self._clock()
        context = self._context(host, now)
        with self._lock:
            self._kept[host] = _Kept(context, now + RENEWED_AFTER.total_seconds())
            self._kept.move_to_end(host)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return context

    def certificate(self, host: str, now: float) -> x509.Certificate:
        """Not valid for longer than the authority itself."""
        begins, issuer = datetime.fromtimestamp(now, UTC), self.authority.certificate
        public = self._key.public_key()
        common_name = host if len(host) <= _LONGEST_COMMON_NAME else "semel"
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(issuer.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(max(begins - BACKDATED, issuer.not_valid_before_utc))
            .not_valid_after(min(begins + VALID_FOR, issuer.not_valid_after_utc))
            .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_KEY_USAGE, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            # By its key, as the authority's own identifier says it: strict verifiers want the two to agree.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.key.public_key()),
                critical=False,
            )
            .sign(self.authority.key, hashes.SHA256())
        )

    def _context(self, host: str, now: float) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        context.sni_callback = self._by_name(host)
        _load(
            context,
            self._key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + self.certificate(host, now).public_bytes(serialization.Encoding.PEM)
            + self.authority.certificate.public_bytes(serialization.Encoding.PEM),
        )
        return context

    def _by_name(self, host: str) -> Callable[[ssl.SSLObject | ssl.SSLSocket, str | None, object], None]:
        """A client may ask, inside TLS, for another name than the one it connected to: it gets the
        certificate that it will check."""

        def choose(tls: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: object) -> None:
            wanted = self._spelt(name) if name else None
            if wanted is not None and wanted != host:
                tls.context = self.context(wanted)

        return choose


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """OpenSSL, as Python shows it, reads keys from files only: this one is gone as soon as it is read, and
    where the system has files that are in memory alone, it never was on a disk."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("semel-leaf", os.MFD_CLOEXEC), "wb", buffering=0) as file:
            file.write(pem)
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return
    with tempfile.NamedTemporaryFile(prefix="semel-leaf-") as named:  # mode 0600
        named.write(pem)
        named.flush()
        context.load_cert_chain(named.name)
