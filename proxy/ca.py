"""semel's own certificate authority: made once, kept private, never overwritten.

Certificate and key come into being together, by one rename of a directory that holds both: whoever looks sees
both or neither, and of two processes that make one at once, one wins and the other uses the winner's.

ECDSA on P-256: every TLS library in use takes it, and signing a certificate per host takes well under a
millisecond, where RSA takes several.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proxy.errors import ConfigurationError

FOLDER = "ca"
CERTIFICATE, KEY = "ca.pem", "ca.key"
VALID_FOR = timedelta(days=3650)
# Clients whose clock is slow must not find the certificate in their future.
BACKDATED = timedelta(days=1)
_UNFINISHED = ".ca-"
# Nobody takes so many seconds to make one: what is older was left by a crash, and holds a key.
_ABANDONED = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    path: Path  # of the certificate
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def fingerprint(self) -> str:
        """SHA-256, as browsers and openssl show it."""
        return self.certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def load_or_make(state: Path) -> Authority:
    """The authority of this state directory. Raises ConfigurationError, with what to do."""
    folder = state / FOLDER
    try:
        if not _there(folder):
            _make(state)
        return load(state)
    except OSError as error:
        raise ConfigurationError(
            f"The certificate authority in {folder} cannot be used: {error.strerror or error}. "
            "Semel needs a directory that it may read and write; name another with --state-dir."
        ) from error


def load(state: Path) -> Authority:
    """What is there, checked: OSError if it cannot be read, ConfigurationError if it is not right."""
    folder = state / FOLDER
    for path in (folder / KEY, folder / CERTIFICATE):
        if folder.is_dir() and not path.exists():
            raise ConfigurationError(f"{path} is missing. Restore it from a backup, or {_start_anew(folder)}")
    for path in (folder / KEY, folder):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise ConfigurationError(
                f"{path} is open to other users (mode {mode:04o}), who could pretend to be any server. Close "
                f"it (chmod go= {path}); if others may have read the key, {_start_anew(folder)}"
            )
    try:
        certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
        key = serialization.load_pem_private_key((folder / KEY).read_bytes(), password=None)
    except (ValueError, TypeError) as error:  # TypeError: a key that wants a password
        raise ConfigurationError(
            f"The certificate or the key in {folder} is damaged. Restore both from a backup, or "
            f"{_start_anew(folder)}"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigurationError(
            f"{KEY} in {folder} is not the key of {CERTIFICATE}. Restore both from a backup, or "
            f"{_start_anew(folder)}"
        )
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        raise ConfigurationError(
            f"The certificate in {folder} was valid until {certificate.not_valid_after_utc:%Y-%m-%d}: "
            f"{_start_anew(folder)}"
        )
    return Authority(path=folder / CERTIFICATE, certificate=certificate, key=key)


def _start_anew(folder: Path) -> str:
    return (
        f"move {folder} away, let `semel ca` make a new one, and let every client trust that instead of the "
        "old one."
    )


def _there(folder: Path) -> bool:
    """An empty folder is as good as none: a rename replaces it."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def _make(state: Path) -> None:
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_abandoned(state)
    certificate, key = _signed_by_itself()
    draft = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=state))  # 0700
    try:
        _write(draft / KEY, key, 0o600)
        _write(draft / CERTIFICATE, certificate, 0o644)
        _sync_directory(draft)
        try:
            draft.rename(state / FOLDER)
        except OSError:
            if not _there(state / FOLDER):
                raise
            return  # another process was faster: its authority is the one
        _sync_directory(state)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _signed_by_itself() -> tuple[bytes, bytes]:
    """PEM of the certificate and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # Two authorities in one bundle must differ in their names, or some clients try the wrong one.
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "semel"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"semel CA {identifier.digest.hex()[:8]}"),
        ]
    )
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_KEY_USAGE, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


_KEY_USAGE = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False,
    key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
    decipher_only=False,
)  # fmt: skip


def _write(path: Path, data: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode)  # whatever the umask
        file.write(data)
        file.flush()
        os.fsync(fd)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove_abandoned(state: Path) -> None:
    for left in state.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            if left.stat().st_mtime < time.time() - _ABANDONED:
                shutil.rmtree(left, ignore_errors=True)
