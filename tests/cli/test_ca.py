"""`semel ca`: made once, private, whole; never overwritten; what it signs is trusted by strict clients."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proxy import ca
from proxy.cli.ca import SCHEMA, SYSTEM_ROOTS
from proxy.errors import ConfigurationError
from proxy.store.embedded import EmbeddedStore
from tests.cli.command import semel
from tests.process import ROOT

PEM, PKCS8, OPEN = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def contents(state: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in state.rglob("*") if path.is_file()}


def leaf(authority: ca.Authority, directory: Path) -> tuple[Path, Path]:
    """A server's certificate for localhost, as the forward proxy will make them, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    certificate_file, key_file = directory / "leaf.pem", directory / "leaf.key"
    certificate_file.write_bytes(made.public_bytes(PEM))
    key_file.write_bytes(key.private_bytes(PEM, PKCS8, OPEN))
    return certificate_file, key_file


# ---- what is made ----


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_key_is_for_this_user_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        ca.load_or_make(tmp_path / "state")
    finally:
        os.umask(before)
    folder = tmp_path / "state" / "ca"
    assert mode(folder) == 0o700
    assert mode(folder / "ca.key") == 0o600
    assert mode(folder / "ca.pem") == 0o644
    assert mode(tmp_path / "state") & 0o077 == 0
    assert sorted(path.name for path in folder.iterdir()) == ["ca.key", "ca.pem"]


def test_it_is_a_certificate_authority_and_nothing_else(tmp_path: Path) -> None:
    """P-256, ten years, may sign certificates of servers but not of further authorities."""
    authority = ca.load_or_make(tmp_path)
    certificate, extensions = authority.certificate, authority.certificate.extensions
    assert isinstance(authority.key.curve, ec.SECP256R1)
    basic = extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 0)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature
    identifier = extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert identifier == x509.SubjectKeyIdentifier.from_public_key(authority.key.public_key())
    certificate.verify_directly_issued_by(certificate)
    now = datetime.now(UTC)
    assert certificate.not_valid_before_utc < now - timedelta(hours=23)
    assert timedelta(days=3649) < certificate.not_valid_after_utc - now <= timedelta(days=3650)


def test_two_authorities_differ_in_name_number_and_key(tmp_path: Path) -> None:
    """In one bundle they must not be taken for each other."""
    one, other = ca.load_or_make(tmp_path / "one"), ca.load_or_make(tmp_path / "other")
    assert one.certificate.subject != other.certificate.subject
    assert one.certificate.serial_number != other.certificate.serial_number
    assert one.fingerprint != other.fingerprint


def test_the_key_is_not_shown_when_the_authority_is_printed(tmp_path: Path) -> None:
    assert "key=" not in repr(ca.load_or_make(tmp_path))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_accepts_what_it_signs_under_its_strict_rules(tmp_path: Path) -> None:
    authority = ca.load_or_make(tmp_path / "state")
    certificate, _ = leaf(authority, tmp_path)
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "localhost"]
    trusted = subprocess.run(
        [*command, "-CAfile", authority.path, certificate], capture_output=True, text=True, timeout=30
    )
    assert trusted.returncode == 0, trusted.stderr
    stranger = ca.load_or_make(tmp_path / "other")
    refused = subprocess.run(
        [*command, "-CAfile", stranger.path, certificate], capture_output=True, text=True, timeout=30
    )
    assert refused.returncode != 0
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", authority.path],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert shown.stdout.strip().endswith(authority.fingerprint)


def test_a_strict_client_shakes_hands_with_a_server_it_vouches_for(tmp_path: Path) -> None:
    """Python checks by RFC 5280 to the letter from 3.13 on; here it is told to."""
    authority = ca.load_or_make(tmp_path / "state")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*leaf(authority, tmp_path))
    client = ssl.create_default_context(cafile=str(authority.path))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    theirs.settimeout(20)
    with ThreadPoolExecutor(1) as pool, ours, theirs:
        answering = pool.submit(server.wrap_socket, theirs, server_side=True)
        with client.wrap_socket(ours, server_hostname="localhost") as connected:
            assert connected.version() in ("TLSv1.2", "TLSv1.3")
            answering.result(20).close()


# ---- once ----


def test_it_is_made_once_and_found_again(tmp_path: Path) -> None:
    first = ca.load_or_make(tmp_path)
    before = contents(tmp_path)
    again = ca.load_or_make(tmp_path)
    assert again.fingerprint == first.fingerprint
    assert contents(tmp_path) == before


@pytest.mark.parametrize("round_", range(10))
def test_all_who_make_one_at_once_get_the_same(tmp_path: Path, round_: int) -> None:
    """And nothing unfinished stays behind."""
    together = threading.Barrier(8)

    def make() -> str:
        together.wait(20)
        return ca.load_or_make(tmp_path / "state").fingerprint

    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(make) for _ in range(8)]
        assert len({one.result(30) for one in made}) == 1
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["ca"]


def test_processes_that_make_one_at_once_get_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "proxy.cli", "ca", "--pem", "--state-dir", str(tmp_path / "state")]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(3)]
    try:
        said = {process.communicate(timeout=60)[0] for process in started}
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert said == {(tmp_path / "state" / "ca" / "ca.pem").read_bytes()}


def test_it_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Key, certificate and their folder; then the rename; then the folder above."""
    order: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def noted_fsync(fd: int) -> None:
        order.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        fsync(fd)

    def noted_rename(path: Path, target: Path) -> Path:
        order.append("rename")
        return rename(path, target)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("without /proc nobody knows what is synced")
    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    ca.load_or_make(tmp_path / "state")
    assert order[:2] == ["ca.key", "ca.pem"]
    assert order[2].startswith(".ca-")
    assert order[3:] == ["rename", "state"]


def test_what_a_crash_left_unfinished_is_removed_later(tmp_path: Path) -> None:
    """It holds a key that nobody uses. One that another process may still be making is left alone."""
    old, fresh = tmp_path / ".ca-old", tmp_path / ".ca-fresh"
    for path in (old, fresh):
        path.mkdir()
        (path / "ca.key").write_text("")
    os.utime(old, (1, 1))
    ca.load_or_make(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".ca-fresh", "ca"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    """A mount point, or a first try that was undone."""
    (tmp_path / "ca").mkdir()
    ca.load_or_make(tmp_path)
    assert mode(tmp_path / "ca") == 0o700


async def test_a_state_directory_with_an_authority_is_still_semels_own(tmp_path: Path) -> None:
    """The store closes a directory that others may enter, if nothing but its own is in it: `ca` is."""
    ca.load_or_make(tmp_path / "state")
    (tmp_path / "state").chmod(0o755)
    store = await EmbeddedStore.open(tmp_path / "state")
    await store.close()
    assert mode(tmp_path / "state") == 0o700


# ---- what is wrong is told and left as it is ----


def _other_key(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / "ca.key").write_bytes(key.private_bytes(PEM, PKCS8, OPEN))


def _rsa_key(folder: Path) -> None:
    key = rsa.generate_private_key(65537, 2048)
    (folder / "ca.key").write_bytes(key.private_bytes(PEM, PKCS8, OPEN))


def _locked_key(folder: Path) -> None:
    locked = serialization.BestAvailableEncryption(b"password")
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / "ca.key").write_bytes(key.private_bytes(PEM, PKCS8, locked))


def _key_is_a_folder(folder: Path) -> None:
    (folder / "ca.key").unlink()
    (folder / "ca.key").mkdir(mode=0o700)


def _a_file_instead(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


ANEW = "let `semel ca` make a new one"
WRONGS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "damaged key": (lambda folder: (folder / "ca.key").write_text("---"), "is damaged", ANEW),
    "damaged certificate": (lambda folder: (folder / "ca.pem").write_text(""), "is damaged", ANEW),
    "no key": (lambda folder: (folder / "ca.key").unlink(), "ca.key is missing", ANEW),
    "no certificate": (lambda folder: (folder / "ca.pem").unlink(), "ca.pem is missing", ANEW),
    "another's key": (_other_key, "ca.key in", ANEW),
    "another kind of key": (_rsa_key, "is not the key of", ANEW),
    "a key with a password": (_locked_key, "is damaged", ANEW),
    "an open key": (lambda folder: (folder / "ca.key").chmod(0o644), "(mode 0644)", "chmod go="),
    "an open folder": (lambda folder: folder.chmod(0o750), "(mode 0750)", "chmod go="),
    "an unreadable key": (_key_is_a_folder, "cannot be used: Is a directory", "--state-dir"),
    "no folder": (_a_file_instead, "cannot be used: Not a directory", "--state-dir"),
}


@pytest.mark.parametrize("wrong", WRONGS)
def test_what_is_wrong_is_told_and_nothing_is_overwritten(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2 and what to do; the files stay byte for byte."""
    spoil, said, do = WRONGS[wrong]
    ca.load_or_make(tmp_path)
    spoil(tmp_path / "ca")
    before = contents(tmp_path)
    ran = semel(capsys, "ca", "--state-dir", tmp_path)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
    assert do in ran.err
    assert str(tmp_path / "ca") in ran.err
    assert contents(tmp_path) == before


def test_one_that_has_lapsed_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ca, "VALID_FOR", timedelta(seconds=-1))
    with pytest.raises(ConfigurationError, match=r"was valid until \d{4}-\d\d-\d\d: move .*ca away"):
        ca.load_or_make(tmp_path)


@pytest.mark.parametrize("place", ["a file", "below a file", "not to be made"])
def test_a_state_directory_that_cannot_be_used(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    below = {"a file": tmp_path / "file", "below a file": tmp_path / "file" / "x"}
    ran = semel(capsys, "ca", "--state-dir", below.get(place, Path("/proc/semel")))
    assert (ran.status, ran.out) == (2, "")
    assert "cannot be used" in ran.err
    assert "--state-dir" in ran.err


# ---- the command ----


def test_the_command_makes_it_and_shows_it_the_same_in_every_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = semel(capsys, "ca", "--state-dir", tmp_path)
    assert (ran.status, ran.err) == (0, "")
    authority = ca.load(tmp_path)
    assert str(tmp_path / "ca" / "ca.pem") in ran.out
    assert authority.fingerprint in ran.out
    assert f"{authority.certificate.not_valid_after_utc:%Y-%m-%d}" in ran.out
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"):
        assert f"export {name}=" in ran.out
    assert "the system's too" in ran.out
    pem = semel(capsys, "ca", "--state-dir", tmp_path, "--pem")
    assert (pem.status, pem.out) == (0, (tmp_path / "ca" / "ca.pem").read_text())
    document = semel(capsys, "ca", "--state-dir", tmp_path, "--json").document(SCHEMA)
    assert document["sha256"] == authority.fingerprint
    assert document["pem"] == pem.out
    assert datetime.fromisoformat(document["valid_until"]) == authority.certificate.not_valid_after_utc


def test_the_printed_lines_make_a_bundle_that_clients_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pasted into a shell: the system's roots and ours, also below a path with a blank."""
    if not any(Path(path).is_file() for path in SYSTEM_ROOTS):
        pytest.skip("this system keeps its roots elsewhere")
    ran = semel(capsys, "ca", "--state-dir", tmp_path / "a state")
    lines = [line for line in ran.out.splitlines() if line.startswith("  ")]
    script = "\n".join([*lines, 'printf %s "$SSL_CERT_FILE"'])
    pasted = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=30)
    assert pasted.returncode == 0, pasted.stderr
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(pasted.stdout)
    ours = ssl.PEM_cert_to_DER_cert(ca.load(tmp_path / "a state").pem)
    assert ours in context.get_ca_certs(binary_form=True)
    assert len(context.get_ca_certs()) > 1


def test_the_state_directory_may_come_from_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "semel.yaml").write_text("state: here\n")
    assert semel(capsys, "ca", "--config", tmp_path / "semel.yaml").status == 0
    assert (tmp_path / "here" / "ca" / "ca.pem").is_file()
    (tmp_path / "semel.yaml").write_text("stat: here\n")
    ran = semel(capsys, "ca", "--config", tmp_path / "semel.yaml")
    assert (ran.status, ran.out) == (2, "")
    assert "semel.yaml:1:1: unknown key 'stat'" in ran.err


def test_where_a_proxy_listens_does_not_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container that is started with --first-token, the settings alone would not let it listen."""
    monkeypatch.setenv("SEMEL_LISTEN", "0.0.0.0:8080")
    assert semel(capsys, "ca", "--state-dir", tmp_path).status == 0


def test_two_forms_at_once_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = semel(capsys, "ca", "--state-dir", tmp_path, "--pem", "--json")
    assert (ran.status, ran.out) == (2, "")
    assert "not allowed with argument --pem" in ran.err
    assert list(tmp_path.iterdir()) == []
