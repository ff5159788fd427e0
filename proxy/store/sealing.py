"""AES-256-GCM over single values and over bodies of any length.

A sealed value: format byte, the key's id, 24 random bytes, ciphertext and tag. The first half of the random
bytes makes a key for this value alone (BLAKE2b as the key derivation), the second is its nonce, so one key
serves for any number of values (GCM with random nonces alone ends at 2^32). What a value is for is
authenticated with it: one that was moved to another tenant, call or field does not open.

A body is cut into segments, sealed in a row with a random key of its own, which lies in its row, sealed. The
nonce counts the segments and marks the last: none can be left out, doubled, moved or cut off.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Iterable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.store.keyring import ID_SIZE, Key, Keys

SEALED = 2  # the format byte; 1 is a value in the clear, see codec.py
SEGMENT = 64 * 1024
TAG = 16
_HALF = 12
_HEAD = 1 + ID_SIZE + 2 * _HALF


class Unsealable(Exception):
    """It was changed, belongs elsewhere, or its key is not here. The message says which, and nothing else."""


def bound_to(*parts: bytes) -> bytes:
    """What a value is for, as bytes that no other parts give."""
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def seal(key: Key, plain: bytes, purpose: bytes) -> bytes:
    salt, nonce = os.urandom(_HALF), os.urandom(_HALF)
    head = b"%c%b%b%b" % (SEALED, key.id, salt, nonce)
    return head + _cipher(key, salt).encrypt(nonce, plain, purpose)


def key_of(sealed: bytes) -> bytes:
    """The id of the key that it was sealed with."""
    return sealed[1 : 1 + ID_SIZE]


def unseal(keys: Keys, sealed: bytes, purpose: bytes) -> bytes:
    if len(sealed) < _HEAD + TAG or sealed[0] != SEALED:
        raise Unsealable("it is not encrypted, or cut off")
    key = keys.find(key_of(sealed))
    if key is None:
        raise Unsealable(f"it is encrypted with the key {key_of(sealed).hex()}, which is not in {keys.shown}")
    salt, nonce = sealed[1 + ID_SIZE : _HEAD - _HALF], sealed[_HEAD - _HALF : _HEAD]
    try:
        return _cipher(key, salt).decrypt(nonce, sealed[_HEAD:], purpose)
    except InvalidTag:
        raise Unsealable("it was changed, or belongs to another call") from None


def _cipher(key: Key, salt: bytes) -> AESGCM:
    derived = hashlib.blake2b(key=key.secret, salt=salt, person=b"semel value", digest_size=32)
    return AESGCM(derived.digest())


# ---- bodies ----


def sealed_size(size: int) -> int:
    return size + TAG * max(1, -(-size // SEGMENT))


def sealed_body(secret: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """One segment more is held back than is given on: only the last is marked so."""
    cipher, held, number = AESGCM(secret), bytearray(), 0
    for chunk in chunks:
        held += chunk
        while len(held) > SEGMENT:
            yield cipher.encrypt(_place(number, last=False), bytes(held[:SEGMENT]), None)
            del held[:SEGMENT]
            number += 1
    yield cipher.encrypt(_place(number, last=True), bytes(held), None)


async def unsealed_body(secret: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Raises Unsealable at the latest in place of the last segment."""
    cipher, held, number, whole = AESGCM(secret), bytearray(), 0, SEGMENT + TAG
    async for chunk in chunks:
        held += chunk
        while len(held) > whole:
            yield _opened(cipher, _place(number, last=False), bytes(held[:whole]))
            del held[:whole]
            number += 1
    if last := _opened(cipher, _place(number, last=True), bytes(held)):
        yield last


def _opened(cipher: AESGCM, nonce: bytes, segment: bytes) -> bytes:
    try:
        return cipher.decrypt(nonce, segment, None)
    except (InvalidTag, ValueError):
        raise Unsealable("it was changed, or belongs to another call") from None


def _place(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11) + bytes([last])
