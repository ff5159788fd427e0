"""A call's arguments as one document: when an expression is honestly false, how placeholders fill."""

from __future__ import annotations

import pytest

from proxy.core.canonical import Body
from proxy.core.document import MOST_VALUES, Document, document_of, fill, verdict_on
from proxy.core.redaction import MARK


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
        ("contains(['prod', 'stage'], env)", {"env": "dev"}, True),
        ("contains(['prod', 'stage'], env)", {"env": "prod"}, False),
        ("contains(['prod', 'stage'], env)", {"env": ["prod"]}, False),
        ("contains(['prod', 'stage'], env)", {"env": None}, False),
        ("contains(['prod', 'stage'], env)", {"env": 1}, False),
        ("contains(['prod', 'stage'], env)", {}, False),
        ("contains(tags, 'vip')", {"tags": ["new"]}, True),
        ("contains(tags, 'vip')", {"tags": ["not vip"]}, False),
        ("contains(tags, 'vip')", {"tags": []}, False),
        ("starts_with(to, '+1900')", {"to": "+4930"}, True),
        ("starts_with(to, '+1900')", {"to": ["+1900"]}, False),
        ("to_number(usd) > `100`", {"usd": "nan"}, False),
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
    said = verdict_on(expression, Document(value, whole=True))
    assert (said is False) is honest


@pytest.mark.parametrize(
    ("expression", "body", "said"),
    [
        ('env == `["prod"]`', b"env=dev", False),
        ('env == `["prod"]`', b"env=prod", True),
        ('env == `["prod"]`', b"env=dev&env=prod", None),
        ("to_number(usd[0]) > `100`", b"usd=1&usd=20000", None),
        ("to_number(usd[0]) > `100`", b"usd=1&note=a&note=b", False),
        ('"ids[]" == `["7"]`', b"ids[]=1&ids[]=2", False),
    ],
)
def test_of_a_name_that_stands_there_twice_no_reader_is_sure(
    expression: str, body: bytes, said: bool | None
) -> None:
    """Some take the first, some the last. A name that says that it is a list is one."""
    form = Body(
        media_type="application/x-www-form-urlencoded",
        content_type=b"application/x-www-form-urlencoded",
        data=body,
    )
    assert verdict_on(expression, document_of(path={}, query=b"", body=form)) is said
    assert verdict_on(expression, document_of(path={}, query=body, body=Body())) is said


@pytest.mark.parametrize(("items", "said"), [(MOST_VALUES - 9, False), (MOST_VALUES + 1, None)])
def test_no_expression_is_asked_of_very_many_values(items: int, said: bool | None) -> None:
    """It would look at each of them, while others wait."""
    data = b'{"n": [%b1], "env": "dev"}' % (b"1," * items)
    body = Body(media_type="application/json", content_type=b"application/json", data=data)
    assert verdict_on("env == 'prod'", document_of(path={}, query=b"", body=body)) is said


@pytest.mark.parametrize(
    "content_type",
    [
        b"application/json; charset=utf-8; charset=utf-7",
        b"application/json; x-charset=utf-8; charset=utf-7",
        b"application/json; charset*=utf-7''utf-8",
        b"application/x-www-form-urlencoded, a+json",
        b"application/x-www-form-urlencoded a+json",
    ],
)
def test_what_may_be_read_in_two_ways_is_not_whole(content_type: bytes) -> None:
    """By its charset, or by its type."""
    media_type = content_type.partition(b";")[0].decode()
    body = Body(media_type=media_type, content_type=content_type, data=b'{"env": "dev"}')
    assert not document_of(path={}, query=b"", body=body).whole


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


@pytest.mark.parametrize(
    "data",
    [b'{"a": 1, "a": 2}', b"{", b'{"n": ' + b"9" * 5000 + b"}", b"\xff", b'{"a\\uD83d": 1}', b'["\\udc00"]'],
)
def test_what_has_no_single_meaning_is_not_whole(data: bytes) -> None:
    """And is not there."""
    document = document_of(path={}, query=b"", body=Body(media_type="application/json", data=data))
    assert document == Document({"path": {}, "query": {}, "body": None}, whole=False)


def test_a_pair_of_surrogates_is_whole() -> None:
    """It is one character, however it is spelt."""
    body = Body(media_type="application/json", data=b'{"a": "\\uD83D\\ude00"}')
    assert document_of(path={}, query=b"", body=body).whole


def test_a_query_that_cannot_be_read_leaves_nothing_whole() -> None:
    """The rest of the document is there all the same."""
    body = Body(media_type="application/json", data=b'{"a": 1}')
    document = document_of(path={}, query=b"x=%ff", body=body)
    assert not document.whole
    assert (document.value["a"], document.value["query"]) == (1, {})
    assert document_of(path={}, query=b"x=1", body=body).whole


def test_a_target_may_end_with_text_or_with_a_placeholder() -> None:
    """Nothing of it is lost, and a brace of its own closes nothing."""
    document = Document({"id": "a/b"}, whole=True)
    assert fill("/x/{id}/y", document, {}) == "/x/a%2Fb/y"
    assert fill("/x/{id}", document, {}) == "/x/a%2Fb"
    assert fill("/x", document, {}) == "/x"
    assert fill("", document, {}) == ""
    for nothing in ("", ".", ".."):
        assert fill("/{id}", Document({"id": nothing}, whole=True), {}) is None


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        (True, "/true"),
        (False, "/false"),
        (0, "/0"),
        (1.5, "/1.5"),
        ("a b", "/a%20b"),
        (["one"], "/one"),
        (["one", "two"], None),
        ([], None),
        (None, None),
        ({}, None),
        (MARK + "0123", None),
        ("not " + MARK, "/not%20redacted%3A"),
    ],
)
def test_a_placeholder_takes_one_value_that_the_record_still_has(value: object, filled: str | None) -> None:
    """A probe that asks for another thing would find nothing, and the call would be made again."""
    assert fill("/{it}", Document({"it": value}, whole=True), {}) == filled
    assert fill("/{in.it}", Document({"in": {"it": value}}, whole=True), {}) == filled


def test_nothing_is_looked_for_inside_a_text() -> None:
    """Though its letters are there."""
    document = Document({"ref": "xyz", "list": ["x"]}, whole=True)
    assert fill("/{ref.x}", document, {}) is None
    assert fill("/{list.x}", document, {}) is None
