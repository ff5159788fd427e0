"""What names a call, what does not, and what of it is never kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core.canonical import Body
from proxy.core.identity import Asked, Identity, frame, framed_around, identify, principal, sort_headers
from proxy.core.policy import ClientKey, Credential, Implied, KeyRecipe, Rule
from proxy.errors import BadRequest
from tests.counts import count

SECRET = bytes(range(32))
RULE = Rule(name="send")


def who(headers: tuple[tuple[bytes, bytes], ...], secret: bytes = SECRET) -> bytes:
    return principal(sort_headers(headers).credentials, secret)


def json_body(data: bytes) -> Body:
    return Body(media_type="application/json", content_type=b"application/json", data=data)


BASE = Asked(
    tenant="default",
    upstream="mail",
    method="POST",
    raw_path=b"/v1/messages",
    query=b"draft=0",
    headers=((b"Content-Type", b"application/json"), (b"Authorization", b"Bearer token-one")),
    path_names={},
    body=json_body(b'{"to": "a"}'),
)


def replace(asked: Asked, **changes: Any) -> Asked:
    fields = {name: getattr(asked, name) for name in Asked.__annotations__}
    return Asked(**(fields | changes))


def named(asked: Asked = BASE, rule: Rule = RULE, secret: bytes = SECRET) -> Identity:
    return identify(asked, rule, secret)


def with_headers(*headers: tuple[bytes, bytes], asked: Asked = BASE) -> Asked:
    return replace(asked, headers=(*asked.headers, *headers))


# ---- framing ----

PARTS = st.lists(st.binary(max_size=12), max_size=6)


@settings(max_examples=count(1_000, 50_000), deadline=None)
@given(PARTS, PARTS)
@example([b"ab", b"c"], [b"a", b"bc"])
@example([], [b""])
@example([b""], [b"", b""])
@example([(1).to_bytes(8, "big") + b"x"], [b"x"])
def test_different_parts_never_give_equal_frames(one: list[bytes], other: list[bytes]) -> None:
    """Also when parts hold what looks like lengths."""
    assert (frame(one) == frame(other)) is (one == other)


@settings(max_examples=count(500, 20_000), deadline=None)
@given(PARTS, st.lists(st.binary(max_size=12), min_size=1, max_size=3), PARTS)
def test_a_frame_around_one_part_after_the_other(
    before: list[bytes], middles: list[bytes], after: list[bytes]
) -> None:
    """It is the frame of all of them."""
    framed = framed_around(before, after)
    for middle in middles:
        assert framed(middle) == frame([*before, middle, *after])


@settings(max_examples=count(500, 20_000), deadline=None)
@given(st.lists(st.sampled_from([b"", b"\0" * 7, b"\0" * 8, b"\0" * 7 + b"\1", b"a", b"\1"]), max_size=5))
def test_a_frame_can_be_taken_apart_again(parts: list[bytes]) -> None:
    """The proof that framing is unambiguous: a reader of ours gets the same parts back."""
    framed = frame(parts)
    size = int.from_bytes(framed[:8], "big")
    lengths = [int.from_bytes(framed[8 * n : 8 * n + 8], "big") for n in range(1, size + 1)]
    at, found = 8 * (size + 1), []
    for length in lengths:
        found.append(framed[at : at + length])
        at += length
    assert (found, at) == (parts, len(framed))


# ---- what names a call ----

NAMING = {
    "tenant": replace(BASE, tenant="acme"),
    "run": replace(BASE, run="r1"),
    "another run": replace(BASE, run="r2"),
    "upstream": replace(BASE, upstream="post"),
    "method": replace(BASE, method="PUT"),
    "host": replace(BASE, host="eu.mail.example"),
    "path": replace(BASE, raw_path=b"/v1/message"),
    "spelling of the path": replace(BASE, raw_path=b"/v1/%6dessages"),
    "trailing slash": replace(BASE, raw_path=b"/v1/messages/"),
    "query": replace(BASE, query=b"draft=1"),
    "no query": replace(BASE, query=b""),
    "body": replace(BASE, body=json_body(b'{"to": "b"}')),
    "no body": replace(BASE, body=Body()),
    "occurrence": replace(BASE, occurrence=2),
    "accept": with_headers((b"Accept", b"text/plain")),
    "range": with_headers((b"Range", b"bytes=0-1")),
    "prefer": with_headers((b"Prefer", b"respond-async")),
    "if-match": with_headers((b"If-Match", b'"x"')),
    "if-none-match": with_headers((b"If-None-Match", b"*")),
    "if-unmodified-since": with_headers((b"IF-UNMODIFIED-SINCE", b"Mon, 01 Jan 2024 00:00:00 GMT")),
    "media type": replace(BASE, headers=((b"Content-Type", b"application/vnd.x+json"), BASE.headers[1])),
    "credentials": replace(BASE, headers=(BASE.headers[0], (b"Authorization", b"Bearer token-two"))),
    "no credentials": replace(BASE, headers=BASE.headers[:1]),
    "cookie": with_headers((b"Cookie", b"s=1")),
    "x-api-key": with_headers((b"X-Api-Key", b"k")),
    "api-key": with_headers((b"api-key", b"k")),
    "x-goog-api-key": with_headers((b"X-Goog-Api-Key", b"k")),
    "idempotency-key": with_headers((b"Idempotency-Key", b"k1")),
    "another idempotency-key": with_headers((b"Idempotency-Key", b"k2")),
}


def test_each_part_that_names_a_call_changes_key_and_fingerprint() -> None:
    """All of these are different calls, from the first and from each other."""
    found = {what: named(asked) for what, asked in NAMING.items()} | {"base": named()}
    assert len({identity.key for identity in found.values()}) == len(found)
    # A client's key takes the place of arguments and principal in the key, not in the fingerprint.
    by_client = {"idempotency-key", "another idempotency-key"}
    prints = {what: identity.fingerprint for what, identity in found.items() if what not in by_client}
    assert len(set(prints.values())) == len(prints)


def test_two_values_of_a_keyed_header_count_in_their_order() -> None:
    """Repeated names keep it; the order of different names does not count."""
    a, b, r = (b"Accept", b"text/a"), (b"accept", b"text/b"), (b"Range", b"bytes=0-")
    assert named(with_headers(a, b)).key != named(with_headers(b, a)).key
    assert named(with_headers(a, r)).key == named(with_headers(r, a)).key


def test_a_rule_may_name_further_headers() -> None:
    """key.headers; upper or lower case in the request does not matter."""
    rule = Rule(name="send", key=KeyRecipe(headers=("x-region",)))
    one, two = with_headers((b"X-Region", b"eu")), with_headers((b"x-region", b"us"))
    assert named(one).key == named(two).key == named().key
    assert named(one, rule).key != named(two, rule).key
    assert named(one, rule).key == named(with_headers((b"x-REGION", b"eu")), rule).key


VOLATILE = {
    b"traceparent": b"00-1-2-01",
    b"tracestate": b"a=b",
    b"X-Request-Id": b"17",
    b"x-stainless-retry-count": b"2",
    b"X-Stainless-Runtime": b"CPython",
    b"amz-sdk-invocation-id": b"u",
    b"amz-sdk-request": b"attempt=2",
    b"X-Amz-Date": b"20240101T000000Z",
    b"User-Agent": b"agent/2",
    b"Mcp-Session-Id": b"s",
    b"Date": b"Mon, 01 Jan 2024 00:00:00 GMT",
    b"Accept-Encoding": b"br",
    b"Accept-Language": b"de",
    b"Content-Length": b"11",
    b"Semel-Tool": b"label",
    b"X-Forwarded-For": b"10.0.0.1",
    b"Connection": b"close",
}


@pytest.mark.parametrize("name", VOLATILE, ids=lambda name: name.decode())
def test_what_changes_when_a_crashed_agent_comes_back_does_not_count(name: bytes) -> None:
    """Present, absent, or with another value."""
    assert named(with_headers((name, VOLATILE[name]))) == named()
    assert named(with_headers((name, b"other"))) == named()


def test_parameters_of_the_media_type_and_its_spelling_do_not_count() -> None:
    """charset and boundary are made anew; application/JSON is application/json."""
    other = replace(BASE, headers=((b"content-type", b" Application/JSON ;charset=utf-8"), BASE.headers[1]))
    assert named(other) == named()


def test_the_spelling_of_the_arguments_does_not_count() -> None:
    """White space and numbers in the body, escapes in the query."""
    body = json_body(b' {"to" : "\\u0061"} ')
    assert named(replace(BASE, body=body, query=b"draft=%30")) == named()


def test_another_secret_gives_other_fingerprints() -> None:
    """What is stored cannot be compared across installations."""
    assert named().fingerprint != named(secret=bytes(32)).fingerprint


# ---- the principal ----

SIGNED = (
    b"AWS4-HMAC-SHA256 Credential=%b/20240101/eu-west-1/ses/aws4_request, "
    b"SignedHeaders=host;x-amz-date, Signature=%b"
)


def test_of_a_signature_only_the_access_key_id_is_the_caller() -> None:
    """Date, scope and signature change with every request."""

    def signed(key_id: bytes, signature: bytes, day: bytes = b"20240101") -> Asked:
        value = (SIGNED % (key_id, signature)).replace(b"20240101", day)
        return replace(BASE, headers=(BASE.headers[0], (b"Authorization", value)))

    first = named(signed(b"AKIA1", b"aaaa"))
    assert first == named(signed(b"AKIA1", b"bbbb", b"20240102"))
    assert first.key != named(signed(b"AKIA2", b"aaaa")).key
    ecdsa = (SIGNED % (b"AKIA1", b"cc")).replace(b"AWS4-HMAC-SHA256", b"AWS4-ECDSA-P256-SHA256")
    assert who(((b"Authorization", ecdsa),)) == who(((b"authorization", SIGNED % (b"AKIA1", b"dd")),))


def test_inside_a_run_there_is_no_principal() -> None:
    """A run is one trust domain, and tokens are refreshed after a crash."""
    inside = replace(BASE, run="r")
    other = replace(inside, headers=(BASE.headers[0], (b"Authorization", b"Bearer refreshed")))
    assert named(inside) == named(other)
    include = Rule(name="send", key=KeyRecipe(credential=Credential.INCLUDE))
    assert named(inside, include).key != named(other, include).key


def test_a_rule_may_leave_the_credentials_out() -> None:
    """credential: exclude."""
    exclude = Rule(name="send", key=KeyRecipe(credential=Credential.EXCLUDE))
    other = replace(BASE, headers=(BASE.headers[0], (b"Authorization", b"Bearer token-two")))
    assert named(BASE, exclude) == named(other, exclude)


def test_a_policy_may_name_further_credentials() -> None:
    """`credentials:` of the upstream."""
    one, two = (replace(with_headers((b"X-Team-Key", v)), credentials=("x-team-key",)) for v in (b"1", b"2"))
    assert named(one).key != named(two).key


# ---- the client's own key ----


def test_a_clients_key_takes_the_place_of_arguments_and_principal_in_the_key() -> None:
    """Same key, other arguments or another caller: the same row, another fingerprint: a conflict."""
    key = (b"Idempotency-Key", b"k1")
    first = named(with_headers(key))
    assert first.named_by
    for asked in (
        replace(BASE, body=json_body(b'{"to": "b"}')),
        replace(BASE, query=b"draft=1"),
        replace(BASE, headers=(BASE.headers[0], (b"Authorization", b"Bearer token-two"))),
    ):
        other = named(with_headers(key, asked=asked))
        assert (other.key, other.named_by) == (first.key, first.named_by)
        assert other.fingerprint != first.fingerprint
    assert named(with_headers(key)) == first
    assert named(with_headers((b"Idempotency-Key", b"k2"))).key != first.key


def test_a_clients_key_is_bound_to_the_operation() -> None:
    """The same key for another path, tenant or occurrence is another call."""
    key = (b"Idempotency-Key", b"k1")
    asked = [
        BASE,
        replace(BASE, raw_path=b"/v2"),
        replace(BASE, tenant="t"),
        replace(BASE, occurrence=2),
        replace(BASE, method="PUT"),
    ]
    assert len({named(with_headers(key, asked=each)).key for each in asked}) == len(asked)


def test_inside_a_run_and_where_the_rule_ignores_it_a_clients_key_does_not_count() -> None:
    """SDKs mint new keys after a crash."""
    one, two = with_headers((b"Idempotency-Key", b"1")), with_headers((b"Idempotency-Key", b"2"))
    ignore = Rule(name="send", key=KeyRecipe(client_key=ClientKey.IGNORE))
    assert named(one, ignore) == named(two, ignore) == named()
    assert named(replace(one, run="r")) == named(replace(two, run="r")) == named(replace(BASE, run="r"))


def test_a_key_that_is_empty_or_given_twice_or_missing_where_required_is_refused() -> None:
    """Never guessed, never taken for a key of its own."""
    require = Rule(name="send", key=KeyRecipe(client_key=ClientKey.REQUIRE))
    empty = with_headers((b"Idempotency-Key", b""))
    twice = with_headers((b"Idempotency-Key", b"1"), (b"idempotency-key", b"2"))
    for asked, rule in ((empty, RULE), (twice, RULE), (BASE, require), (empty, require)):
        with pytest.raises(BadRequest):
            named(asked, rule)
    assert named(with_headers((b"Idempotency-Key", b"1")), require).named_by


IN_BODY = Rule(
    name="send",
    key=KeyRecipe(implied=Implied(client_field="meta.key", client_beside=(("meta.mode", "once"),))),
)


def keyed(key: str, *, mode: str = '"once"', to: str = "a") -> Asked:
    return replace(
        BASE, body=json_body(f'{{"to": "{to}", "meta": {{"key": {key}, "mode": {mode}}}}}'.encode())
    )


def test_a_clients_key_may_stand_in_the_body() -> None:
    """Where the upstream takes one: a text or a whole number, however long, and with what makes it one."""
    first = named(keyed('"k1"'), IN_BODY)
    assert first.named_by
    assert named(keyed('"k1"', to="b"), IN_BODY).key == first.key
    assert named(keyed('"k2"'), IN_BODY).key != first.key
    assert named(keyed("7"), IN_BODY).key == named(keyed('"7"'), IN_BODY).key
    long = "9" * 30
    assert named(keyed(long), IN_BODY).named_by
    assert named(keyed(long), IN_BODY).key != named(keyed(long[:-1] + "8"), IN_BODY).key
    for none in ("true", "null", "1.5", "[1]", '""'):
        assert not named(keyed(none), IN_BODY).named_by, none
    assert not named(keyed('"k1"', mode='"twice"'), IN_BODY).named_by
    assert not named(keyed('"k1"')).named_by
    assert not named(replace(keyed('"k1"'), run="r"), IN_BODY).named_by


def test_what_could_be_a_key_is_no_argument() -> None:
    """In a run too, where it does not count: it is minted anew. What is none stays an argument."""
    in_run = [named(replace(keyed(key), run="r"), IN_BODY).key for key in ('"k1"', '"k2"', "7")]
    assert len(set(in_run)) == 1
    flags = [named(replace(keyed(key), run="r"), IN_BODY).key for key in ("true", "false")]
    assert len(set(flags)) == 2


# ---- secrets ----


def test_no_secret_appears_in_an_identity() -> None:
    """Tokens, cookies, keys, the client's key: nowhere in the bytes, plain or as hex."""
    secrets = [
        b"token-one",
        b"session-cookie",
        b"api-key-value",
        b"AKIAEXAMPLE",
        b"team-secret",
        b"client-key",
    ]
    asked = replace(
        BASE,
        headers=(
            *BASE.headers,
            (b"Cookie", b"s=session-cookie"),
            (b"X-Api-Key", b"api-key-value"),
            (b"X-Team-Key", b"team-secret"),
            (b"Idempotency-Key", b"client-key"),
            (b"Authorization", SIGNED % (b"AKIAEXAMPLE", b"sig")),
        ),
        credentials=("x-team-key",),
    )
    for rule in (RULE, Rule(name="x", key=KeyRecipe(client_key=ClientKey.IGNORE))):
        identity = named(asked, rule)
        everything = identity.key + identity.fingerprint + identity.named_by + identity.arguments
        for secret in (*secrets, SECRET):
            assert secret not in everything
            assert secret.hex().encode() not in everything


def test_the_principal_is_a_keyed_hash() -> None:
    """The same credentials under another secret look different; without credentials there is nothing."""
    headers = ((b"Authorization", b"Bearer t"),)
    assert len(who(headers)) == 32
    assert who(headers) != who(headers, bytes(32))
    assert who(()) == b""


# ---- known answers ----

KNOWN = [
    (
        "a JSON call",
        BASE,
        RULE,
        "5786f872cb40961fece3a97bea764934",
        "3fac48ceb4d8ecd2819b9af8bbd54e568a8f90299e128c69eaf64872067c8b44",
    ),
    (
        "inside a run",
        replace(BASE, run="r1"),
        RULE,
        "f950cb4a664c5acc16a368a4f576812a",
        "d521433ebff38d04f46abd85fddc46b2f085ec04756632e8e2a7699adbb5edf4",
    ),
    (
        "with a client's key",
        with_headers((b"Idempotency-Key", b"k1")),
        RULE,
        "1f6e35abb7f267ad0bdd8000026101bc",
        "3fac48ceb4d8ecd2819b9af8bbd54e568a8f90299e128c69eaf64872067c8b44",
    ),
    (
        "with everything",
        replace(
            with_headers((b"Accept", b"*/*"), (b"X-Region", b"eu"), (b"If-Match", b"*")),
            host="h",
            occurrence=3,
            path_names={"id": "7"},
            body=Body(media_type="application/json", data=b'{"n": [1.0, 1e999, -0, "\\u00e9"], "ts": 1}'),
        ),
        Rule(name="r", key=KeyRecipe(headers=("x-region",), exclude=("ts",))),
        "dde9a002d5adbc40ecf00d6e94fb88fc",
        "de9e2c5716d138d9a42a4c90c2b1c1e007be8465430fdfda04ca3b5fe0cc8779",
    ),
    (
        "a form",
        replace(BASE, body=Body(media_type="application/x-www-form-urlencoded", data=b"b=2&a=1+1")),
        RULE,
        "d3e24e57f7bcfb955920042f1c1a6eab",
        "9099fd81eddc71bccf5f0d4569dcf3b9622d32ab944a83bb2ba69dd124bdf133",
    ),
]


@pytest.mark.parametrize(("what", "asked", "rule", "key", "fingerprint"), KNOWN, ids=[k[0] for k in KNOWN])
def test_known_answers(what: str, asked: Asked, rule: Rule, key: str, fingerprint: str) -> None:
    """Recorded calls must keep their names. If this changes, raise CANONICAL_VERSION and say so."""
    identity = named(asked, rule)
    assert (identity.id, identity.fingerprint.hex()) == (key, fingerprint)


def test_keyed_headers_are_framed() -> None:
    """A value cannot pose as another header."""
    two = replace(BASE, headers=((b"Accept", b"a"), (b"Range", b"b")))
    one = replace(BASE, headers=((b"Accept", b"arangeb"),))
    assert named(two).key != named(one).key
