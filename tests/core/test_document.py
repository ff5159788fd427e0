"""A call's arguments as one document: when an expression is honestly false, how placeholders fill."""

from __future__ import annotations

import pytest

from proxy.core.canonical import Body
from proxy.core.document import Document, document_of, fill, surely_false


@pytest.mark.parametrize(
    ("expression", "value", "honest"),
    [
        ("usd > `100`", {"usd": 5}, True),
        ("usd > `100`", {"usd": 500}, False),
        ("usd > `100`", {"usd": "5"}, False),
        ("usd > `100`", {}, False),
        ("env == 'prod'", {"env": "dev"}, True),
        ("env == 'prod'", {"env": ["prod"]}, False),
        ("env == 'prod'", {}, False),
        ("env == 'prod'", {"env": None}, False),
        ("env == `null`", {"env": "dev"}, True),
        ("live == `true`", {"live": False}, True),
        ("live == `true`", {"live": 0}, False),
        ("usd > `100` || env == 'prod'", {"usd": 5, "env": "dev"}, True),
        ("usd > `100` || env == 'prod'", {"usd": [5000], "env": "dev"}, False),
        ("usd > `100` && env == 'prod'", {"usd": 5}, True),
        ("usd > `100` && env == 'prod'", {"usd": "500", "env": "dev"}, False),
        ("usd > `100` && env == 'prod'", {"usd": "500", "env": ["dev"]}, False),
        ("env != `null` && env != 'dev'", {}, True),
        ("env != `null` && env != 'dev'", {"env": "dev"}, True),
        ("env != `null` && env != 'dev'", {"env": "prod"}, False),
        ("!(usd <= `100`)", {"usd": 5}, True),
        ("!(usd <= `100`)", {"usd": "5"}, False),
        ("contains(to, '@')", {"to": "nobody"}, True),
        ("contains(to, '@')", {}, False),
        ("length(items[?usd > `100`]) > `0`", {"items": [{"usd": 5}]}, True),
        ("length(items[?usd > `100`]) > `0`", {"items": [{"usd": 500}]}, False),
        ("to_number(usd[0]) > `100`", {"usd": ["5"]}, True),
        ("`false`", {}, True),
        ("missing", {}, False),
        ("nonsense(", {}, False),
    ],
)
def test_only_what_is_there_makes_a_false_an_honest_one(
    expression: str, value: dict[str, object], honest: bool
) -> None:
    """Whatever is missing, or of another kind, is no reason to let a call pass."""
    assert surely_false(expression, value) is honest


def test_a_source_is_there_by_name_and_the_bodys_fields_beside_it() -> None:
    """A field that is called like a source does not hide it."""
    body = Body(media_type="application/json", data=b'{"ref": 7, "path": "mine", "ok": true}')
    document = document_of(path={"id": "a"}, query=b"q=1&q=2", body=body)
    assert document.whole
    assert document.value["path"] == {"id": "a"}
    assert document.value["query"] == {"q": ["1", "2"]}
    assert document.value["body"]["path"] == "mine"
    assert document.value["ref"] == 7
    assert fill("/{path.id}/{ref}?{body.path}={ok}", document, {}) == "/a/7?mine=true"
    assert fill("/{query.q}", document, {}) is None
    assert fill("/{when}", document, {"when": "12"}) == "/12"
    assert fill("/{nothing}", document, {}) is None


@pytest.mark.parametrize("data", [b'{"a": 1, "a": 2}', b"{", b'{"n": ' + b"9" * 5000 + b"}", b"\xff"])
def test_what_has_no_single_meaning_is_not_whole(data: bytes) -> None:
    """And is not there."""
    document = document_of(path={}, query=b"", body=Body(media_type="application/json", data=data))
    assert document == Document({"path": {}, "query": {}, "body": None}, whole=False)
