"""What a record keeps in the place of what is hidden: the same in every version, nothing beside it, never in
clear."""

from __future__ import annotations

import pytest

from proxy.core.canonical import Body
from proxy.core.redaction import (
    MARK,
    Veil,
    Veiling,
    hide_body,
    hide_query,
    is_hidden_whole,
    sounds_secret,
    veil_of,
)

KEY = b"k" * 32
JSON, FORM = "application/json", "application/x-www-form-urlencoded"


def hidden(data: bytes, *names: str, media_type: str = JSON, recorded: bool = False) -> Body:
    return hide_body(Body(media_type=media_type, data=data), veil_of(KEY, "acme", names, recorded=recorded))


@pytest.mark.parametrize(
    ("value", "digest"),
    [
        (b'"4242"', b"6de32644a437aebdb09cae1f0d964f23"),
        (b"4242", b"58ece7fca1a92f8e52a89263d24d0bbb"),
        (b'{"number": "4242", "cvc": 1.50}', b"4a8f1185b6ddcbb61e39870ee7b12d4c"),
        (b"[true, null]", b"0c19854a411ef3cb1cad1e4b87957294"),
    ],
)
def test_the_hash_of_a_value_is_the_same_in_every_version(value: bytes, digest: bytes) -> None:
    """It names calls that lie in records, and is asked for again after an upgrade."""
    assert hidden(b'{"card": %b}' % value, "card").data == b'{"card":"redacted:%b"}' % digest


def test_an_object_is_hidden_alike_in_any_order() -> None:
    """By its value: else the same call would have two names."""
    one, other = (b'{"card": {"a": 1, "b": {"c": 2, "d": 3}}}', b'{"card": {"b": {"d": 3, "c": 2}, "a": 1}}')
    assert hidden(one, "card") == hidden(other, "card")


@pytest.mark.parametrize("value", [b"4242", b"redacted:" + b"0" * 31, b"redacted:" + b"0" * 32 + b"x"])
def test_what_a_record_holds_in_clear_is_hidden_once_the_rule_says_so(value: bytes) -> None:
    """Only a whole hash is one already: a rule may hide today what it did not when the call was made."""
    data = b'{"card": "%b"}' % value
    assert hidden(data, "card", recorded=True) == hidden(data, "card")
    assert value + b'"' not in hidden(data, "card", recorded=True).data


@pytest.mark.parametrize(
    "data",
    [
        b'{"card":"none","amount":12}',
        b'{"card":["number"],"amount":12}',
        b'{"card":null,"amount":123456789012345678901234567890}',
        b'{"amount":-0,"rate":1.50}',
    ],
)
def test_a_body_without_the_value_is_kept_as_it_is(data: bytes) -> None:
    """Of another shape than the rule expects, with numbers of any size and spelling."""
    assert hidden(data, "card.number").data == data


@pytest.mark.parametrize(
    ("media_type", "data"),
    [
        (FORM, b'{"card": "4242"}'),
        (FORM, b' [{"card": "42=42"}]'),
        ("text/plain", b'{"card": "4242", "amount": 12}'),
        ("", b'{"card": "4242"}'),
    ],
)
def test_a_body_that_is_not_what_it_is_called_is_hidden_whole(media_type: str, data: bytes) -> None:
    """JSON that is called a form, as curl does, or text: nobody knows how its reader takes it."""
    found = hidden(data, "card", media_type=media_type)
    assert is_hidden_whole(found)
    assert len(found.data) == len(MARK) + 32


@pytest.mark.parametrize(
    "body",
    [
        Body(),
        Body(media_type=JSON),
        Body(media_type="text/plain", data=b"redacted: see the manual"),
        Body(data=b"of no kind"),
    ],
)
def test_what_is_not_hidden_is_not_taken_for_it(body: Body) -> None:
    """No body stays none; words that begin like a hash are words."""
    assert hide_body(body, veil_of(KEY, "acme", ("card",) if not body.data else ())) is body
    assert not is_hidden_whole(body)


def test_a_name_without_a_value_hides_nothing() -> None:
    """A flag has no value, whatever it is called."""
    assert hide_query("token&page=2;pin", veil_of(KEY, "acme")) == "token&page=2;pin"


@pytest.mark.parametrize("name", ["x-idempotency-key", "client_idempotency_key", "Idempotency-Key"])
def test_a_key_against_repeats_is_no_secret(name: str) -> None:
    """Whatever stands before it."""
    assert not sounds_secret(name)


def test_unless_it_is_said_nothing_is_encrypted_and_nothing_is_hidden_already() -> None:
    """The safe side: what must be hidden is not kept whole, and what a client sends is no hash."""
    assert not Veiling(KEY).encrypted
    assert not Veil(KEY).recorded
