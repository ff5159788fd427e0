"""The signature of a notification, by the Standard Webhooks specification 1.0.0.

What is signed is `{id}.{timestamp}.{body}`, so neither may hold a dot. The timestamp is that of the attempt:
receivers refuse old ones, and so a recorded notification cannot be played to them again later.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping

from proxy.core.headers import Headers
from proxy.errors import ConfigurationError

PREFIX = "whsec_"
SHORTEST = 24  # bytes; the specification's
_MAKE = 'make one with: echo "whsec_$(openssl rand -base64 32)"'


class SecretMissing(ConfigurationError):
    """The variable is not set."""


def read_secret(variable: str, environ: Mapping[str, str]) -> bytes:
    """`whsec_` and base64, or any other text as it is. Raises ConfigurationError, without the value."""
    value = environ.get(variable, "").strip()
    if not value:
        said = "is empty" if variable in environ else "is not set"
        raise SecretMissing(f"notify: the variable {variable} {said}: {_MAKE}")
    key = value.encode("utf-8", "surrogateescape")
    if value.startswith(PREFIX):
        try:
            key = base64.b64decode(value.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigurationError(
                f"notify: the value of {variable} begins with {PREFIX} and goes on without base64: {_MAKE}"
            ) from None
    if len(key) < SHORTEST:
        raise ConfigurationError(
            f"notify: the value of {variable} is too short to sign with, it needs {SHORTEST} bytes: {_MAKE}"
        )
    return key


def signature(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    signed = hmac.digest(secret, f"{message_id}.{timestamp}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(signed).decode()


def signed_headers(secret: bytes, message_id: str, timestamp: int, body: bytes) -> Headers:
    return (
        (b"webhook-id", message_id.encode()),
        (b"webhook-timestamp", b"%d" % timestamp),
        (b"webhook-signature", signature(secret, message_id, timestamp, body).encode()),
    )
