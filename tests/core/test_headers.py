"""Which headers go on to the other side: all but those of one connection and those said to semel."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.headers import HOP_BY_HOP, Headers, end_to_end, without_semel
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
