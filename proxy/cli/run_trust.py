"""Files of certificates for the agent: what it trusts already, and semel's own authority.

Most clients take one file in the place of the roots that they have, so it must hold those too: the file that
the person had set, or the system's. Files are named by their content and written whole: parallel runs share
them, and a run keeps its own though the system's roots change.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from proxy.cli.ca import SYSTEM_ROOTS
from proxy.errors import ConfigurationError

FOLDER = "trust"
# Variables that replace a client's roots, and where that client looks next when its own is not set.
REPLACING: Mapping[str, tuple[str, ...]] = {
    "SSL_CERT_FILE": (),  # OpenSSL's: Python's ssl, httpx, openai, anthropic, Ruby, Go
    "REQUESTS_CA_BUNDLE": ("CURL_CA_BUNDLE",),
    "CURL_CA_BUNDLE": ("SSL_CERT_FILE",),
    "AWS_CA_BUNDLE": ("REQUESTS_CA_BUNDLE",),
    "GIT_SSL_CAINFO": (),
}
# The same for clients that have another way to their roots: only where a person has set them.
REPLACING_IF_SET = (
    "PIP_CERT", "HTTPLIB2_CA_CERTS", "CARGO_HTTP_CAINFO", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "NIX_SSL_CERT_FILE",
)  # fmt: skip
# These add to the roots that the client has.
ADDING = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")
BEGIN = b"-----BEGIN CERTIFICATE-----"


def system_roots() -> Path | None:
    """Not the file that SSL_CERT_FILE names: that is the person's, and read as such."""
    import ssl

    named = ssl.get_default_verify_paths().openssl_cafile
    known = (Path(path) for path in (named, *SYSTEM_ROOTS))
    return next((path for path in known if path.is_file()), None)


def trust_files(
    authority: bytes, state: Path, environ: Mapping[str, str], roots: Path | None
) -> tuple[dict[str, str], list[str]]:
    """A file for each variable, and what a person should know. `roots` are the system's."""
    notes: list[str] = []
    system = _read(roots, notes, "the system's roots") if roots else b""
    if not system:
        notes.append("the system's root certificates are not found: what goes past semel is not trusted.")
    files = {}
    try:
        for variable, others in REPLACING.items():
            own = _first_set(environ, (variable, *others), notes)
            files[variable] = _write(state / FOLDER, _joined(own or system, authority))
        for variable in REPLACING_IF_SET:
            if own := _first_set(environ, (variable,), notes):
                files[variable] = _write(state / FOLDER, _joined(own, authority))
        for variable in ADDING:
            own = _first_set(environ, (variable,), notes)
            files[variable] = _write(state / FOLDER, _joined(own, authority))
    except OSError as error:
        raise ConfigurationError(
            f"{state / FOLDER} cannot be written: {error.strerror}. Name another directory with --state-dir."
        ) from None
    return files, list(dict.fromkeys(notes))


def _first_set(environ: Mapping[str, str], variables: tuple[str, ...], notes: list[str]) -> bytes:
    for variable in variables:
        if (named := environ.get(variable)) and (content := _read(Path(named), notes, variable)):
            return content
    return b""


def _read(path: Path, notes: list[str], what: str) -> bytes:
    """A file, or a directory of them as OpenSSL has it."""
    try:
        if path.is_dir():
            parts = [one.read_bytes() for one in sorted(path.iterdir()) if one.is_file()]
        else:
            parts = [path.read_bytes()]
    except OSError as error:
        notes.append(f"{what}: {path} cannot be read ({error.strerror}) and is left out.")
        return b""
    found = [part for part in parts if BEGIN in part]
    if not found:
        notes.append(f"{what}: {path} holds no certificate and is left out.")
    return b"\n".join(dict.fromkeys(found))


def _joined(before: bytes, authority: bytes) -> bytes:
    if authority.strip() in before:  # inside another `semel run`
        return before
    return before.rstrip() + b"\n" + authority if before else authority


def _write(folder: Path, content: bytes) -> str:
    path = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.pem"
    if path.exists():
        return str(path)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd, draft = tempfile.mkstemp(prefix=".trust-", dir=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
        Path(draft).rename(path)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise
    return str(path)
