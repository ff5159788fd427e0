"""Upstream keys, made at random: as long as the upstream takes them, and hardly ever longer than needed.

Letters and digits alone need no quoting in any header, body, path or query, and every upstream takes them.
"""

from __future__ import annotations

import secrets
import string
import uuid

from proxy.core.clauses import KeyEncoding, UpstreamKey

_ALPHABETS = {KeyEncoding.TEXT: string.ascii_letters + string.digits, KeyEncoding.HEX: "0123456789abcdef"}
# 190 bits of text, or 128 of hex.
LONGEST = 32


def mint(key: UpstreamKey) -> str:
    if key.encoding is KeyEncoding.UUID:
        return str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
    alphabet = _ALPHABETS[key.encoding]
    return "".join(secrets.choice(alphabet) for _ in range(min(key.max_length, LONGEST)))
