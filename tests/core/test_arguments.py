"""Which parts of a request are its arguments: query, form, multipart, include, exclude, normalize."""

from __future__ import annotations

import json
import uuid
from copy import deepcopy
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proxy.core.canonical import Body, canonical_arguments
from proxy.core.policy import Normalize
from tests.counts import count

FORM = "application/x-www-form-urlencoded"
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
PAIRS = st.lists(st.tuples(NAMES, NAMES), max_size=6)


def query(text: bytes, **selection: Any) -> bytes:
    return canonical_arguments(path={}, query=text, body=Body(), **selection)


def body(data: object, *, query: bytes = b"", path: dict[str, str] | None = None, **selection: Any) -> bytes:
    encoded = json.dumps(data).encode()
    return canonical_arguments(
        path=path or {}, query=query, body=Body(media_type="application/json", data=encoded), **selection
    )


def form(data: bytes, **selection: Any) -> bytes:
    return canonical_arguments(path={}, query=b"", body=Body(media_type=FORM, data=data), **selection)


def grouped(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    """The meaning of a query, by an independent reading: names to their values in order."""
    return {name: [v for n, v in pairs if n == name] for name, _ in pairs}


# ---- query and form ----


@settings(max_examples=count(150, 10_000), deadline=None)
@given(PAIRS, PAIRS, st.booleans())
def test_a_query_means_its_names_and_their_values_in_order(
    one: list[tuple[str, str]], other: list[tuple[str, str]], as_form: bool
) -> None:
    """Equal bytes exactly for equal meaning, whatever the escapes; the same for a form."""

    def spell(pairs: list[tuple[str, str]], escape: Any) -> bytes:
        return "&".join(f"{escape(name)}={escape(value)}" for name, value in pairs).encode()

    assume(one)
    assume(other)
    read = form if as_form else query
    assert read(spell(one, quote_plus)) == read(spell(one, lambda text: quote(text, safe="")))
    same = grouped(one) == grouped(other)
    assert (read(spell(one, quote_plus)) == read(spell(other, quote_plus))) is same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"b=2&a=1", b"a=1&b=2"),
        (b"q=a+b", b"q=a%20b"),
        (b"q=%41", b"q=A"),
        (b"q=%c3%a9", b"q=%C3%A9"),
        (b"a=1&b=2&a=3", b"b=2&a=1&a=3"),
        (b"a=1&&b=2", b"a=1&b=2&"),
    ],
)
def test_spellings_of_one_query(one: bytes, other: bytes) -> None:
    """Sorted by name, escapes undone."""
    assert query(one) == query(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"a=1&a=2", b"a=2&a=1"),
        (b"a=1", b"a=1&a=1"),
        (b"q=a%2Bb", b"q=a+b"),
        (b"a=1%262", b"a=1&2"),
        (b"a=b=c", b"a=b"),
        (b"a=%FF", b"a=%FE"),
        (b"", b"a="),
        (b"A=1", b"a=1"),
    ],
)
def test_queries_that_differ(one: bytes, other: bytes) -> None:
    """Repeated names keep their order; an escaped separator separates nothing."""
    assert query(one) != query(other)


def test_the_source_of_an_argument_counts() -> None:
    """a=1 in the query, in a form, in JSON and in the path are four different things."""
    forms = {
        query(b"a=1"),
        form(b"a=1"),
        body({"a": "1"}),
        body({"a": ["1"]}),
        canonical_arguments(path={"a": "1"}, query=b"", body=Body()),
    }
    assert len(forms) == 5


# ---- multipart ----


def multipart(boundary: str, parts: list[tuple[str, bytes]], *, quoted: bool = False) -> Body:
    mark = boundary.encode()
    data = b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (mark, head.encode(), content) for head, content in parts)
    parameter = f'"{boundary}"' if quoted else boundary
    return Body(
        media_type="multipart/form-data",
        content_type=f"multipart/form-data; boundary={parameter}".encode(),
        data=data + b"--%b--\r\n" % mark,
    )


def multipart_bytes(found: Body) -> bytes:
    return canonical_arguments(path={}, query=b"", body=found)


PARTS = st.lists(
    st.tuples(
        st.sampled_from(['Content-Disposition: form-data; name="a"', "Content-Type: text/plain"]),
        st.binary(max_size=20).filter(lambda content: b"--bound" not in content),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=count(100, 5_000), deadline=None)
@given(PARTS, PARTS)
def test_a_multipart_body_is_its_parts_and_not_its_boundary(
    one: list[tuple[str, bytes]], other: list[tuple[str, bytes]]
) -> None:
    """Clients make a boundary anew for every request; order, headers and contents count."""
    first = multipart_bytes(multipart("boundA", one))
    assert json.loads(first)[0] == "multipart"
    assert first == multipart_bytes(multipart("boundBB", one, quoted=True))
    assert (first == multipart_bytes(multipart("boundC", other))) is (one == other)


def test_the_spelling_of_a_part_header_name_does_not_matter() -> None:
    """Header names are alike in upper and lower case; their values are not."""
    one = multipart_bytes(multipart("b", [("Content-Type: text/plain", b"x")]))
    assert one == multipart_bytes(multipart("b", [("content-type:  text/plain", b"x")]))
    assert one != multipart_bytes(multipart("b", [("content-type: text/PLAIN", b"x")]))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"preamble\r\n--b\r\n\r\n\r\nx\r\n--b--",
        b"--b\r\nA: 1\r\n\r\nx",
        b"--b\r\nno blank line\r\n--b--",
        b"--b\r\nA: 1\r\n\r\nx\r\n--bcd\r\n--b--",
        b"--b\r\nA: 1\r\n\r\nx\r\n--b--\r\nepilogue",
    ],
)
def test_an_unusual_multipart_body_gets_its_digest(data: bytes) -> None:
    """Nothing is guessed."""
    found = Body(media_type="multipart/form-data", content_type=b"multipart/form-data; boundary=b", data=data)
    assert json.loads(multipart_bytes(found))[0] in ("digest", "none")


# ---- include and exclude ----


def test_exclude_takes_away_and_include_keeps() -> None:
    """Two bodies that differ only in what does not count are the same call; otherwise not."""
    one, two, three = ({"to": "a", "ts": 1}, {"to": "a", "ts": 2}, {"to": "b", "ts": 1})
    selections: list[dict[str, Any]] = [{"exclude": ["ts"]}, {"include": ["to"]}, {"include": ["body.to"]}]
    for selection in selections:
        assert body(one, **selection) == body(two, **selection)
        assert body(one, **selection) != body(three, **selection)


def test_an_unprefixed_name_means_the_body_if_it_is_parsed_else_the_query() -> None:
    """The same `exclude: [ts]` on a JSON body, on a form, and without a body."""
    assert body({"a": 1, "ts": 1}, query=b"ts=1", exclude=["ts"]) == body(
        {"a": 1, "ts": 2}, query=b"ts=1", exclude=["ts"]
    )
    assert body({"a": 1}, query=b"ts=1", exclude=["ts"]) != body({"a": 1}, query=b"ts=2", exclude=["ts"])
    assert form(b"a=1&ts=1", exclude=["ts"]) == form(b"a=1&ts=2", exclude=["ts"])
    assert query(b"a=1&ts=1", exclude=["ts"]) == query(b"a=1&ts=2", exclude=["ts"])
    opaque = Body(media_type="text/plain", data=b"x")
    assert canonical_arguments(path={}, query=b"ts=1", body=opaque, exclude=["ts"]) == canonical_arguments(
        path={}, query=b"ts=2", body=opaque, exclude=["ts"]
    )


def test_a_prefix_chooses_the_source() -> None:
    """query.ts and body.ts are two names."""
    assert body({"ts": 1}, query=b"ts=1", exclude=["query.ts"]) == body(
        {"ts": 1}, query=b"ts=2", exclude=["query.ts"]
    )
    assert body({"ts": 1}, query=b"ts=1", exclude=["query.ts"]) != body(
        {"ts": 2}, query=b"ts=1", exclude=["query.ts"]
    )


def test_names_walk_objects_and_arrays() -> None:
    """`items[].id` is the ids in order; what stands beside them does not count."""
    one = {"items": [{"id": 1, "t": 1}, {"id": 2, "t": 1}], "deep": {"er": {"x": 1, "y": 1}}}
    other = {"items": [{"id": 1, "t": 9}, {"id": 2, "t": 9}], "deep": {"er": {"x": 1, "y": 9}}}
    swapped = {"items": [{"id": 2, "t": 1}, {"id": 1, "t": 1}], "deep": {"er": {"x": 1, "y": 1}}}
    selections: list[dict[str, Any]] = [
        {"include": ["items[].id", "deep.er.x"]},
        {"exclude": ["items[].t", "deep.er.y"]},
    ]
    for selection in selections:
        assert body(one, **selection) == body(other, **selection)
        assert body(one, **selection) != body(swapped, **selection)


def test_positions_in_arrays_are_kept() -> None:
    """An id that is missing in the first item is not one that is missing in the second."""
    assert body({"items": [{"id": 1}, {}], "x": 1}, include=["items[].id"]) != body(
        {"items": [{}, {"id": 1}], "x": 1}, include=["items[].id"]
    )


def test_arrays_of_arrays_can_be_walked() -> None:
    """`[].id` for a body that is an array, `m[][].v` for a matrix."""
    assert body([{"id": 1, "t": 1}], exclude=["[].t"]) == body([{"id": 1, "t": 2}], exclude=["[].t"])
    assert body({"m": [[{"v": 1, "t": 1}]]}, include=["m[][].v"]) == body(
        {"m": [[{"v": 1, "t": 2}]]}, include=["m[][].v"]
    )


@pytest.mark.parametrize("present", [None, 0, "", False, [], {}, [[]], [None]])
def test_absent_differs_from_null_and_from_every_empty_value(present: object) -> None:
    """With include, with exclude and without either."""
    absent, there = {"to": "a"}, {"to": "a", "cc": present}
    assert body(absent) != body(there)
    assert body(absent, include=["to", "cc"]) != body(there, include=["to", "cc"])
    assert body(absent, exclude=["x"]) != body(there, exclude=["x"])
    assert body(absent, exclude=["cc"]) == body(there, exclude=["cc"])


@pytest.mark.parametrize("selected", [None, 0, "", False, [], {}, [[]], [None]])
def test_include_that_selects_an_empty_value_has_selected_something(selected: object) -> None:
    """`cc: []` is a value: what stands beside it does not count."""
    one, other = {"cc": selected, "ts": 1}, {"cc": selected, "ts": 2}
    assert body(one, include=["cc"]) == body(other, include=["cc"])
    assert body({"list": [one]}, include=["list[].cc"]) == body({"list": [other]}, include=["list[].cc"])


@pytest.mark.parametrize("names", [["absent"], ["a.b.c"], ["absent[].id", "query.x"], ["list[].absent"]])
def test_include_that_selects_nothing_falls_back_to_everything(names: list[str]) -> None:
    """Otherwise every call of the rule would be the same one."""
    one, other = {"a": 1, "list": [{}, {}]}, {"a": 2, "list": [{}, {}]}
    assert body(one, include=names) != body(other, include=names)
    assert body(one, include=names) == body(one)


def test_a_body_that_is_not_parsed_counts_whole_whatever_include_says() -> None:
    """Its fields cannot be seen."""
    for media_type in ("text/plain", "application/json", "multipart/form-data"):
        one = Body(media_type=media_type, data=b"not { json 1")
        other = Body(media_type=media_type, data=b"not { json 2")
        selection: dict[str, Any] = {"include": ["query.a"]}
        assert canonical_arguments(path={}, query=b"a=1", body=one, **selection) != canonical_arguments(
            path={}, query=b"a=1", body=other, **selection
        )


def test_the_arguments_that_are_given_are_not_touched() -> None:
    """Naming a call has no side effect: the same path names serve the log and the next naming."""
    path = {"id": "7", "other": "x"}
    before = deepcopy(path)
    body({"a": 1}, path=path, exclude=["path.id"], normalize=[Normalize.UUIDS])
    assert path == before


# ---- normalize ----


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2024-01-31T10:20:30Z", "2025-12-01T00:00:00.123456+02:00"),
        ("at 2024-01-31 10:20", "at 1999-01-01 23:59"),
        ("2024-01-31", "2024-02-01"),
        ("Mon, 01 Jan 2024 10:20:30 GMT", "Tue, 02 Feb 2025 11:21:31 GMT"),
    ],
)
def test_timestamps_are_normalised_in_strings(one: str, other: str) -> None:
    """In values, wherever they stand, and only when the rule says so."""
    for build in (lambda text: {"a": text}, lambda text: ["x", {"b": [f"before {text} after"]}]):
        assert body(build(one)) != body(build(other))
        assert body(build(one), normalize=[Normalize.TIMESTAMPS]) == body(
            build(other), normalize=[Normalize.TIMESTAMPS]
        )


def test_uuids_are_normalised_and_nothing_that_only_resembles_one() -> None:
    """Upper or lower case; a longer run of digits is something else."""
    one, other = f"id {uuid.UUID(int=1)}", f"id {str(uuid.UUID(int=2**100)).upper()}"
    assert body(one, normalize=[Normalize.UUIDS]) == body(other, normalize=[Normalize.UUIDS])
    assert body("0" + str(uuid.UUID(int=1)), normalize=[Normalize.UUIDS]) != body(
        "1" + str(uuid.UUID(int=1)), normalize=[Normalize.UUIDS]
    )
    assert body(1, normalize=[Normalize.TIMESTAMPS]) != body(2, normalize=[Normalize.TIMESTAMPS])


def test_a_query_is_normalised_also_beside_a_body_that_cannot_be_read() -> None:
    """Broken JSON and lone surrogates take their digest; the query is still the query."""
    for data in (b"{", rb'"\ud800"'):
        found = Body(media_type="application/json", data=data)
        one, other = (
            canonical_arguments(path={}, query=text, body=found, normalize=[Normalize.TIMESTAMPS])
            for text in (b"t=2024-01-01", b"t=2025-02-02")
        )
        assert one == other


def test_names_of_forms_with_words_in_brackets_are_names() -> None:
    """`metadata[request]` is one pair of the form, and `items[]` still a list that is walked."""
    one, other = (
        form(b"amount=5&metadata[request]=%d&items[]=1" % n, exclude=["metadata[request]"]) for n in (1, 2)
    )
    assert one == other
    assert one != form(b"amount=6&metadata[request]=1&items[]=1", exclude=["metadata[request]"])
    assert form(b"card[number]=1&x=1", include=["card[number]"]) == form(
        b"card[number]=1&x=2", include=["card[number]"]
    )
    nested = {"metadata": {"request": 1}, "items": [{"id": 1, "n": 1}]}
    assert body(nested, exclude=["metadata[request]"]) == body(nested)
    changed = {"metadata": {"request": 1}, "items": [{"id": 2, "n": 1}]}
    assert body(nested, exclude=["items[].id"]) == body(changed, exclude=["items[].id"])
