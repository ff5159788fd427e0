"""The differences that are told are those that make the names differ: all of them, and no others."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core.patterns import PathPattern
from proxy.core.policy import KeyRecipe, Normalize, Rule, Upstream
from proxy.explaining.differences import differences, same_name
from proxy.explaining.matching import Pair, compare
from proxy.explaining.written import key_line, read_key
from proxy.front.address import UpstreamAddress
from proxy.front.naming import Named, ToName, name_in_full
from proxy.spool import Spool
from tests.counts import count

SECRET = b"s" * 32
RULE = Rule(name="send", path=PathPattern.parse("/{box}"))

NAMES = st.sampled_from(["a", "b", "a.b", "query", "ids[]", "4", "", "é"])
LEAVES: st.SearchStrategy[object] = st.sampled_from(
    [0, 1, True, None, 1.5, "x", "1", "2026-11-16", "on 2026-11-16", []]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.dictionaries(NAMES, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=5,
)
ARGUMENTS = st.sampled_from(["a", "b", "a.b", "body.query", "query.a", "a[].b", "a[]"])
HEADERS = st.lists(
    st.sampled_from(
        [
            (b"X-Team", b"a"),
            (b"X-Team", b"b"),
            (b"Accept", b"x"),
            (b"Authorization", b"p"),
            (b"Authorization", b"q"),
            (b"Idempotency-Key", b"k"),
            (b"User-Agent", b"u"),
        ]
    ),
    max_size=3,
    unique_by=lambda pair: pair[0],
)


@st.composite
def recipes(draw: st.DrawFn) -> KeyRecipe:
    names = draw(st.lists(ARGUMENTS, max_size=4, unique=True))
    cut = draw(st.integers(0, len(names)))
    return KeyRecipe(
        include=tuple(names[:cut]),
        exclude=tuple(names[cut:]),
        headers=tuple(draw(st.sampled_from([(), ("x-team",)]))),
        normalize=tuple(draw(st.sampled_from([(), (Normalize.TIMESTAMPS,)]))),
    )


@st.composite
def requests(draw: st.DrawFn) -> ToName:
    body = draw(st.none() | VALUES)
    return ToName(
        upstream=Upstream(name="up", scheme="http", host="h", port=80, rules=(RULE,)),
        address=UpstreamAddress("up", draw(st.sampled_from(["/p", "/%70", "/q"])), draw(QUERIES)),
        method=draw(st.sampled_from(["POST", "PUT"])),
        headers=((b"Content-Type", draw(TYPES)), *draw(HEADERS)),
        body=Spool.of(json.dumps(body).encode()) if body is not None else None,
        occurrence=draw(st.sampled_from([1, 1, 1, 2])),
        tenant="default",
    )


QUERIES = st.sampled_from([None, "", "a=1", "a=2", "a=1&b=1", "b", "%ff"])
TYPES = st.sampled_from([b"application/json", b"application/json; charset=utf-8", b"text/plain"])


def name(request: ToName) -> Named:
    return name_in_full(request, SECRET, 1 << 20)


def body(text: bytes) -> ToName:
    return ToName(
        upstream=Upstream(name="up", scheme="http", host="h", port=80, rules=(RULE,)),
        address=UpstreamAddress("up", "/p", None),
        method="POST",
        headers=((b"Content-Type", b"application/json"),),
        body=Spool.of(text),
        occurrence=1,
        tenant="default",
    )


@settings(max_examples=count(100, 5000), deadline=None)
@given(requests(), requests(), recipes(), st.booleans())
@example(body(b'{"a": 1}'), body(b'{"a": true}'), KeyRecipe(), False)
@example(body(b'{"a": {"[]": 1}}'), body(b'{"a": {"[]": 2}}'), KeyRecipe(), False)
def test_names_differ_exactly_when_a_difference_is_told(
    here: ToName, there: ToName, recipe: KeyRecipe, alike: bool
) -> None:
    """For drawn pairs under drawn recipes; and every suggestion makes them match, read back from its text."""
    if alike:  # mostly the same: only the bodies differ
        there = here._replace(body=there.body)
    rule = replace(RULE, key=recipe)
    upstream = replace(here.upstream, rules=(rule,))
    here, there = here._replace(upstream=upstream), there._replace(upstream=upstream)
    one, other = name(here), name(there)
    found = differences(here, there, one, other)
    assert bool(found) != same_name(one, other), found
    assert len({difference.field for difference in found}) == len(found)
    compared = compare(Pair(here, there, name))
    assert compared.same == same_name(one, other)
    for suggestion in compared.suggestions:
        changed = replace(upstream, rules=(replace(rule, key=read_key(suggestion.yaml)),))
        assert same_name(name(here._replace(upstream=changed)), name(there._replace(upstream=changed)))
    if not compared.same and not compared.suggestions:
        assert compared.remaining


@settings(max_examples=count(80, 2000), deadline=None)
@given(recipes())
def test_a_recipe_is_written_so_that_it_reads_back_the_same(recipe: KeyRecipe) -> None:
    """Whatever it holds: names in brackets, names that look like numbers."""
    assert read_key(key_line(recipe)) == recipe
