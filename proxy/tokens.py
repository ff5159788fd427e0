"""Tokens: made at random, known afterwards only by their digest.

A token has 256 bits from the system's generator, so its plain SHA-256 tells nothing about it: no salt and no
slow hash are needed, as they would be for a password. The prefix lets people and secret scanners see what a
leaked string is.
"""

from __future__ import annotations

import hashlib
import secrets

PREFIX = "semel_"
_RANDOM_BYTES = 32


def new_token() -> str:
    """`semel_` and 43 characters that need no quoting in a shell, a header or a URL."""
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def digest(token: str) -> str:
    """What stands in semel.yaml: the SHA-256 of the token's UTF-8 bytes, in lower-case hex. Whatever a header
    held has a digest: bytes that are no UTF-8 arrive as surrogates and become the same bytes again."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
