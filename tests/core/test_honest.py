"""When a false is a false: what is compared is there, and of one kind. Batches of messages, given again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.canonical import Body
from proxy.core.document import Document, document_of, holds, verdict_on
from proxy.core.mcp_again import Again, headers_again
from proxy.core.mcp_outcome import spoken_in
from proxy.core.prices import PRICES, price_of

DOCUMENT: dict[str, Any] = {
    "a": 1,
    "b": "x",
    "none": None,
    "list": ["x", "yz", 3],
    "empty": [],
    "items": [{"n": 1}, {"n": 2}],
    "flag": False,
    "yes": True,
    "flags": [False],
    "word": "ab",
    "blank": "",
}


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        # One side of an `&&` must be false for a reason, whatever the other is.
        ("a == `2` && b == 'x'", False),
        ("a == `2` && missing == 'x'", False),
        ("missing == 'x' && a == `2`", False),
        ("missing == 'x' && a == `1`", None),
        ("missing == 'x' && missing == 'y'", None),
        # Both sides of an `||`.
        ("a == `2` || b == 'y'", False),
        ("a == `2` || missing == 'y'", None),
        ("!(a == `1`)", False),
        ("!(missing == 'x' || a == `1`)", None),
        # What is handed on is looked at where it goes.
        ("items | [0].n == `2`", False),
        ("items | [0].m == `2`", None),
        ("(a == `1`) | @ == `2`", None),
        ("a | @ == `2`", False),
        # A function is asked of what is there.
        ("contains(b, 'y')", False),
        ("contains(list, 'q')", False),
        ("contains(list, 'y')", None),
        ("contains(list, `4`)", False),
        ("contains(list, `true`)", None),
        ("contains(list, list)", None),
        ("contains(empty, 'x')", None),
        ('contains(`["p", "q"]`, b)', False),
        ('contains(`["xx", "q"]`, b)', False),
        ("starts_with(b, 'y')", False),
        ("starts_with(missing, 'y')", None),
        ("contains(missing, 'y')", None),
        ("length(items[?n == `3`]) > `0`", False),
        ("contains(map(&n, items), `9`)", False),
        ("contains(to_string(a == `1`), 'z')", None),
        ("contains(blank, 'y')", False),
        ("contains(word, 'ba')", False),
        ("starts_with(word, 'b')", False),
        ("starts_with(blank, 'y')", False),
        ("not_null(missing, flag)", None),
        ("not_null(flag, yes)", False),
        ("max_by(flags, &`1`)", False),
        # A slice has numbers in it, and nothing where it is open.
        ("length(list[0:2]) > `5`", False),
        ("contains(list[:2], 'q')", False),
        # Another comparison, wherever it stands, but for the condition of a filter.
        ("contains(items[?n].[n == `9`][], `true`)", None),
        ("contains([a, a, a == `1`], `false`)", None),
        ("missing == 'x' && abs(b) == `1`", None),
        # Kinds, and nothing.
        ("a == `1.5`", False),
        ("missing != none", None),
        ("a == 'x'", None),
        ("a > `5`", False),
        ("a == none", None),
        ("none == missing", True),
        ("a == `null`", False),
        ("list == 'x'", None),
        ("yes == `false`", False),
        ("yes == `1`", None),
        ("flag", False),
        ("(a == `2`) == `true`", None),
        ("yes", True),
        ("a", None),
    ],
)
def test_a_false_counts_where_it_is_about_something(expression: str, said: bool | None) -> None:
    """What is missing, of another kind, or told by another comparison says nothing."""
    assert verdict_on(expression, Document(DOCUMENT, whole=True)) is said


def test_an_expression_that_fails_says_nothing() -> None:
    """A function of the wrong kind, within another or by itself."""
    assert holds("abs(b)", DOCUMENT) is None
    assert holds("sum(list)", DOCUMENT) is None
    assert verdict_on("abs(b) == `1`", Document(DOCUMENT, whole=True)) is None
    assert verdict_on("a == `2` && abs(b) == `1`", Document(DOCUMENT, whole=True)) in (False, None)
    assert verdict_on("a == `2` || abs(b) == `1`", Document(DOCUMENT, whole=True)) is None


@pytest.mark.parametrize(
    ("content_type", "whole"),
    [
        (b"application/json", True),
        (b"application/json; charset=UTF-8", True),
        (b'application/json; charset="utf8"', True),
        (b"application/json; charset=us-ascii", True),
        (b"application/json; charset=ASCII", True),
        (b"application/json; charset*=utf-8", False),
        (b"application/json; charset=latin-1", False),
    ],
)
def test_a_charset_is_one_that_all_read_alike(content_type: bytes, whole: bool) -> None:
    """Said plainly."""
    body = Body(media_type="application/json", content_type=content_type, data=b"{}")
    assert document_of(path={}, query=b"", body=body).whole is whole


def test_what_is_neither_json_nor_a_form_is_not_read() -> None:
    """Though it could be; and a number of thousands of digits is not read as one."""
    for media_type, data in (
        ("text/plain", b'{"a": 1}'),
        ("application/json", b'{"a": ' + b"9" * 5000 + b"}"),
    ):
        document = document_of(path={}, query=b"", body=Body(media_type, b"", data))
        assert not document.whole
        assert document.value["body"] is None


# ---- several messages together ----

AGAIN = Again(id=9, progress="t9")


def together(*messages: object) -> bytes:
    return json.dumps(list(messages)).encode()


ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {"x": 1}}
ASKS = {"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage"}
TELLS = {
    "jsonrpc": "2.0",
    "method": "notifications/progress",
    "params": {"progressToken": "t1", "progress": 1},
}
NOTES = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}


def test_a_batch_is_given_again_under_the_new_id() -> None:
    """Without what the server asked of the client; progress under the new token, or not at all."""
    again = json.loads(AGAIN.message(b" " + together(ASKS, TELLS, NOTES, ANSWER)))
    assert again == [{**TELLS, "params": {"progressToken": "t9", "progress": 1}}, NOTES, {**ANSWER, "id": 9}]
    silent = Again(id=9, progress=None)
    assert json.loads(silent.message(together(TELLS, ANSWER))) == [{**ANSWER, "id": 9}]
    event = AGAIN.event(b"id: 7\nevent: message\ndata: " + together(ASKS, ANSWER) + b"\n")
    assert event is not None
    head, _, rest = event.partition(b"data: ")
    assert (head, json.loads(rest)) == (b"event: message\n", [{**ANSWER, "id": 9}])
    assert rest.endswith(b"\n\n")


def test_what_is_for_nobody_is_left_out_or_left_as_it_was() -> None:
    """A whole answer is given as it was; of a stream such an event is not."""
    only_questions = together(ASKS)
    assert AGAIN.message(only_questions) == only_questions
    assert AGAIN.event(b"data: " + only_questions) is None
    assert AGAIN.event(b"data: " + json.dumps(ASKS).encode()) is None
    assert AGAIN.event(b": a comment") is None
    assert AGAIN.event(b"data: 5") == b"data: 5\n\n"
    assert AGAIN.message(b"no json") == b"no json"


def test_headers_of_a_session_are_not_given_again() -> None:
    """In any spelling; all others are."""
    kept = ((b"Content-Type", b"a"), (b"Mcp-Protocol-Version", b"1"))
    gone = ((b"MCP-Session-Id", b"s"), (b"content-length", b"3"), (b"Location", b"/x"))
    assert headers_again((*gone, *kept)) == kept


def test_what_was_spoken_is_found_among_several() -> None:
    """The first that names the request; one that names none only where no other is."""
    nameless = [{"jsonrpc": "2.0", "id": None, "error": {"code": n}} for n in (1, 2)]
    assert spoken_in(together(*nameless), 1, events=False).response == nameless[0]
    assert spoken_in(together(*nameless, ANSWER), 1, events=False).response == ANSWER
    assert spoken_in(together(ANSWER, {**ANSWER, "result": 2}), 1, events=False).response == ANSWER
    assert spoken_in(together(ASKS, ANSWER), 1, events=False) == (ANSWER, True)
    assert spoken_in(together(NOTES), 1, events=False) == (None, False)
    assert spoken_in(None, 1, events=False) == (None, False)
    assert spoken_in(b"", 1, events=True) == (None, False)


def test_of_a_stream_every_event_is_heard() -> None:
    """Those that are no JSON are passed over; an escaped name is a name."""
    answer = json.dumps(ANSWER).replace('"id"', '"\\u0069d"')
    stream = f'data: {{"id" broken\n\ndata: {json.dumps(NOTES)}\n\ndata: {answer}\n\n'.encode()
    assert spoken_in(stream, 1, events=True).response == ANSWER
    batch = f"data: {json.dumps([NOTES, ANSWER])}\n\n".encode()
    assert spoken_in(batch, 1, events=True).response == ANSWER


# ---- prices ----


def test_models_that_have_a_price() -> None:
    """Budgets of money rely on it: a model that drops out of the table is no longer counted."""
    openai = ["6-astra", "6.1-sol", "6.1-terra", "6-sol", "6-luna", "5.6-sol", "5.6-terra", "5.6-luna", "5.5",
              "5.4", "5.4-mini", "5.4-nano", "5.2", "5.1", "5", "5-mini", "5-nano", "4.1", "4.1-mini",
              "4.1-nano", "4o", "4o-2024-05-13", "4o-mini"]  # fmt: skip
    claude = ["fable-5-1", "fable-5", "opus-5-5", "opus-5", "opus-4-8", "opus-4-7", "opus-4-6", "opus-4-5",
              "sonnet-5-5", "sonnet-5", "sonnet-4-6", "sonnet-4-5", "haiku-5-5", "haiku-4-5"]  # fmt: skip
    embedding = ["3-small", "3-large", "ada-002"]
    assert set(PRICES) == {
        *(f"gpt-{name}" for name in openai),
        *(f"claude-{name}" for name in claude),
        *(f"text-embedding-{name}" for name in embedding),
    }
    assert price_of("gpt-4.1-2025-04-14") is PRICES["gpt-4.1"]
    assert price_of("gpt-4o-2024-05-13") is not PRICES["gpt-4o"]
    assert price_of("gpt-4.1-preview") is None
