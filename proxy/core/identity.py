"""What a call is called: the key that names its row, and the fingerprint that proves it.

xxh3-128 is fast and not collision resistant, so the key alone is never trusted: a keyed BLAKE2b-256 over
the same parts is stored and compared on every hit. Secrets go in only through a keyed hash.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple

import orjson
import xxhash

from proxy.core.canonical import CANONICAL_VERSION, CANONICALISERS, Body, read_body
from proxy.core.headers import MANY_HEADS, Headers
from proxy.core.policy import ClientKey, Credential, Implied, KeyRecipe, Normalize, Rule
from proxy.errors import BadRequest

# Headers that choose what is answered. Everything else may change when a crashed agent comes back.
KEYED_HEADERS = frozenset({b"accept", b"range", b"prefer"})
KEYED_PREFIX = b"if-"
CLIENTS_OWN = b"idempotency-key"
CREDENTIAL_HEADERS = frozenset({b"authorization", b"cookie", b"x-api-key", b"api-key", b"x-goog-api-key"})
# Of a signature only the access key id is the caller; the rest changes with every request.
_SIGV4 = re.compile(rb"^AWS4-[A-Z0-9-]+\s+.*?Credential=([^/,\s]+)/", re.DOTALL)


# As canonical.py writes whole numbers that are long; a fraction has a negative exponent.
_LONG_WHOLE = re.compile(rb"-?[0-9]+e[0-9]+")


class Asked(NamedTuple):
    """A request as identity sees it: bytes as they came, nothing interpreted."""

    tenant: str
    upstream: str
    method: str
    raw_path: bytes
    query: bytes
    headers: Headers
    path_names: dict[str, str]
    body: Body
    occurrence: int = 1
    credentials: tuple[str, ...] = ()  # the policy's, beside the well-known ones
    run: str = ""  # empty outside a run; a fork's calls are named as its parent's
    host: str = ""  # only where it differs from the base_url's
    canonical: int = CANONICAL_VERSION  # a run keeps the version that it began with


class Identity(NamedTuple):
    key: bytes
    fingerprint: bytes
    named_by: bytes  # empty unless a client's key took part
    arguments: bytes

    @property
    def id(self) -> str:
        return self.key.hex()


@lru_cache(maxsize=256)
def _lengths(count: int) -> Callable[..., bytes]:
    return struct.Struct(f">{count}Q").pack


def frame(parts: Sequence[bytes]) -> bytes:
    """The count, all lengths, all parts: no two different lists of parts give the same bytes."""
    return _lengths(len(parts) + 1)(len(parts), *map(len, parts)) + b"".join(parts)


def framed_around(before: Sequence[bytes], after: Sequence[bytes]) -> Callable[[bytes], bytes]:
    """`frame((*before, middle, *after))` for one middle after the other."""
    count = len(before) + 1 + len(after)
    counted = _lengths(len(before) + 1)(count, *map(len, before))
    more, length = _lengths(len(after))(*map(len, after)), _lengths(1)
    first, last = b"".join(before), b"".join(after)
    return lambda middle: b"".join((counted, length(len(middle)), more, first, middle, last))


def _row_name(framed: bytes) -> bytes:
    return xxhash.xxh3_128_digest(framed)


def _proof(framed: bytes, secret: bytes) -> bytes:
    return blake2b(framed, digest_size=32, key=secret).digest()


class Sorted(NamedTuple):
    """The headers that matter, by what they matter for. Names are in lower case."""

    keyed: list[tuple[bytes, bytes]]
    credentials: list[tuple[bytes, bytes]]
    client_keys: list[bytes]


@lru_cache(maxsize=256)
def _named(names: tuple[str, ...], well_known: frozenset[bytes]) -> frozenset[bytes]:
    return well_known.union(name.encode() for name in names)


def credential_names(further: tuple[str, ...]) -> frozenset[bytes]:
    """In lower case. `further`: the policy's."""
    return _named(further, CREDENTIAL_HEADERS)


def sort_headers(
    headers: Iterable[tuple[bytes, bytes]],
    named: tuple[str, ...] = (),
    further: tuple[str, ...] = (),
    key_header: str = "",
) -> Sorted:
    """`named`: the rule's keyed headers; `further`: the policy's headers that carry credentials;
    `key_header`: where the upstream takes a key. A client that puts one there means that one."""
    wanted, secret = _named(named, KEYED_HEADERS), credential_names(further)
    found, place, plain = Sorted([], [], []), key_header.encode(), []
    for raw_name, value in headers:
        name = raw_name.lower()
        if name == b"content-type":  # the type alone, also where a rule looks at it: a boundary is made anew
            found.keyed.append((name, value.split(b";", 1)[0].strip().lower()))
        elif name in wanted or name.startswith(KEYED_PREFIX):
            found.keyed.append((name, value))
        if name in secret:
            signature = _SIGV4.match(value) if name == b"authorization" else None
            found.credentials.append((name, b"sigv4:" + signature[1] if signature else value))
        elif name == place:
            found.client_keys.append(value)
        elif name == CLIENTS_OWN:
            plain.append(value)
    return found if found.client_keys else found._replace(client_keys=plain)


def _framed(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    ordered = sorted(pairs, key=itemgetter(0))  # stable: repeated names keep their order
    return frame([part for pair in ordered for part in pair])


def principal(credentials: Sequence[tuple[bytes, bytes]], secret: bytes) -> bytes:
    """A keyed hash of the credentials; of SigV4 only the access key id. Empty without credentials."""
    return _proof(_framed(credentials), secret) if credentials else b""


class _Spoken(NamedTuple):
    """What a head says, as far as it takes part in the name."""

    keyed: bytes
    client_keys: tuple[bytes, ...]
    credentials: tuple[tuple[bytes, bytes], ...]


@lru_cache(maxsize=MANY_HEADS)
def _spoken(headers: Headers, named: tuple[str, ...], further: tuple[str, ...], key_header: str) -> _Spoken:
    """An agent's requests to one place mostly differ in their bodies only."""
    found = sort_headers(headers, named, further, key_header)
    return _Spoken(_framed(found.keyed), tuple(found.client_keys), tuple(found.credentials))


_known_principal = lru_cache(maxsize=MANY_HEADS)(principal)


def key_in_body(body: Body, implied: Implied) -> bytes:
    """What the client put where the upstream takes a key; empty where there is none, or where something is
    missing beside it that makes it one."""
    if not implied.client_field:
        return b""
    read = _json_object(body)
    if read is None or any(_member(read, name) != value for name, value in implied.client_beside):
        return b""
    return _as_key(_member(read, implied.client_field))


def left_out(body: Body, key: KeyRecipe) -> tuple[str, ...]:
    """The arguments that do not count: what could be a key is none, where the upstream takes one."""
    field = key.implied.client_field
    if not field:
        return key.exclude
    read = _json_object(body)
    if read is None or not _as_key(_member(read, field)):
        return key.exclude
    return (*key.exclude, f"body.{field}")


def _json_object(body: Body) -> dict[str, Any] | None:
    read = read_body(body)
    return read[1] if read is not None and read[0] == "json" and isinstance(read[1], dict) else None


def _member(node: Any, path: str) -> Any:  # noqa: ANN401 (JSON)
    for step in path.split("."):
        node = node.get(step) if isinstance(node, dict) else None
    return node


def _as_key(value: Any) -> bytes:  # noqa: ANN401 (JSON)
    """Texts and whole numbers, however long."""
    if isinstance(value, orjson.Fragment):
        text = orjson.dumps(value)
        return text if _LONG_WHOLE.fullmatch(text) else b""
    is_key = isinstance(value, str | int) and not isinstance(value, bool)
    return str(value).encode("utf-8", "surrogatepass") if is_key else b""


def client_key(values: Sequence[bytes], body: Body, rule: Rule, *, in_run: bool) -> bytes | None:
    """The client's own Idempotency-Key where it counts: outside a run, unless the rule ignores it."""
    key = rule.key
    if key.client_key is ClientKey.IGNORE or in_run:
        return None
    if in_body := key_in_body(body, key.implied):
        return in_body
    if len(values) > 1:
        raise BadRequest("Send one Idempotency-Key, not several.")
    if values and not values[0]:
        raise BadRequest("The Idempotency-Key is empty: give it a value, or leave it out.")
    if not values and key.client_key is ClientKey.REQUIRE:
        field, header = key.implied.client_field, key.implied.client_header
        place = f"a key as {field!r} in the body" if field else f"the header {header or 'Idempotency-Key'}"
        raise BadRequest(f"The rule {rule.name!r} requires {place}: send one per intended effect.")
    return values[0] if values else None


@lru_cache(maxsize=1024)
def _place(canonical: int, tenant: str, run: str, upstream: str, method: str, host: str) -> tuple[bytes, ...]:
    """Where it happens: the same for very many calls."""
    scope = b"run:" + run.encode() if run else b"tenant"
    version = b"%d" % canonical
    return (version, tenant.encode(), scope, upstream.encode(), method.encode(), host.encode())


def _arguments(asked: Asked, body: Body, key: KeyRecipe, normalize: tuple[Normalize, ...]) -> bytes:
    return CANONICALISERS[asked.canonical](
        path=asked.path_names,
        query=asked.query,
        body=body,
        include=key.include,
        exclude=left_out(body, key),
        normalize=normalize,
    )


def wording(asked: Asked, rule: Rule, secret: bytes) -> str:
    """A keyed hash of the arguments, nothing of them normalised: two days in one prompt are one name and two
    wordings."""
    return blake2b(_arguments(asked, asked.body, rule.key, ()), digest_size=16, key=secret).hexdigest()


def identify(asked: Asked, rule: Rule, secret: bytes) -> Identity:
    return naming(asked, rule, secret)(asked.body)


def naming(asked: Asked, rule: Rule, secret: bytes) -> Callable[[Body], Identity]:
    """Names calls that differ from `asked` in their bodies only: what the rest says is worked out once."""
    key = rule.key
    found = _spoken(asked.headers, key.counted, asked.credentials, key.implied.client_header)
    operation = (
        *_place(asked.canonical, asked.tenant, asked.run, asked.upstream, asked.method, asked.host),
        asked.raw_path,
        found.keyed,
        b"%d" % asked.occurrence,
    )
    include_principal = key.credential is Credential.INCLUDE or (
        key.credential is Credential.AUTO and not asked.run
    )
    who = _known_principal(found.credentials, secret) if include_principal else b""
    framed = framed_around((*operation, b"arguments"), (b"principal", who))
    in_run, in_body = bool(asked.run), bool(key.implied.client_field)
    by_head = None if in_body else client_key(found.client_keys, Body(), rule, in_run=in_run)

    def name(body: Body) -> Identity:
        arguments = _arguments(asked, body, key, key.normalize)
        whole = framed(arguments)
        chosen = client_key(found.client_keys, body, rule, in_run=in_run) if in_body else by_head
        if chosen is None:
            return Identity(_row_name(whole), _proof(whole, secret), b"", arguments)
        by_client = frame((*operation, b"client-key", chosen))
        return Identity(_row_name(by_client), _proof(whole, secret), _proof(by_client, secret), arguments)

    return name


# What stands in the place of the number when identical calls of a run are named together.
ANY_OCCURRENCE = 0


def occurrence_of(family: Identity, run: str, n: int) -> Identity:
    """The n-th of a run's identical calls: `family` was identified with ANY_OCCURRENCE."""
    return family._replace(key=occurrence_key(family.key, run, n))


def occurrence_key(family: bytes, run: str, n: int) -> bytes:
    return _row_name(frame((b"occurrence", family, run.encode(), b"%d" % n)))
