"""What tells a retry: tokens, the client's word, and who asks. Secrets are hashed, and kept apart."""

from __future__ import annotations

import pytest

from proxy.core.canonical import Body
from proxy.core.policy import Implied, KeyRecipe
from proxy.core.retry_evidence import NO_EVIDENCE, NO_TOKENS, evidence_of, of_request

SECRET = b"s" * 32
Pairs = tuple[tuple[bytes, bytes], ...]


NO_BODY, PLAIN = Body(), KeyRecipe()


def tokens(headers: Pairs, key: KeyRecipe = PLAIN, body: Body = NO_BODY) -> frozenset[str]:
    return evidence_of(headers, body, key, (), SECRET).tokens


def test_a_request_of_a_session_is_known_by_its_id() -> None:
    """No two ids, sessions or secrets share a token; 1 and "1" are two ids; without a session none is."""
    asked: list[tuple[bytes, int | str]] = [
        (b"s1", 1),
        (b"s1", 2),
        (b"s2", 1),
        (b"s1", "1"),
        (b"s1", "\ud800"),
    ]
    found = [of_request(session, id_, SECRET) for session, id_ in asked]
    assert {len(each) for each in found} == {1}
    assert len(frozenset().union(*found)) == len(asked)
    assert {len(token) for each in found for token in each} == {32}
    assert of_request(b"s1", 1, b"t" * 32) != found[0]
    assert of_request(b"s1", 1, SECRET) == found[0]
    assert of_request(b"", 1, SECRET) == NO_TOKENS


def test_tokens_are_what_a_client_keeps_over_its_retries() -> None:
    """By name and value, hashed; other headers and empty values are none."""
    key, invocation = (b"Idempotency-Key", b"a"), (b"amz-sdk-invocation-id", b"a")
    assert len(tokens((key, invocation))) == 2
    assert tokens((key,)) == tokens(((b"IDEMPOTENCY-KEY", b"a"), (b"X-Other", b"1")))
    assert tokens((key,)).isdisjoint(tokens((invocation,)))
    assert tokens(((b"Idempotency-Key", b""),)) == tokens(()) == frozenset()
    assert all(len(token) == 32 and token.encode() != b"a" for token in tokens((key,)))
    assert evidence_of((key,), Body(), KeyRecipe(), (), b"t" * 32).tokens != tokens((key,))


def test_where_the_upstream_takes_a_key_the_clients_own_is_a_token() -> None:
    """In its header, or in its field of the body."""
    in_header = KeyRecipe(implied=Implied(client_header="x-request-id"))
    assert len(tokens(((b"X-Request-Id", b"a"),), in_header)) == 1
    assert tokens(((b"X-Request-Id", b"a"),)) == frozenset()
    body = Body(media_type="application/json", data=b'{"key": "a"}')
    assert len(tokens((), KeyRecipe(implied=Implied(client_field="key")), body)) == 1


@pytest.mark.parametrize(
    ("value", "count"),
    [(b"0", 0), (b"2", 2), (b"-1", 0), (b"x", 0), (b"999999999", 999999999), (b"1" * 10, 0)],
)
def test_the_clients_word_is_a_number_of_nine_digits_at_most(value: bytes, count: int) -> None:
    """Whatever else it says there says nothing."""
    found = evidence_of(((b"X-Stainless-Retry-Count", value),), Body(), KeyRecipe(), (), SECRET)
    assert found.retry_count == count


def test_who_asks_is_told_by_credentials_alone() -> None:
    """The well-known ones and the policy's; without any nothing is said."""
    assert evidence_of((), Body(), KeyRecipe(), (), SECRET) == NO_EVIDENCE
    one = evidence_of(((b"Authorization", b"a"), (b"X-Other", b"1")), Body(), KeyRecipe(), (), SECRET)
    two = evidence_of(((b"authorization", b"a"),), Body(), KeyRecipe(), (), SECRET)
    other = evidence_of(((b"Authorization", b"b"),), Body(), KeyRecipe(), (), SECRET)
    assert one.credentials == two.credentials != other.credentials
    assert b"a" != one.credentials != b""
    further = [
        evidence_of(((b"X-Mine", b"a"),), Body(), KeyRecipe(), names, SECRET) for names in ((), ("x-mine",))
    ]
    assert further[0].credentials == b"" != further[1].credentials


@pytest.mark.parametrize("name", [b"Content-Length", b"X-Retry-Count", b"X-Stainless-Retry-Counts"])
def test_no_other_number_is_the_clients_word(name: bytes) -> None:
    """A call that seems to be a retry is answered with an earlier one's answer."""
    assert evidence_of(((name, b"7"),), Body(), KeyRecipe(), (), SECRET) == NO_EVIDENCE


def test_what_nobody_normalises_has_no_wording() -> None:
    """With one, two calls would be told apart by it."""
    assert (NO_EVIDENCE.wording, evidence_of((), Body(), KeyRecipe(), (), SECRET).wording) == ("", "")
