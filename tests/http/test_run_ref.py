"""Who speaks: what an address and a proxy's user say of run, attempt and token."""

from __future__ import annotations

from base64 import b64encode

import pytest

from proxy.errors import BadRequest
from proxy.front.forwarded import proxy_user
from proxy.front.run_ref import Speaker, agree, parse_user


@pytest.mark.parametrize(
    ("said", "speaker"),
    [
        ("task+a1:semel_t", Speaker("task", "a1", "semel_t")),
        ("task+a1:t%2Fk", Speaker("task", "a1", "t/k")),
        ("task+a1:", Speaker("task", "a1")),
        ("task+a1:-", Speaker("task", "a1")),
        ("task+a1:%2D", Speaker("task", "a1")),
        ("task:--", Speaker("task", token="--")),
        (":-", Speaker()),
        (":semel_t", Speaker(token="semel_t")),
    ],
)
def test_a_password_of_a_dash_is_no_token(said: str, speaker: Speaker) -> None:
    """Some clients drop the user where the password is empty, so `semel run` gives this one."""
    assert parse_user(said) == speaker
    basic = (b"Proxy-Authorization", b"Basic " + b64encode(said.encode()))
    assert proxy_user((basic,)) == speaker


def test_a_dash_does_not_differ_from_a_token_given_elsewhere() -> None:
    """A header may carry the token; two tokens that differ are refused."""
    assert agree(parse_user("task+a1:-"), Speaker(token="semel_t")) == Speaker("task", "a1", "semel_t")
    with pytest.raises(BadRequest, match="Two tokens"):
        agree(parse_user("task+a1:other"), Speaker(token="semel_t"))
