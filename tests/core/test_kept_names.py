"""Names and hashes that stand in records: told the same way by every version.

A call that another version names otherwise is not found, and is made a second time. Whoever changes one of
these on purpose gives the canonical form a new version, or sees to what is recorded.
"""

from __future__ import annotations

import pytest

from proxy.core.canonical import Body
from proxy.core.identity import (
    Asked,
    identify,
    key_in_body,
    left_out,
    occurrence_key,
    principal,
    sort_headers,
    wording,
)
from proxy.core.multipart import split_multipart
from proxy.core.policy import ClientKey, Implied, KeyRecipe, Rule
from proxy.core.retry_evidence import evidence_of
from proxy.errors import BadRequest

SECRET = b"s" * 32
JSON = Body("application/json", b"application/json", b'{"key": "k", "a": 1}')
ASKED = Asked(
    tenant="t", upstream="u", method="POST", raw_path=b"/a", query=b"", headers=(), path_names={}, body=JSON
)
IN_BODY = KeyRecipe(implied=Implied(client_field="key"))


def test_the_nth_call_of_a_run() -> None:
    """By what all of them have in common, the run, and the number."""
    assert occurrence_key(bytes(16), "run", 2).hex() == "867ca9e4536fa497bb0a3eec7ebdb855"


def test_a_caller_who_signs() -> None:
    """By the access key alone; as a token of another kind it is another caller."""
    signed = (b"Authorization", b"AWS4-HMAC-SHA256 Credential=AKIA/2026/x, Signature=1")
    assert principal(sort_headers((signed,)).credentials, SECRET).hex() == (
        "f6356c567d7698f9c584bf59dcb9d058cee1304a56be1eb7c8c978fb9bd63001"
    )
    plain = sort_headers(((b"Authorization", b"AKIA"),)).credentials
    assert principal(plain, SECRET) != principal(sort_headers((signed,)).credentials, SECRET)


def test_what_a_client_keeps_over_its_retries() -> None:
    """In a header, in the body."""
    headers = ((b"Idempotency-Key", b"k"),)
    assert evidence_of(headers, Body(), KeyRecipe(), (), SECRET).tokens == {
        "f6237f09dc5b5002cfbd3c2137f5493d"
    }
    assert evidence_of((), JSON, IN_BODY, (), SECRET).tokens == {"c87d4ad4bc9a76cd843f1efdca3a7df7"}


def test_the_words_of_a_prompt() -> None:
    """Hashed under the installation's secret: whoever reads a record cannot try out words."""
    rule = Rule(name="r")
    assert wording(ASKED, rule, SECRET) == "9d9579ae05916d0a4ac1f123b27ae8fa"
    assert wording(ASKED, rule, b"t" * 32) != wording(ASKED, rule, SECRET)


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b'{"key": "k"}', b"k"),
        (b'{"key": 7}', b"7"),
        (b'{"key": "\\ud83d\\ude00"}', "\U0001f600".encode()),
        (b'{"key": "\\ud83d"}', b"\xed\xa0\xbd"),
        (b'{"key": true}', b""),
        (b'{"key": 1.5}', b""),
        (b'["key"]', b""),
        (b"{", b""),
        (b"", b""),
    ],
)
def test_a_key_in_the_body_is_a_text_or_a_whole_number(data: bytes, key: bytes) -> None:
    """Half of a character too: a client that sends it sends it again."""
    assert key_in_body(JSON._replace(data=data), IN_BODY.implied) == key
    assert key_in_body(Body("text/plain", b"text/plain", data), IN_BODY.implied) == b""


def test_a_member_without_a_name_is_an_argument_like_any_other() -> None:
    """Where no place for a key is named, it is in none: two such calls are two."""
    one, two = (JSON._replace(data=data) for data in (b'{"": "k"}', b'{"": "l"}'))
    assert key_in_body(one, Implied()) == b""
    assert left_out(one, KeyRecipe(exclude=("a",))) == ("a",)
    keys = {identify(ASKED._replace(body=body), Rule(name="r"), SECRET).key for body in (one, two)}
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("implied", "place"),
    [
        (Implied(), "the header Idempotency-Key:"),
        (Implied(client_header="x-key"), "the header x-key:"),
        (Implied(client_field="meta.key"), "a key as 'meta.key' in the body:"),
    ],
)
def test_who_must_send_a_key_is_told_where(implied: Implied, place: str) -> None:
    """A key in the wrong place is none."""
    rule = Rule(name="r", key=KeyRecipe(client_key=ClientKey.REQUIRE, implied=implied))
    with pytest.raises(BadRequest, match=place):
        identify(ASKED, rule, SECRET)


# ---- what is made anew for every request ----

PART = b'--B\r\nContent-Disposition: form-data; name="A:b"\r\n\r\nx\r\n--B--\r\n'


def named(content_type: bytes, data: bytes) -> bytes:
    body = Body("multipart/form-data", content_type, data)
    headers = ((b"Content-Type", content_type),)
    return identify(ASKED._replace(headers=headers, body=body), Rule(name="r"), SECRET).key


def test_a_boundary_names_no_call() -> None:
    """Wherever it stands among the parameters; names of parts do, in their case and with their colons."""
    for form in (b"multipart/form-data; boundary=%b; charset=utf-8", b"multipart/form-data; boundary=%b"):
        assert named(form % b"B", PART) == named(form % b"C", PART.replace(b"--B", b"--C"))
    usual = b"multipart/form-data; boundary=B"
    for other in (b'name="a:b"', b'name="A : b"', b'name="A:B"'):
        assert named(usual, PART) != named(usual, PART.replace(b'name="A:b"', other))


@pytest.mark.parametrize(
    "body",
    [
        b"--B--\r\n",
        b"--B--",
        b"\r\n" + PART,
        b"preamble\r\n" + PART,
        PART.replace(b"x", b"x\r\n--Bx\r\n\r\ny"),
        PART.replace(b"x", b"x\r\n--B"),
        PART.removesuffix(b"--B--\r\n"),
        PART.replace(b"\r\n\r\n", b"\r\n"),
        b"",
    ],
    ids=repr,
)
def test_parts_that_two_readers_may_divide_otherwise_are_not_divided(body: bytes) -> None:
    """Then the whole body names the call."""
    assert split_multipart(b"multipart/form-data; boundary=B", PART) is not None
    assert split_multipart(b"multipart/form-data; boundary=B", body) is None
