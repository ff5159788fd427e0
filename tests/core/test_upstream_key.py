"""A key of ours where the upstream looks for it: in a header, or set in the body, all else to the byte."""

from __future__ import annotations

import json

import pytest

from proxy.core.clauses import UpstreamKey
from proxy.core.upstream_key import can_carry, with_field, with_fields, with_header

IN_HEADER = UpstreamKey(header="x-request-id")
IN_BODY = UpstreamKey(body="meta.key")
JSON = (b"Content-Type", b"application/json; charset=utf-8")


@pytest.mark.parametrize(
    ("body", "path", "after"),
    [
        (b"{}", "key", b'{"key": "k"}'),
        (b' { "a" : 1.0 } ', "key", b' {"key": "k",  "a" : 1.0 } '),
        (b'{"a": 1, "key": "old", "b": 2}', "key", b'{"a": 1, "key": "k", "b": 2}'),
        (b'{"meta": {"a": 1}}', "meta.key", b'{"meta": {"key": "k", "a": 1}}'),
        (b'{"meta": {"key": [1]}}', "meta.key", b'{"meta": {"key": "k"}}'),
        (b'{"a": 1}', "meta.deep.key", b'{"meta": {"deep": {"key": "k"}}, "a": 1}'),
        (b'{"meta": "text"}', "meta.key", None),
        (b'{"meta": null}', "meta.key", None),
        (b"[1]", "key", None),
        (b'{"key": 1, "key": 2}', "key", None),
        (b"not json", "key", None),
        (b'{"a": "\xff"}', "key", None),
    ],
)
def test_a_field_is_set_in_the_text_as_it_stands(body: bytes, path: str, after: bytes | None) -> None:
    """Found or not, at any depth; what is no object there cannot have it."""
    assert with_field(body, path, "k") == after


def test_what_goes_beside_it_goes_with_it_or_not_at_all() -> None:
    """Fields of any kind."""
    key = UpstreamKey(body="key", beside=(("mode", True), ("n.m", 3)))
    assert json.loads(with_fields(b'{"a": 1}', key, "k") or b"") == {
        "a": 1,
        "key": "k",
        "mode": True,
        "n": {"m": 3},
    }
    assert with_fields(b'{"n": 1}', key, "k") is None
    assert with_fields(b"[]", key, "k") is None


def test_in_a_header_ours_takes_the_place_of_the_clients() -> None:
    """Under its own name and under the usual one; without a name none is added."""
    headers = ((b"X-Request-Id", b"1"), (b"Idempotency-Key", b"2"), (b"Accept", b"a"))
    assert with_header(headers, IN_HEADER, "k") == ((b"Accept", b"a"), (b"x-request-id", b"k"))
    assert with_header(headers, IN_BODY, "k") == ((b"X-Request-Id", b"1"), (b"Accept", b"a"))


@pytest.mark.parametrize(
    ("headers", "body", "can"),
    [
        ((JSON,), b"{}", True),
        (((b"content-type", b"application/problem+json"),), b"{}", True),
        (((b"Content-Type", b" APPLICATION/JSON"),), b"{}", True),
        (((b"Content-Type", b"text/plain"),), b"{}", False),
        ((), b"{}", False),
        ((JSON,), None, False),
        ((JSON,), b"[]", False),
        ((JSON,), b'{"meta": 1}', False),
        ((JSON, (b"Content-Encoding", b"gzip")), b"{}", False),
        ((JSON, (b"Authorization", b"AWS4-HMAC-SHA256 x")), b"{}", False),
        ((JSON, (b"Authorization", b"Bearer aws4-")), b"{}", True),
        ((JSON, (b"X-Hub-Signature", b"x")), b"{}", False),
        ((JSON, (b"Content-Digest", b"x")), b"{}", False),
        ((JSON, (b"Digest-Wanted", b"x")), b"{}", True),
        ((JSON, (b"Content-MD5", b"x")), b"{}", False),
        ((JSON, (b"X-Hmac", b"x")), b"{}", False),
        ((JSON, (b"X-Content-SHA256", b"x")), b"{}", False),
        ((JSON, (b"X-Checksum", b"x")), b"{}", False),
    ],
)
def test_a_body_carries_one_unless_somebody_vouches_for_its_bytes(
    headers: tuple[tuple[bytes, bytes], ...], body: bytes | None, can: bool
) -> None:
    """It has to be JSON as it stands, and no signature or digest may cover it."""
    assert can_carry(IN_BODY, headers, body) is can


def test_a_header_can_always_be_added() -> None:
    """Whatever the body is."""
    assert can_carry(IN_HEADER, (), None)
    assert can_carry(IN_HEADER, ((b"Content-Digest", b"x"),), b"{}")


@pytest.mark.parametrize(
    ("content_type", "carries"),
    [
        (b"application/json", True),
        (b" Application/JSON ; charset=utf-8; v=1", True),
        (b"application/problem+json;a;b", True),
        (b"text/plain; a=application/json", False),
        (b"", False),
    ],
)
def test_json_is_known_by_its_type_whatever_parameters_it_has(content_type: bytes, carries: bool) -> None:
    """What is taken for something else is sent without a key, and cannot be sent again."""
    assert can_carry(IN_BODY, ((b"Content-Type", content_type),), b"{}") is carries
