"""The secret of an encrypted record: sealed itself, and the proof that the keys at hand are the right ones.

A store keeps 32 bytes as its secret. Of an encrypted record it keeps this instead: the first half as it is,
which tells records apart and nothing more, and the second half sealed, with what else holds for the record.
So it is copied wherever the secret is copied, and without its key the record is not opened at all.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy.errors import ConfigurationError
from proxy.store.keyring import Key, Keys
from proxy.store.sealing import Unsealable, bound_to, key_of, seal, unseal

SECRET = 32
TELLS_APART = 16


class Keystone(NamedTuple):
    """`strict`: all of the record is encrypted, and what is not was put there by somebody else. Otherwise
    there is still some from the time before."""

    secret: bytes
    strict: bool


def is_keystone(stored: bytes) -> bool:
    return len(stored) > SECRET


def made(keystone: Keystone, key: Key) -> bytes:
    apart = keystone.secret[:TELLS_APART]
    hidden = keystone.secret[TELLS_APART:] + bytes([keystone.strict])
    return apart + seal(key, hidden, _purpose(apart))


def read(stored: bytes, keys: Keys, shown: str) -> Keystone:
    """ConfigurationError with any key but the right one."""
    apart, sealed = stored[:TELLS_APART], stored[TELLS_APART:]
    try:
        hidden = unseal(keys, sealed, _purpose(apart))
    except Unsealable as error:
        raise ConfigurationError(
            f"the record in {shown} cannot be opened with the keys of {keys.shown}: {error}. Nothing was "
            "read or changed. Give the key that it was written with, beside the new one if there is one."
        ) from None
    return Keystone(apart + hidden[:-1], bool(hidden[-1]))


def sealed_with(stored: bytes) -> bytes:
    """The id of its key."""
    return key_of(stored[TELLS_APART:])


def encrypted_without_key(shown: str) -> ConfigurationError:
    return ConfigurationError(
        f"the record in {shown} is encrypted, and there is no key. Say where it is: `encryption: {{key_file: "
        "FILE}` in semel.yaml, SEMEL_ENCRYPTION_KEY_FILE, or the key itself in SEMEL_ENCRYPTION_KEY."
    )


def _purpose(apart: bytes) -> bytes:
    return bound_to(b"keystone", apart)
