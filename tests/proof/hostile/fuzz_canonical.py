"""Bytes into what names a call: whatever comes has one name, and only what means the same has the same.

The first byte of an input chooses what is tried, the second varies it, the rest is what arrives. The reading
that semel's is held against is the standard library's, made strict here: no duplicate names, no lone
surrogates, no constants that JSON does not have, numbers exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any
from urllib.parse import urlencode

from proxy.core import json_text
from proxy.core.canonical import (
    Body,
    NotCanonical,
    canonical_arguments,
    parse_pairs,
)
from proxy.core.document import document_of, fill, verdict_on
from proxy.core.encoding import MAX_CODINGS, Decoder, Undecodable, accepts, codings, decode
from proxy.core.identity import Asked, frame, identify, wording
from proxy.core.multipart import split_multipart
from proxy.core.policy import ClientKey, Implied, KeyRecipe, Normalize, Rule
from proxy.errors import BadRequest
from tests.core.json_values import spelled
from tests.proof.hostile.strict_json import NotStrict, spellable, strictly

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
SECRET = b"s" * 32


# ---- what is tried ----


def _canonical(body: Body, **chosen: Any) -> bytes:
    return canonical_arguments(path={}, query=b"", body=body, **chosen)


def json_bodies(variant: int, data: bytes) -> None:
    """One value, one form, whatever its spelling; what has no single value has its digest."""
    form = _canonical(Body(JSON, JSON.encode(), data))
    kind, told = json.loads(form)
    try:
        value = strictly(data.decode())
    except (NotStrict, UnicodeDecodeError):
        value = None
    if value is None:
        expected = ["digest", {"body": blake2b(data, digest_size=32).hexdigest()}] if data else ["none", {}]
        assert [kind, told] == expected, form
        return
    assert kind == "json", form
    said = form[len(b'["json",{"body":') : -len(b"}]")]
    assert strictly(said.decode()) == value
    assert _canonical(Body(JSON, JSON.encode(), said)) == form
    exact = spellable(value)
    if exact is not None:
        other = spelled(exact, variant)
        assert _canonical(Body("a/b+json", b"a/b+json", other)) == form, other


def pairs(variant: int, data: bytes) -> None:
    """Queries and forms: written anew they are the same, and a form is told apart from all else."""
    try:
        found = parse_pairs(data)
    except NotCanonical:
        return
    again = urlencode(found, doseq=True, safe="" if variant % 2 else "/:")
    assert parse_pairs(again.encode()) == found
    assert parse_pairs(again.replace("+", "%20").encode()) == found
    form = Body(FORM, FORM.encode(), data)
    rewritten = Body(FORM, FORM.encode(), again.encode())
    if data and again:
        assert _canonical(form) == _canonical(rewritten)
    as_query = canonical_arguments(path={}, query=data, body=Body())
    assert found == {} or json.loads(as_query) == ["none", {"query": found}]


def multiparts(variant: int, data: bytes) -> None:
    """The same parts under another boundary are the same parts."""
    content_type, _, body = data.partition(b"\n")
    parts = split_multipart(content_type, body)
    if parts is None:
        return
    boundary = b"other%d" % variant
    if boundary in body:
        return
    lines = [b"\r\n".join(line.encode("latin-1") for line in head) for head, _ in parts]
    joined = b"".join(
        b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, head, content)
        for head, (_, content) in zip(lines, parts, strict=True)
    )
    again = split_multipart(b"multipart/form-data; boundary=" + boundary, joined + b"--" + boundary + b"--")
    assert again == parts


def encodings(variant: int, data: bytes) -> None:
    """Never more than the bound, and the same however it is cut."""
    names = ("gzip", "deflate", "br", "zstd", "x-gzip", "identity")
    applied = tuple(names[(variant >> shift) % 6] for shift in range(0, (variant % MAX_CODINGS) * 2, 2))
    limit = 4096
    accepts(data, applied)
    applied = codings([(b"Content-Encoding", ",".join(applied).encode()), (b"Content-Length", b"1")])
    try:
        plain = decode(data, applied, limit)
    except Undecodable:
        return
    assert len(plain) <= limit
    cut, decoder = variant % (len(data) + 1), Decoder(applied)
    assert decoder.feed(data[:cut], limit) + decoder.feed(data[cut:], limit) == plain
    decoder.finish()


EXPRESSIONS = (
    "a == 'b'",
    "body.a.b > `1`",
    "contains(a, 'x')",
    "!a || query.b[0] == 'y'",
    "length(body) > `2`",
)


def documents(variant: int, data: bytes) -> None:
    """For a rule's expressions: what has no single meaning is not whole, and nothing is said of it."""
    media_type = (JSON, FORM, "a/b+json", "text/plain", "multipart/form-data")[variant % 5]
    query, _, rest = data.partition(b"\n")
    document = document_of(path={"p": "q"}, query=query, body=Body(media_type, media_type.encode(), rest))
    for expression in EXPRESSIONS:
        said = verdict_on(expression, document)
        assert document.whole or said is None
    for target in ("/x/{a}/{body.b}", "/{query.a}?b={p}"):
        filled = fill(target, document, {"p": "word"})
        assert filled is None or (filled.isascii() and "{" not in filled and "\n" not in filled)
    if media_type in (JSON, "a/b+json") and rest:
        try:
            strictly(rest.decode())
        except (NotStrict, UnicodeDecodeError):
            assert not document.whole
        else:
            assert not document.whole or document.value["body"] == json.loads(rest)


RULES = tuple(
    Rule(name="r", key=key)
    for key in (
        KeyRecipe(),
        KeyRecipe(include=("a", "items[].id"), exclude=("b",)),
        KeyRecipe(exclude=("a", "body.b.c", "query.q"), normalize=(Normalize.TIMESTAMPS, Normalize.UUIDS)),
        KeyRecipe(client_key=ClientKey.REQUIRE),
        KeyRecipe(implied=Implied(client_field="a.key", client_beside=(("b", 1),))),
        KeyRecipe(implied=Implied(client_header="x-key"), client_key=ClientKey.IGNORE),
    )
)


def identities(variant: int, data: bytes) -> None:
    """The same request has the same name, and no other part may be taken for another."""
    fields = data.split(b"\n", 5)
    fields += [b""] * (6 - len(fields))
    path, query, accept, token, own, rest = fields
    headers = [(b"Accept", accept), (b"Authorization", token), (b"Content-Type", b"application/json; x=y")]
    headers += [(b"Idempotency-Key", own)] if variant & 1 else []
    asked = Asked(
        tenant="t",
        upstream="u",
        method="POST",
        raw_path=b"/" + path,
        query=query,
        headers=tuple(headers),
        path_names={},
        body=Body(JSON, JSON.encode(), rest),
        run="r" if variant & 2 else "",
    )
    rule = RULES[variant % len(RULES)]
    with suppress(BadRequest):
        named = identify(asked, rule, SECRET)
        assert identify(asked._replace(headers=tuple(reversed(headers))), rule, SECRET) == named
        assert len(named.key) == 16
        assert len(named.fingerprint) == 32
        wording(asked, rule, SECRET)
        moved = asked._replace(raw_path=b"/" + path + b"x")
        assert identify(moved, rule, SECRET).fingerprint != named.fingerprint
    assert _unframed(frame(fields)) == fields


def _unframed(framed: bytes) -> list[bytes]:
    count = int.from_bytes(framed[:8], "big")
    sizes = [int.from_bytes(framed[8 * n + 8 : 8 * n + 16], "big") for n in range(count)]
    at, parts = 8 * count + 8, []
    for size in sizes:
        parts.append(framed[at : at + size])
        at += size
    assert at == len(framed)
    return parts


def _is_read(data: bytes) -> bool:
    try:
        json.loads(data.decode())
    except (ValueError, RecursionError):
        return False
    return True


def texts(variant: int, data: bytes) -> None:
    """Members are found where they stand, with the values that the standard library has."""
    try:
        value = json_text.read(data)
    except (ValueError, RecursionError):
        # Not read where the standard library reads it: only what is not UTF-8, or has too long an integer.
        assert len(data) >= json_text._DIGITS or not _is_read(data)
        return
    assert json_text.read_if_json(data) == value or value != value
    text = json_text.plain_text(data)
    start = json_text.after_space(text, 0)
    if isinstance(value, dict):
        found = list(json_text.members(text, start))
        assert list({one.name: one.value for one in found}) == list(value)
    elif isinstance(value, list):
        found = list(json_text.elements(text, start))
        assert len(found) == len(value)
    else:
        return
    for one in found:
        assert repr(json_text.one_value(text[one.begin : one.end])) == repr(one.value)


TRIED: tuple[Callable[[int, bytes], None], ...] = (
    json_bodies,
    pairs,
    multiparts,
    encodings,
    documents,
    identities,
    texts,
)


def one_input(data: bytes) -> None:
    """What a fuzzer calls: nothing comes out of it but the failure of a property."""
    if len(data) >= 2:
        TRIED[data[0] % len(TRIED)](data[1], data[2:])


# ---- where a fuzzer begins ----

_ARRIVED = (
    b'{"a": [1, 2.50, -0e5, "x\\u00e9"], "b": {"c": null}}',
    b"[1e400, 1E-3, 123456789012345678901234567890, 0.10, -0]",
    b'{"a": 1, "a": 2}',
    b'"\\ud800"',
    b"[" * 201 + b"]" * 201,
    b"\xef\xbb\xbf{}",
    b'{"at": "2024-01-31T10:20:30Z", "id": "00000000-0000-0000-0000-000000000000"}',
    b"a=b&c=%20+d&a=%C3%A9",
    b'multipart/form-data; boundary=x\n--x\r\nA: form-data; name="a"\r\n\r\nhello\r\n--x--\r\n',
    b'p\nq=1\naccept\ntoken\nown\n{"a": {"key": "k"}, "b": 1, "items": [{"id": 1}]}',
    bytes.fromhex("1f8b0800000000000203cb48cdc9c9070086a6103605000000"),  # gzip, deflate, br, zstd of "hello"
    bytes.fromhex("789ccb48cdc9c90700062c0215"),
    bytes.fromhex("0b028068656c6c6f03"),
    bytes.fromhex("28b52ffd200529000068656c6c6f"),
)
SEEDS = tuple(
    bytes([chosen, variant]) + arrived
    for chosen in range(len(TRIED))
    for variant in (0, 1, 7)
    for arrived in _ARRIVED
)
WORDS = (
    b"null",
    b"true",
    b"1e9",
    b"\\u0041",
    b"\\ud83d\\ude00",
    b'{"a":',
    b"[]",
    b"NaN",
    b"%41",
    b"boundary=",
)
