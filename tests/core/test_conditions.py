"""Each part of a condition has its case: forks, guards, documents, messages, and what is hidden."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.canonical import Body
from proxy.core.clauses import Approval, OnDoubt, Probe, Redact, UpstreamKey
from proxy.core.divergence import Row, allow, fork, group_of
from proxy.core.document import MOST_VALUES, document_of, verdict_on
from proxy.core.intent import State
from proxy.core.jsonrpc import (
    INVALID_REQUEST,
    LONGEST_NAME,
    Other,
    Unclear,
    asks_client,
    error,
    for_request,
    hear,
    with_progress_token,
)
from proxy.core.matching import Seen, find_rule, hidden_in_case
from proxy.core.patterns import PathPattern
from proxy.core.policy import Implied, KeyRecipe, Looks, Mode, OutcomeRule, Repeat, Rule, Upstream
from proxy.core.redaction import (
    MARK,
    hide_headers,
    hide_names,
    hide_path,
    hide_query,
    naming_veil,
    redacts,
    sounds_secret,
    unescaped,
    veil_of,
)

KEY = b"k" * 32
JSON = "application/json"


# ---- leaving the record ----


def row(seq: int, **more: Any) -> Row:
    made = Row(id=f"r{seq}", seq=seq, safe=False, state=State.DONE, group=("g",), attempt="a1")
    return replace(made, **more)


def test_only_the_latest_attempt_says_what_is_unasked() -> None:
    """Of three; rows may come one at a time."""
    rows = [row(1), row(2, asked_by=frozenset({"a3"})), row(3, attempt="a2")]
    retired = allow(iter(rows), ("a1", "a2", "a3"))
    assert [each.retired for each in retired] == [True, False, True]
    assert allow(iter(rows), ()) == tuple(rows)


def test_a_fork_of_a_fork_sees_rows_as_its_own_parent_does() -> None:
    """What they were to the fork before says nothing; what a person retired stays so up to the start."""
    was = {"inherited": True, "beyond": True, "retired": True, "asked_by": frozenset({"a1"})}
    before, after = fork([row(1, **was), row(2, **was)], at=1)
    assert (before.inherited, before.beyond, before.retired, before.asked_by) == (
        True,
        False,
        True,
        frozenset(),
    )
    assert (after.inherited, after.beyond, after.retired, after.asked_by) == (False, True, False, frozenset())
    assert fork([row(1), row(2)], at=1, resend=True) == (row(1, inherited=True),)
    unanswered = row(1, safe=True, answered=False)
    assert fork([unanswered, row(1, state=None, answered=True)], at=1) == (
        row(1, state=None, answered=True, inherited=True),
    )


def test_groups_are_in_the_record() -> None:
    """Told the same way by every version."""
    assert group_of(upstream="u", rule="r", method="POST", host="h", path="/p") == ("rule", "u", "r")
    assert group_of(upstream="u", rule=None, method="POST", host="h", path="/p") == (
        "call",
        "POST",
        "h",
        "/p",
    )


# ---- documents ----


@pytest.mark.parametrize(
    ("items", "query", "small"),
    [(-1, b"", True), (0, b"", False), (-3, b"q=1", True), (-2, b"q=1", False)],
)
def test_every_value_is_counted_once(items: int, query: bytes, small: bool) -> None:
    """Of the query and the body: what a name stands for is one, and each that lies in it."""
    data = b'{"n": [%b]}' % b",".join([b"1"] * (MOST_VALUES + items))
    assert document_of(path={}, query=query, body=Body(media_type=JSON, data=data)).small is small


def test_what_cannot_be_read_leaves_the_rest() -> None:
    """A query that is none, a body that is none: neither takes the other's fields."""
    document = document_of(path={"id": "1"}, query=b"x=%ff", body=Body())
    assert (document.whole, document.value) == (False, {"path": {"id": "1"}, "query": {}, "body": None})
    document = document_of(path={}, query=b"x=1", body=Body("text/plain", b"", b"x"))
    assert (document.whole, document.value["query"], document.value["body"]) == (False, {"x": ["1"]}, None)
    assert document.value["x"] == ["1"]
    assert document_of(path={}, query=b"", body=Body()).value == {"path": {}, "query": {}, "body": None}


def test_nothing_is_said_of_a_document_that_is_too_large_or_not_whole() -> None:
    """Not even what is plainly there."""
    document = document_of(path={}, query=b"", body=Body(JSON, b"", b'{"a": true}'))
    assert verdict_on("a", document) is True
    assert verdict_on("a", document._replace(whole=False)) is None
    assert verdict_on("a", document._replace(small=False)) is None


# ---- messages ----


def refused(body: bytes) -> int:
    with pytest.raises(Unclear) as caught:
        hear(body)
    return caught.value.code


@pytest.mark.parametrize(
    "name",
    ["Tools/Call", "tools/call\u200b", "tools/call\0x", "tool\u017f/call", "tools/ca\u0307ll", "TOOLS/CALL"],
)
def test_what_some_reader_takes_for_a_call_is_refused(name: str) -> None:
    """Other letters, what cannot be seen, what follows a zero."""
    assert refused(json.dumps({"id": 1, "method": name}).encode()) == INVALID_REQUEST
    assert hear(b'{"method": "tool/call"}').calls == ()


def test_a_method_is_a_text() -> None:
    """Whatever else it is, it is refused and not handed on."""
    for method in (b"1", b"null", b'["tools/call"]'):
        assert refused(b'{"id": 1, "method": %b}' % method) == INVALID_REQUEST


def test_which_request_is_cancelled_must_be_beyond_doubt() -> None:
    """Of a cancellation; other notifications may say what they like, and one without params says nothing."""
    twice = b'{"method": "%b", "params": {"requestId": 1, "requestid": 2}}'
    assert refused(twice % b"notifications/cancelled") == INVALID_REQUEST
    (other,) = hear(twice % b"notifications/progress").messages
    assert isinstance(other, Other)
    for params in (b"[1]", b"null", b'"x"'):
        (said,) = hear(b'{"method": "notifications/cancelled", "params": %b}' % params).messages
        assert isinstance(said, Other)
        assert said.params == {}


def test_a_tool_has_a_name_of_256_characters_at_most() -> None:
    """To the character."""
    for length, fits in ((LONGEST_NAME, True), (LONGEST_NAME + 1, False)):
        body = json.dumps({"id": 1, "method": "tools/call", "params": {"name": "x" * length}}).encode()
        if fits:
            assert hear(body).calls
        else:
            refused(body)
    assert LONGEST_NAME == 256


def test_messages_begin_after_space() -> None:
    """And the bytes of one are those between its braces."""
    body = b' \n {"method": "x", "params": {}} \n'
    (other,) = hear(body).messages
    assert other.text == body.strip()
    assert for_request(b' {"id": 1, "result": {}} ', 2, modern=False) == b' {"id": 2, "result": {}} '


def test_a_token_is_set_in_params_and_nowhere_else() -> None:
    """An object of another name may have one of its own."""
    body = b' {"meta": {"progressToken": 1}, "params": {"progressToken": 1, "n": 2}}'
    assert (
        with_progress_token(body, 9)
        == b' {"meta": {"progressToken": 1}, "params": {"progressToken": 9, "n": 2}}'
    )
    for other in (b'{"params": 1}', b'{"x": {"progressToken": 1}}'):
        assert with_progress_token(other, 9) == other


def test_an_error_of_semels_own() -> None:
    """With more to say, or without; a line of its own."""
    assert json.loads(error(1, -32080, "no")) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -32080, "message": "no"},
    }
    assert json.loads(error(None, -1, "no", data={"a": 1}))["error"]["data"] == {"a": 1}
    assert error(1, -1, "no").endswith(b"}\n")


def test_a_ping_asks_nothing() -> None:
    """Nor does what is no request."""
    assert asks_client({"id": 1, "method": "sampling/createMessage"})
    nothings: list[Any] = [{"id": 1, "method": "ping"}, {"method": "x"}, {"id": 1}, [], "x", None]
    for nothing in nothings:
        assert not asks_client(nothing)


# ---- guards of which it cannot be said whether they are meant ----

UNREADABLE = Seen((), b"", lambda: Body(media_type=JSON, data=b'{"a": 1, "a": 2}'))


def upstream(*rules: Rule) -> Upstream:
    return Upstream(name="u", scheme="https", host="u.example", port=443, rules=rules)


def test_of_such_a_guard_only_what_makes_strict_is_left() -> None:
    """A person is asked, whatever about; it is no longer safe, named by all, and held when in doubt."""
    rule = Rule(
        name="ask",
        looks=Looks(when="a == `1`"),
        safe=True,
        repeat=Repeat.SAME,
        key=KeyRecipe(include=("a",), headers=("x-a",), implied=Implied(headers=("x-b",), client_field="k")),
        in_doubt=OnDoubt.PROBE,
        probe=Probe(method="GET", target="/", found="x"),
        upstream_key=UpstreamKey(header="k"),
        outcome=OutcomeRule(final=frozenset({500})),
        approval=Approval(when="a", wait=3.0),
    )
    found = find_rule(upstream(rule), "POST", "/a", UNREADABLE)
    assert found is not None
    assert found.rule == replace(
        rule,
        safe=False,
        repeat=Repeat.ORDINAL,
        key=KeyRecipe(headers=("x-a",), implied=Implied(headers=("x-b",))),
        in_doubt=OnDoubt.HOLD,
        probe=None,
        upstream_key=None,
        outcome=OutcomeRule(),
        approval=Approval(when=None, wait=3.0),
    )
    denying = Rule(name="no", looks=Looks(when="a == `1`"), mode=Mode.DENY)
    denied = find_rule(upstream(denying), "POST", "/a", UNREADABLE)
    assert denied is not None
    assert denied.rule is denying
    assert find_rule(upstream(replace(denying, mode=Mode.ONCE)), "POST", "/a", UNREADABLE) is None


def test_what_may_have_to_be_hidden_is() -> None:
    """Of every rule that may be meant; not of one that surely is not, or surely is, or hides nothing."""
    looks = Looks(when="a == `1`")
    rules = (
        Rule(name="plain", redact=Redact(args=("p",))),
        Rule(name="hides nothing", looks=looks),
        Rule(name="elsewhere", looks=looks, path=PathPattern.parse("/b"), redact=Redact(args=("e",))),
        Rule(name="one", looks=looks, redact=Redact(args=("x", "y"), headers=("h",))),
        Rule(name="two", looks=looks, redact=Redact(args=("y", "z"), headers=("h", "i"))),
    )
    hidden = hidden_in_case(upstream(*rules), "POST", "/a", UNREADABLE)
    assert hidden == Redact(args=("x", "y", "z"), headers=("h", "i"))
    readable = Seen((), b"", lambda: Body(media_type=JSON, data=b'{"a": 2}'))
    assert hidden_in_case(upstream(*rules), "POST", "/a", readable) == Redact()


# ---- hiding ----


def test_a_rule_hides_if_anything_is_listed() -> None:
    """Arguments or headers, then or now."""
    assert not redacts(Rule(name="r"))
    for listed in (Redact(args=("a",)), Redact(headers=("x",))):
        assert redacts(Rule(name="r", redact=listed))
        assert redacts(Rule(name="r", redacts_now=listed))


def test_only_what_is_read_from_a_record_may_be_hidden_already() -> None:
    """A client that sends the form of a hash sends a text like any other."""
    plain = veil_of(KEY, "acme")
    recorded = veil_of(KEY, "acme", recorded=True)
    mark = plain.hash(b"1234")
    assert mark.startswith(MARK)
    assert recorded.hash(mark.encode()) == mark
    assert plain.hash(mark.encode()) != mark
    for other in (mark.encode() + b"0", b"x" + mark.encode(), b"\xff", b""):
        assert recorded.hash(other) == plain.hash(other) != other.decode("latin-1")
    assert naming_veil(Rule(name="r"), "acme", KEY, recorded=True).recorded
    assert not naming_veil(Rule(name="r"), "acme", KEY).recorded
    # Hashes lie in records, and name calls: the same value is hidden in the same way by every version.
    assert mark == "redacted:a3ee4a1a3621c06b3550cf4e8b458b0a"


def test_names_that_mean_a_query_or_a_path_mean_nothing_in_a_body() -> None:
    """By what stands before the first dot."""
    veil = veil_of(KEY, "acme", ("query.a", "path.b", "body.c", "d", "e.path", "path"))
    assert veil.in_body == ("body.c", "d", "e.path")


def starred(text: str) -> str:
    return re.sub(re.escape(MARK) + "[0-9a-f]{32}", "*", text)


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("a=1&pin=2=3&b", "a=1&pin=*&b"),
        ("a;pin=2;c=3;d", "a;pin=*"),
        ("pin", "pin"),
        ("", ""),
        ("a=1;b=2", "a=1;b=2"),
        ("p%69n=2", "p%69n=*"),
        ("x+pin=2", "x+pin=2"),
    ],
)
def test_of_a_pair_the_value_goes_and_all_behind_it(query: str, left: str) -> None:
    """A name alone is no pair."""
    assert starred(hide_query(query, veil_of(KEY, "acme", ("query.pin",)))) == left


def test_values_are_hidden_by_what_they_mean() -> None:
    """`+` and `%20` are one space, and an equals sign or a semicolon is part of it."""
    veil = veil_of(KEY, "acme", ("query.pin",))
    assert hide_query("pin=a+b", veil) == hide_query("pin=a%20b", veil) == f"pin={veil.hash(b'a b')}"
    assert hide_query("pin=a=b;c", veil) == f"pin={veil.hash(b'a=b;c')}"
    assert hide_query("pin=a&pin=b", veil) == f"pin={veil.hash(b'a')}&pin={veil.hash(b'b')}"
    assert unescaped("a+b%20c") == "a b c"
    assert unescaped("a+b") == "a b"
    assert unescaped("%ff") == "\ufffd"


def test_of_a_path_only_named_segments_are_hidden_each_where_it_stands() -> None:
    """Two of them, and a literal that is called as one is not."""
    pattern = PathPattern.parse("/pin/{pin}/x/{token}/{id}")
    veil = veil_of(KEY, "acme", ("path.pin",))
    hidden = hide_path("/pin/1/x/2/3", pattern, veil)
    assert hidden == f"/pin/{veil.hash(b'1')}/x/{veil.hash(b'2')}/3"
    assert hide_path("/a/1", PathPattern.parse("/a/{id}"), veil) == "/a/1"
    assert hide_path("/a/1", PathPattern.parse("/a/*"), veil) == hide_path("/a/1", None, veil) == "/a/1"
    names = {"pin": "\udcff1", "id": "3"}
    assert hide_names(names, veil) == {"pin": veil.hash(b"\xff1"), "id": "3"}
    assert hide_names({"id": "3"}, veil) == {"id": "3"}
    assert hide_headers(((b"A", b"1"),), veil) == ((b"A", b"1"),)


def test_a_secrets_name_may_stand_anywhere_in_a_longer_one() -> None:
    """And what only sounds like one is none."""
    assert sounds_secret("x_api_key")
    assert not sounds_secret("max_tokens")
    assert not sounds_secret("x_max_tokens")
