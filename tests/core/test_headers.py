"""Which headers go on to the other side: all but those of one connection and those said to semel."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.headers import (
    HOP_BY_HOP,
    Headers,
    end_to_end,
    is_event_stream,
    without_header,
    without_nominated,
    without_semel,
    without_session,
)
from tests.counts import count

KEPT: Headers = ((b"Accept", b"a"), (b"X-One", b"1"), (b"accept", b"b"), (b"X-ONE", b"2"))


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_hop_by_hop_headers_are_dropped_in_any_spelling(name: bytes) -> None:
    """RFC 9110 and Proxy-Connection; everything else stays, in order, repeated, as it was spelt."""
    for spelt in (name, name.upper(), name.title()):
        assert end_to_end((KEPT[0], (spelt, b"x"), *KEPT[1:])) == KEPT


@pytest.mark.parametrize(
    "values",
    [[b"X-One"], [b"x-one"], [b"close, X-One"], [b" x-ONE\t,close"], [b"close", b"x-one"], [b",,x-one,"]],
)
def test_what_connection_names_is_dropped_too(values: list[bytes]) -> None:
    """In one header or several, before or after the header it names."""
    named: Headers = tuple((b"Connection", value) for value in values)
    expected: Headers = (KEPT[0], KEPT[2])
    assert end_to_end((*named, *KEPT)) == expected
    assert end_to_end((*KEPT, *named)) == expected


def test_values_that_only_look_alike_stay() -> None:
    """Names count, not values; a longer name is another name."""
    headers: Headers = ((b"X-Connection", b"accept"), (b"Te-st", b"trailers"), (b"Accept", b"connection"))
    assert end_to_end(headers) == headers


@pytest.mark.parametrize("name", [b"Semel-Run", b"semel-token", b"SEMEL-", b"Semel-Anything"])
def test_what_is_said_to_semel_goes_no_further(name: bytes) -> None:
    """Whatever comes after the prefix."""
    assert without_semel((KEPT[0], (name, b"x"), *KEPT[1:])) == KEPT
    other: Headers = ((b"X-Semel-Run", b"x"), (b"Semelina", b"y"))
    assert without_semel(other) == other


NAMES = st.sampled_from([b"A", b"b", b"Connection", b"TE", b"te", b"Upgrade", b"Semel-Run", b"X-A"])
HEADERS = st.lists(st.tuples(NAMES, st.sampled_from([b"", b"a", b"x-a, b", b"close"])), max_size=8)


@settings(max_examples=count(300, 10_000), deadline=None)
@given(HEADERS)
def test_against_a_plain_reading_of_the_rules(headers: list[tuple[bytes, bytes]]) -> None:
    """The same as dropping by a set of names, whatever the order."""
    named = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    dropped = named | HOP_BY_HOP
    assert end_to_end(tuple(headers)) == tuple(pair for pair in headers if pair[0].lower() not in dropped)


def test_what_connection_names_chooses_nothing() -> None:
    """With anything but the two usual words in it, what goes no further is left out; else all stays."""
    for usual in (b"close", b"keep-alive", b" Keep-Alive\t"):
        headers = ((b"Connection", usual), *KEPT)
        assert without_nominated(headers) == headers
    assert without_nominated(((b"CONNECTION", b"x-one"), *KEPT)) == (KEPT[0], KEPT[2])
    assert without_nominated(((b"Te", b"x"), *KEPT)) == ((b"Te", b"x"), *KEPT)


def test_every_header_of_a_name_is_left_out() -> None:
    """In any spelling; others stay in order."""
    assert without_header(KEPT, "x-one") == (KEPT[0], KEPT[2])
    assert without_header(KEPT, "x-two") == KEPT


def test_an_operators_cookie_goes_no_further() -> None:
    """By what its name begins with; the other cookies stay, and a header that is left with none is gone."""
    session, other = b"semel_session_8080=s", b"theme=dark"
    cases = {
        session: None,
        other + b"; " + session: other,
        session + b" ;\t" + other + b";a=b": other + b"; a=b",
        b"x=semel_session": b"x=semel_session",
        other: other,
    }
    for name in (b"Cookie", b"cookie"):
        for value, left in cases.items():
            after = () if left is None else ((name, left),)
            assert without_session(((b"A", b"1"), (name, value), *KEPT)) == ((b"A", b"1"), *after, *KEPT)
    assert without_session(((b"X-Look", session),)) == ((b"X-Look", session),)
    assert without_session(((b"Strict", session), *KEPT)) == ((b"Strict", session), *KEPT)


@pytest.mark.parametrize(
    ("headers", "is_one"),
    [
        (((b"Content-Type", b"text/event-stream"),), True),
        (((b"content-TYPE", b"Text/Event-Stream; charset=utf-8"),), True),
        (((b"Content-Type", b"text/event-strea"),), False),
        (((b"Content-Type", b"application/json"), (b"Content-Type", b"text/event-stream")), False),
        (((b"X-Type-Of-It", b"text/event-stream"),), False),
        ((), False),
    ],
)
def test_a_stream_of_events_is_known_by_its_type(headers: Headers, is_one: bool) -> None:
    """The first one counts; parameters and spelling do not."""
    assert is_event_stream(headers) is is_one


def test_cookies_stay_as_they_came_where_no_operator_is_signed_in() -> None:
    """Bytes and all: also an empty one, and where another header has that word in it."""
    plain: Headers = ((b"Cookie", b"a=1;b=2"), (b"cookie", b""), (b"X-Note", b"semel_session"))
    assert without_session(plain) == plain
    assert without_session(plain[::-1]) == plain[::-1]


def test_only_the_operators_cookie_is_taken_out() -> None:
    """Other cookies lose nothing but the space around them, other headers not even that."""
    others: Headers = ((b"Accept", b"text/html;q=0.5"), (b"X-Empty", b""))
    signed_in = (b"Cookie", b"a=XX; semel_session=s;Xb=1")
    assert without_session((signed_in, *others)) == ((b"Cookie", b"a=XX; Xb=1"), *others)


@pytest.mark.parametrize("name", [b"Xclose", b"closeX", b"Xkeep-alive", b"x-close"])
def test_a_header_may_be_called_nearly_like_an_option(name: bytes) -> None:
    """Connection names it, so it goes no further."""
    assert without_nominated(((b"Connection", name), (name, b"1"), *KEPT)) == KEPT
