"""Headers that belong to one connection, and headers addressed to semel, end here; all others go on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.headers import HOP_BY_HOP, Headers, end_to_end, without_semel
from proxy.upstream.base import Answered
from tests.origin import READ_ALL, answer, run_on
from tests.sending import ask, both_loops

pytestmark = pytest.mark.usefixtures("some_store")

KEPT: Headers = ((b"X-b", b"2"), (b"x-A", b""), (b"X-b", b"1"), (b"Content-Type", b"a; b=\xff"))


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_each_hop_by_hop_header_is_removed_in_any_spelling(name: bytes) -> None:
    """All nine, in lower, upper and title case, wherever they stand."""
    for spelling in (name, name.upper(), name.title()):
        assert end_to_end((KEPT[0], (spelling, b"x-nothing"), *KEPT[1:])) == KEPT


def test_what_connection_names_is_removed_too() -> None:
    """Several Connection headers, several names, blanks and capitals; other names stay."""
    named: Headers = ((b"Connection", b"close, X-One ,\tx-two"), (b"CONNECTION", b",X-THREE"))
    gone: Headers = ((b"x-one", b"1"), (b"X-Two", b"2"), (b"x-Three", b"3"), (b"X-ONE", b"4"))
    assert end_to_end((*named, *KEPT, *gone)) == KEPT
    assert end_to_end((*KEPT, *gone, *named)) == KEPT
    assert end_to_end((*KEPT, *gone)) == (*KEPT, *gone), "nobody named them"


def test_semel_headers_are_removed_and_only_those() -> None:
    """By the prefix, in any spelling."""
    said: Headers = ((b"Semel-Run", b"r"), (b"semel-token", b"t"), (b"SEMEL-Anything", b""))
    near: Headers = ((b"Semel", b"x"), (b"X-Semel-Run", b"x"), (b"Semelweis", b"x"))
    assert without_semel((*said, *KEPT, *near)) == (*KEPT, *near)


@given(st.lists(st.tuples(st.binary(), st.binary())).map(tuple))
def test_what_stays_is_what_came_in_order(headers: Headers) -> None:
    """Nothing is altered, nothing is added: the result is a subsequence of the same pairs."""
    for kept in (end_to_end(headers), without_semel(headers)):
        rest = iter(headers)
        assert all(pair in rest for pair in kept)


@both_loops
def test_the_answer_reaches_the_sink_without_hop_by_hop_headers(loop: str) -> None:
    """The client applies it to answers: what is for this connection is not for the caller."""
    mixed: Headers = (
        (b"Connection", b"keep-alive, X-Private"),
        KEPT[0],
        (b"Keep-Alive", b"timeout=5"),
        (b"x-private", b"secret"),
        (b"Upgrade", b"h2c"),
        *KEPT[1:],
    )
    result, sink = run_on(loop, ask((*READ_ALL, answer(200, b"abc", *mixed))))
    assert result == Answered(200)
    assert sink.headers == (*KEPT, (b"Content-Length", b"3"))
