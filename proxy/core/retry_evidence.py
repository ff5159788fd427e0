"""What a request says about being a retry: tokens that a client keeps over its retries, or its own word."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from proxy.core.canonical import Body
from proxy.core.identity import credential_names, key_in_body, principal, sort_headers
from proxy.core.jsonrpc import Id
from proxy.core.policy import KeyRecipe

# Headers that stay the same over one call's retries and differ between calls.
TOKEN_HEADERS = frozenset({b"idempotency-key", b"amz-sdk-invocation-id"})
RETRY_COUNT = b"x-stainless-retry-count"
NO_TOKENS: frozenset[str] = frozenset()


class Evidence(NamedTuple):
    tokens: frozenset[str]  # hashed: a key may be a secret to somebody
    retry_count: int
    credentials: bytes  # a keyed hash; empty without any
    wording: str = ""  # where something is normalised: see identity.wording


NO_EVIDENCE = Evidence(NO_TOKENS, 0, b"")


def of_request(session: bytes, id_: Id, secret: bytes) -> frozenset[str]:
    """Of a JSON-RPC request: no other of its session has its id. Without a session nothing is known."""
    if not session:
        return NO_TOKENS
    name = f"rpc {type(id_).__name__} {id_} ".encode("utf-8", "surrogatepass")
    return frozenset({blake2b(name + session, digest_size=16, key=secret).hexdigest()})


def evidence_of(
    headers: Iterable[tuple[bytes, bytes]],
    body: Body,
    key: KeyRecipe,
    further: tuple[str, ...],
    secret: bytes,
) -> Evidence:
    """`key` says where else a client may have put a key of its own; `further`: the policy's headers that
    carry credentials."""
    count, secrets, place = 0, credential_names(further), key.implied.client_header.encode()
    shown: list[tuple[bytes, bytes]] = []
    kept: list[tuple[bytes, bytes]] = [(b"body", key_in_body(body, key.implied))]
    for pair in headers:
        name, value = pair[0].lower(), pair[1]
        if name in secrets:
            shown.append(pair)
        elif name in TOKEN_HEADERS or name == place:
            kept.append((name, value))
        elif name == RETRY_COUNT and value.isdigit() and len(value) < 10:
            count = int(value)
    who = principal(sort_headers(shown, (), further).credentials, secret) if shown else b""
    tokens = {
        blake2b(name + b"\0" + value, digest_size=16, key=secret).hexdigest() for name, value in kept if value
    }
    return Evidence(frozenset(tokens), count, who)
