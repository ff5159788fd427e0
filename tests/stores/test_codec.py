"""Sealed values and columns: everything comes back, and damage is noticed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.intent import Answer, Place
from proxy.store.codec import (
    CALL_COLUMNS,
    Codec,
    DamagedRecord,
    StoredRequest,
    call_to_row,
    entry_to_row,
    row_to_call,
    row_to_entry,
)
from tests.stores import calls

HEADERS = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=50)), max_size=8).map(tuple)
CODEC = Codec()


@given(
    HEADERS, st.binary(max_size=500), st.binary(max_size=200), st.binary(max_size=100), st.text(max_size=9)
)
def test_a_request_comes_back(
    headers: Any, body: bytes, arguments: bytes, target: bytes, method: str
) -> None:
    """Any bytes, any number of headers, in order."""
    request = StoredRequest(method=method, target=target, headers=headers, body=body, arguments=arguments)
    assert CODEC.open_request(CODEC.seal_request(request)) == request


@given(HEADERS, st.binary(max_size=500), st.integers(100, 599))
def test_heads_bodies_and_cached_answers_come_back(headers: Any, body: bytes, status: int) -> None:
    """Also repeated and empty headers, and an empty body."""
    assert CODEC.open_head(CODEC.seal_head(headers)) == headers
    assert CODEC.open_body(CODEC.seal_body(body)) == body
    assert CODEC.open_cached(CODEC.seal_cached(status, headers, body)) == (status, headers, body)


SEALED = {
    "request": CODEC.seal_request(
        StoredRequest(method="POST", target=b"/send", headers=((b"a", b"b"),), body=b"body", arguments=b"{}")
    ),
    "head": CODEC.seal_head(((b"content-type", b"text/plain"), (b"x", b""))),
    "body": CODEC.seal_body(b"some body"),
    "cached": CODEC.seal_cached(200, ((b"a", b"b"),), b"body"),
}
OPEN = {
    "request": CODEC.open_request,
    "head": CODEC.open_head,
    "body": CODEC.open_body,
    "cached": CODEC.open_cached,
}


@pytest.mark.parametrize("kind", SEALED)
def test_every_flipped_bit_and_every_cut_is_damage(kind: str) -> None:
    """DamagedRecord and nothing else, never another value."""
    sealed = SEALED[kind]
    for position in range(len(sealed)):
        for bit in range(8):
            flipped = bytearray(sealed)
            flipped[position] ^= 1 << bit
            with pytest.raises(DamagedRecord):
                OPEN[kind](bytes(flipped))
        with pytest.raises(DamagedRecord):
            OPEN[kind](sealed[:position])
    with pytest.raises(DamagedRecord):
        OPEN[kind](sealed + b"\0")


@pytest.mark.parametrize("kind", SEALED)
def test_one_kind_is_not_opened_as_another(kind: str) -> None:
    """A head in the place of a body is damage, though its bytes are whole."""
    for other in OPEN.keys() - {kind}:
        with pytest.raises(DamagedRecord):
            OPEN[other](SEALED[kind])


def test_random_bytes_are_damage() -> None:
    """Whatever somebody put there."""
    coin = random.Random(7)
    for _ in range(500):
        garbage = b"\x01" + coin.randbytes(coin.randrange(60))
        for open_it in OPEN.values():
            with pytest.raises(DamagedRecord):
                open_it(garbage)


def test_rows_come_back_in_every_shape() -> None:
    """Every state and every place of an answer."""
    call, entry = calls.claim("owner")
    places = (
        Answer(status=200, size=1, recorded_at=1.5, place=Place.INLINE, head=b"h", body=b"b"),
        Answer(status=200, size=1, recorded_at=1.5, place=Place.BLOB, head=b"h", blob="ab" * 32),
        Answer(status=200, size=1, recorded_at=1.5, place=Place.CACHE, head=b"h"),
        Answer(status=200, size=0, recorded_at=1.5, place=Place.NOWHERE, why_nowhere="too long"),
    )
    doubtful = calls.lose(call)[0]
    done = calls.settle(call)[0]
    for shape in (call, doubtful, calls.settle(doubtful)[0], calls.release(call)[0]):
        assert row_to_call(call_to_row(shape)) == shape
    for answer in places:
        row = list(call_to_row(done))
        row[CALL_COLUMNS.index("answer_status")] = answer.status
        for name in ("size", "recorded_at", "blob", "why_nowhere", "head", "body"):
            row[CALL_COLUMNS.index(f"answer_{name}")] = getattr(answer, name)
        row[CALL_COLUMNS.index("answer_place")] = answer.place.value
        assert row_to_call(tuple(row)).answer == answer
    assert row_to_entry(entry_to_row(entry)) == entry


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [("state", "dancing", "dancing"), ("record_version", 99, "newer"), ("answer_place", "moon", "moon")],
)
def test_a_row_that_makes_no_sense_is_damage(column: str, value: object, said: str) -> None:
    """An unknown state or place, or a record of a newer semel, is never guessed at."""
    row = list(call_to_row(calls.settle(calls.claim("owner")[0])[0]))
    row[CALL_COLUMNS.index(column)] = value
    with pytest.raises(DamagedRecord, match=said):
        row_to_call(tuple(row))
