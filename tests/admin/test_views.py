"""Records in words: arguments as a person would write them, no wrong numbers, nothing that sounds secret."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import given

from proxy.admin import redact, views
from proxy.admin.schemas import document
from proxy.core.canonical import Body, canonical_arguments
from proxy.core.intent import State
from proxy.store.base import Census
from proxy.store.codec import Codec, StoredRequest
from tests.core.json_values import VALUES, Value, spelled
from tests.stores import calls


def shown(
    body: str = "", query: str = "", media_type: str = "application/json", include: Sequence[str] = ()
) -> object:
    read = Body(media_type, media_type.encode(), body.encode())
    made = canonical_arguments(path={}, query=query.encode(), body=read, include=include)
    return views.arguments(made)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.50", 1.5),
        ("1e3", 1000),
        ("-0.0", 0),
        ("123456789012345678", 123456789012345678),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("0.1234567890123456789", "0.1234567890123456789"),
        ("1e400", "1e400"),
        ("1e-999999999", "1e-999999999"),
        ("1e" + "9" * 30, "1e" + "9" * 30),
    ],
)
def test_a_number_is_shown_as_it_is_or_as_text(text: str, number: object) -> None:
    """Never rounded, never expanded without end; and the document stays JSON."""
    found = shown(f'{{"n": {text}}}')
    assert found == {"body": {"n": number}}
    json.dumps(found, allow_nan=False)


def test_arguments_say_where_they_come_from() -> None:
    """Path, query, body; a form's values as lists; a digest where there are no words."""
    assert shown('{"b": [1, null]}', "a=1&a=2") == {"query": {"a": ["1", "2"]}, "body": {"b": [1, None]}}
    assert shown("a=1", media_type="application/x-www-form-urlencoded") == {"body": {"a": ["1"]}}
    assert list(shown("raw", media_type="text/plain")) == ["body_digest"]  # type: ignore[call-overload]
    assert shown() == {}
    assert views.arguments(b"") == {}
    assert views.arguments(b'["digest","ab12"]') == {"digest": "ab12"}
    assert shown('{"to": "x", "at": 1}', include=("to", "cc")) == {"include": {"to": "x", "cc": []}}


@given(VALUES)
def test_any_arguments_can_be_shown(value: Value) -> None:
    """Whatever an agent sends becomes a document of this desk."""
    found = shown(spelled(value, 0).decode())
    assert isinstance(found, dict)
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    "name",
    ["token", "access_token", "api_key", "apiKey", "X-Amz-Signature", "X-Amz-Credential", "key", "sig",
     "code", "client_secret", "password", "auth", "SESSION", "user[key]",
     "authkey", "userkey", "clientkey", "appkey", "passcode", "client_assertion", "bearer"],
)  # fmt: skip
def test_what_sounds_secret_is_hidden_in_query_and_arguments(name: str) -> None:
    """By name, however it is spelt."""
    assert "s3cret" not in redact.target(f"/a?{name}=s3cret&q=1")
    assert "s3cret" not in json.dumps(shown(query=f"{name}=s3cret"))
    assert "s3cret" not in json.dumps(shown(query=f"{name}=s3cret&x=%ff"))
    assert "s3cret" not in json.dumps(shown(query=f"{name}=s3cret", include=(f"query.{name}",)))
    assert "s3cret" not in json.dumps(redact.headers([(b"Location", f"/b?{name}=s3cret".encode())]))
    assert redact.target(f"/a?q=1;{name}=s3cret;s3cret&z=2") == f"/a?q=1;{name}=[redacted]&z=2"
    assert "s3cret" not in json.dumps(shown(query=f"a=1;{name}=s3cret"))
    assert "s3cret" not in json.dumps(shown(query=f"a=1;{name}=s3cret", include=("query.a",)))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("Link", "</a?page=1>; rel=self, </b?q=1&key=S>; rel=next, <https://u:S@h/c#sig=S>",
         "</a?page=1>; rel=self, </b?q=1&key=[redacted]>; rel=next, <https://[redacted]@h/c#sig=[redacted]>"),
        ("Location", "https://user:S@host/", "https://[redacted]@host/"),
        ("Location", "//S@host/a?code=S", "//[redacted]@host/a?code=[redacted]"),
        ("Location", "/app#/done?key=S", "/app#/done?key=[redacted]"),
        ("Refresh", "0; url=https://u:S@h/?sig=S", "0; url=https://[redacted]@h/?sig=[redacted]"),
        ("Location", "https://host/a//b@c?q=1;x", "https://host/a//b@c?q=1;x"),
        ("Link", "</unclosed?key=S", "</unclosed?key=[redacted]"),
    ],
)  # fmt: skip
def test_addresses_in_headers_are_shown_without_their_secrets(name: str, value: str, told: str) -> None:
    """Every one of several links, and the name and password before a host; the rest byte for byte."""
    assert redact.headers([(name.encode(), value.encode())]) == [[name, told]]


@pytest.mark.parametrize("at", [-1e300, 1e300, float("inf"), float("nan"), -1e12])
def test_a_moment_that_no_calendar_has_is_null_and_hides_nothing_else(at: float) -> None:
    """Wherever it stands."""
    record, first = calls.claim("me")
    record, entry = calls.settle(record)
    assert record.answer is not None
    damaged = replace(
        record,
        created_at=at,
        sent_at=at,
        settled_at=at,
        expires_at=at,
        answer=replace(record.answer, recorded_at=at),
    )
    made = views.detail(damaged, 0, [first, entry._replace(at=at)], Codec())
    jsonschema.validate(json.loads(json.dumps(made)), document("CallDetail"))
    assert [made["call"][name] for name in ("created_at", "expires_at")] == [None, None]
    assert (made["call"]["id"], made["events"][1]["at"]) == (record.id, None)
    census = Census(by_state={}, oldest_doubt_at=at, bytes_used=0)
    counted = views.stats(census, "embedded", 50.0, None)
    assert (counted["oldest_in_doubt_at"], counted["oldest_in_doubt_seconds"]) == (None, None)


@pytest.mark.parametrize("name", ["q", "max_tokens", "idempotency_key", "monkey", "author", "encode", "page"])
def test_what_does_not_is_shown(name: str) -> None:
    """An operator decides on what was asked."""
    assert redact.target(f"/a?{name}=1&empty") == f"/a?{name}=1&empty"
    assert shown(query=f"{name}=1") == {"query": {name: ["1"]}}


def test_headers_are_shown_without_cookies_and_secrets() -> None:
    """In order, as they came."""
    given_headers = [(b"A", b"1"), (b"Set-Cookie", b"x"), (b"X-Auth-Token", b"y"), (b"a", b"\xe9")]
    assert redact.headers(given_headers) == [["A", "1"], ["X-Auth-Token", "[redacted]"], ["a", "é"]]


def test_every_state_fits_the_schema() -> None:
    """Pending, in doubt, done, released; with the contract's members in the contract's order."""
    codec = Codec()
    stored = StoredRequest(method="POST", target=b"/x", headers=(), arguments=b'["none",{}]')
    pending, first = calls.claim("me")
    pending = replace(pending, request=codec.seal_request(stored))
    for record, entry in (
        (pending, first),
        calls.settle(pending),
        calls.lose(pending),
        calls.release(pending),
    ):
        made = views.detail(record, 0, [first, entry], codec)
        jsonschema.validate(json.loads(json.dumps(made)), document("CallDetail"))
        assert " ".join(made["call"]) == (
            "id run attempt seq occurrence upstream rule tool safe args state created_at sent_at settled_at "
            "expires_at sends status_code size replays cost_usd fence version"
        )
        assert made["call"]["created_at"] == "2023-11-14T22:13:20.000+00:00"


def test_the_oldest_doubt_is_never_in_the_future() -> None:
    """A clock set back does not make a negative age."""
    census = Census(by_state={State.IN_DOUBT: 1}, oldest_doubt_at=100.0, bytes_used=0)
    made = views.stats(census, "embedded", 50.0, None)
    jsonschema.validate(made, document("Stats"))
    assert (made["oldest_in_doubt_seconds"], made["cache_evictions"]) == (0, None)
