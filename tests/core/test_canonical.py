"""Canonical JSON: spelling does not matter, value does; what has no single meaning is not guessed at."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proxy.core import canonical
from proxy.core.canonical import MAX_CONTAINERS, MAX_DEPTH, Body, canonical_arguments, read_body
from tests.core.json_values import VALUES, Value, spelled
from tests.counts import count

PAIRS = count(1_000, 10_000)
SEEDS = st.integers(0, 10**6)


def json_body(data: bytes) -> Body:
    return Body(media_type="application/json", content_type=b"application/json", data=data)


def bytes_of(data: bytes) -> bytes:
    return canonical_arguments(path={}, query=b"", body=json_body(data))


def kind(data: bytes, media_type: str = "application/json") -> str:
    found = read_body(Body(media_type=media_type, data=data))
    # What the canonical form says, because lone surrogates are found only when it is written.
    said: list[Any] = json.loads(
        canonical_arguments(path={}, query=b"", body=Body(media_type=media_type, data=data))
    )
    assert found is not None
    return str(said[0])


# ---- value and spelling ----


@settings(max_examples=PAIRS, deadline=None)
@given(VALUES, SEEDS, SEEDS)
def test_spelling_does_not_matter(value: Value, seed: int, other_seed: int) -> None:
    """Two spellings of one value: white space, order of keys, escapes, numbers."""
    first, second = spelled(value, seed), spelled(value, other_seed)
    assert bytes_of(first) == bytes_of(second)
    assert kind(first) == "json"


@settings(max_examples=PAIRS, deadline=None)
@given(VALUES, VALUES, SEEDS, SEEDS)
def test_value_does(one: Value, other: Value, seed: int, other_seed: int) -> None:
    """Two values that differ, compared by an exact model of our own, never get the same bytes."""
    assume(one != other)
    assert bytes_of(spelled(one, seed)) != bytes_of(spelled(other, other_seed))


@settings(max_examples=count(500, 10_000), deadline=None)
@given(VALUES, SEEDS, SEEDS)
def test_a_small_change_of_value_is_seen(value: Value, seed: int, other_seed: int) -> None:
    """The same tree with one leaf changed a little: the pairs that a careless form would confuse."""
    changed = _change(value, seed)
    assume(changed != value)
    assert bytes_of(spelled(value, seed)) != bytes_of(spelled(changed, other_seed))


def _change(value: Value, seed: int) -> Value:
    match value:
        case ("null",):
            return (("bool", False), ("string", ""), ("string", "null"), ("array", ()))[seed % 4]
        case ("bool", b):
            return (("bool", not b), ("number", int(b)), ("string", "true" if b else "false"))[seed % 3]
        case ("number", n):
            return (("number", n + 1), ("number", -n), ("number", n * 10), ("string", str(n)))[seed % 4]
        case ("string", s):
            return (("string", s + "\x00"), ("string", s + " "), ("array", (value,)))[seed % 3]
        case ("array", items) if items:
            at = seed % len(items)
            choices = (
                (*items[:at], _change(items[at], seed // 7), *items[at + 1 :]),
                items[::-1],
                (*items, ("null",)),
            )
            return ("array", choices[seed % 3])
        case ("object", members) if members:
            name, item = sorted(members, key=repr)[seed % len(members)]
            rest = members - {(name, item)}
            changed = ((name, _change(item, seed // 7)), (name + "x", item), (name, ("null",)))[seed % 3]
            return ("object", frozenset({m for m in rest if m[0] != changed[0]} | {changed}))
    return ("array", (value,))


@pytest.mark.parametrize(
    "spellings",
    [
        ["1", "1.0", "1e0", "1E0", "10e-1", "0.1e1", "1.000", "100E-2", "1e+0", "1e-0", "1e00"],
        ["0", "-0", "0.0", "-0.0", "0e5", "-0e-5", "0E999999999999", "0.000e-3"],
        ["18446744073709551616", "18446744073709551616.0", "1844674407370955161.6e1"],
        ["1e400", "10e399", "0.1e401", "1" + "0" * 400],
        ["1e999999999", "10e999999998", "0.1E1000000000"],
        ["-12.5", "-125e-1", "-1.25E1", "-0.125e+2"],
        ["100000000000000000", "1e17"],
        ["999999999999999999", "999999999999999999.0"],
        ["1000000000000000000", "1e18", "10e17"],
        ["-999999999999999999", "-9.99999999999999999e17"],
    ],
)
def test_numbers_are_compared_by_value(spellings: list[str]) -> None:
    """Every spelling in a row gives the same bytes."""
    assert len({bytes_of(text.encode()) for text in spellings}) == 1


def test_numbers_that_floats_and_64_bits_confuse_stay_apart() -> None:
    """Neighbours beyond 2^53 and 2^64, decimals beyond double precision, and the string that looks alike."""
    texts = ["9007199254740992", "9007199254740993", "18446744073709551615", "18446744073709551616",
             "18446744073709551617", "0.1", "0.10000000000000001", "0.1000000000000000055511151231257827",
             "1e308", "1e309", "1e310", "-1e309", "5e-324", "5e-325", '"1"', "true", "1", "1e999999999",
             "1e999999998", "-1e999999999", "1e-999999999"]  # fmt: skip
    assert len({bytes_of(text.encode()) for text in texts}) == len(texts)


# ---- what has no single meaning ----

LONE_SURROGATE = rb'{"a": "\ud800"}'


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1, "a": 1}',
        b'{"a": 1, "\\u0061": 2}',
        b'[{"x": {"a": 1, "a": 2}}]',
        LONE_SURROGATE,
        rb'{"\udfff": 1}',
        rb'["\ude00\ud83d"]',
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"\xef\xbb\xbf{}",
        '{"a": 1}'.encode("utf-16"),
        '{"a": 1}'.encode("utf-16-le"),
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\x00"',
        b'"a\nb"',
        b"{",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"0x10",
        b"1e",
        b"{'a': 1}",
        b"[1,]",
        b"{} {}",
        b"// x\n1",
        b" ",
        b"\x0b1",
        b"1e" + b"9" * 5000,
    ],
)
def test_what_cannot_be_read_beyond_doubt_gets_its_digest(data: bytes) -> None:
    """Duplicate keys, lone surrogates, NaN, byte order marks, other encodings, broken JSON."""
    assert kind(data) == "digest"
    digest = blake2b(data, digest_size=32).hexdigest()
    assert json.loads(bytes_of(data)) == ["digest", {"body": digest}]


def test_a_digest_is_not_the_string_that_spells_it() -> None:
    """The kind is part of the form."""
    broken = b"{"
    digest = blake2b(broken, digest_size=32).hexdigest()
    assert bytes_of(broken) != bytes_of(json.dumps(digest).encode())


def test_a_pair_of_surrogates_is_one_character() -> None:
    """Escaped or not."""
    assert bytes_of(rb'"\ud83d\ude00"') == bytes_of('"😀"'.encode())
    assert kind(rb'"\uD83D\uDE00"') == "json"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth_200_is_read_and_201_is_not(opening: bytes) -> None:
    """The border is exact, for arrays and objects."""
    closing = b"]" if opening == b"[" else b"}"
    for depth, expected in ((MAX_DEPTH - 1, "json"), (MAX_DEPTH, "json"), (MAX_DEPTH + 1, "digest")):
        data = opening * depth + (b"0" if opening != b"[" else b"") + closing * depth
        assert kind(data) == expected, depth


def test_many_brackets_side_by_side_are_not_deep() -> None:
    """Counting brackets is only the first look; those inside strings do not count at all."""
    assert kind(b"[" + b",".join([b"[]"] * 5000) + b"]") == "json"
    assert kind(b'"' + b"[" * 5000 + b'"') == "json"


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'[{"a":' * 50_000 + b"1" + b"}]" * 50_000,
    ],
    ids=["arrays", "objects", "closed", "mixed"],
)
def test_depth_bombs_get_their_digest(data: bytes) -> None:
    """No crash and no exception, however deep."""
    assert kind(data) == "digest"


def test_too_many_containers_get_their_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes of gzip hold millions of them; each would take memory, and time of the interpreter."""
    assert kind(b"[" + b"[]," * MAX_CONTAINERS + b"1]") == "digest"
    monkeypatch.setattr(canonical, "MAX_CONTAINERS", 1000)
    for container, each in ((b"[],", 1), (b"{},", 1), (b'{"a":[1]},', 2)):
        fits = 999 // each
        assert kind(b"[" + container * fits + b"1]") == "json"
        assert kind(b"[" + container * (fits + 1) + b"1]") == "digest"


def _steps_taken(action: Callable[[], object]) -> int:
    """Lines of Python that an action runs: a measure of work that does not depend on the machine."""
    steps = 0

    def trace(frame: object, event: str, arg: object) -> Any:
        nonlocal steps
        steps += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize(
    "data",
    [b"1e999999999", b"1e-999999999", b"[0.1e999999999]", b"9" * 100_000, b"-" + b"1" * 100_000 + b".5e7"],
    ids=["huge", "tiny", "nested", "long", "long with a point"],
)
def test_no_number_is_expanded(data: bytes) -> None:
    """The form is about as long as the text, and the work does not grow with the value."""
    result = bytes_of(data)
    assert len(result) <= len(data) + 200
    assert kind(data) == "json"
    assert _steps_taken(lambda: bytes_of(data)) < 1000


def test_a_long_integer_is_exact_to_its_last_digit() -> None:
    """100,000 digits, one different."""
    assert bytes_of(b"7" * 100_000) != bytes_of(b"7" * 99_999 + b"8")


@settings(max_examples=count(500, 10_000), deadline=None)
@given(
    st.binary(max_size=200),
    st.sampled_from(
        ["application/json", "application/problem+json", "application/x-www-form-urlencoded",
         "multipart/form-data", "text/plain", ""]
    ),
    st.binary(max_size=40),
    st.sampled_from([(), ("a",), ("body.a[].b", "query.a")]),
)  # fmt: skip
def test_arbitrary_bytes_never_raise(
    data: bytes, media_type: str, query: bytes, names: tuple[str, ...]
) -> None:
    """Whatever comes has a canonical form, and that form is JSON."""
    body = Body(media_type=media_type, content_type=media_type.encode() + b"; boundary=x", data=data)
    json.loads(canonical_arguments(path={}, query=query, body=body, include=names))
    json.loads(canonical_arguments(path={}, query=query, body=body, exclude=names))


FRAGMENTS = ["{", "}", "[", "]", ":", ",", '"a"', '"\\ud800"', "1", "-", "e9", ".5", "NaN", "true", " ", "\\"]


@settings(max_examples=count(500, 10_000), deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join))
def test_what_almost_is_json_is_read_as_the_standard_library_reads_it(text: str) -> None:
    """A body counts as JSON only if a strict reader agrees that it is."""
    data = text.encode()
    if data and kind(data) == "json":
        json.loads(data)


def test_the_version_is_pinned() -> None:
    """Whoever changes the form raises the version, and this number with it."""
    assert canonical.CANONICAL_VERSION == 1
