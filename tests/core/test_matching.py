"""Rules that look at headers and arguments: what fits, what does not, and what nobody can say."""

from __future__ import annotations

import json
from time import process_time

import pytest

from proxy.core.canonical import Body
from proxy.core.clauses import Approval, OnDoubt, UpstreamKey
from proxy.core.headers import Headers
from proxy.core.matching import Seen, default_rule, find_rule
from proxy.core.policy import KeyRecipe, Looks, Mode, OutcomeRule, Rule, Upstream

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
TARGET = "x-amz-target"


def seen(
    data: bytes = b"", *headers: tuple[bytes, bytes], media_type: str = JSON, query: bytes = b""
) -> Seen:
    return Seen(headers, query, lambda: Body(media_type=media_type, data=data))


def found(rule: Rule, request: Seen, *, method: str = "POST", path: str = "/a") -> str:
    """The rule's name, or that of the one behind it."""
    rules = (rule, Rule(name="next"))
    upstream = Upstream(name="mail", scheme="https", host="mail.example", port=443, rules=rules)
    match = find_rule(upstream, method, path, request)
    assert match is not None
    return match.rule.name


def when(expression: str, **more: object) -> Rule:
    return Rule(name="one", looks=Looks(when=expression), **more)  # type: ignore[arg-type]


def wanting(*values: str, **more: object) -> Rule:
    return Rule(name="one", looks=Looks(headers=((TARGET, values),)), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expression", "document", "fits"),
    [
        ("kind == 'read'", {"kind": "read"}, True),
        ("kind == 'read'", {"kind": "write"}, False),
        ("kind == 'read'", {}, False),
        ("kind == 'read'", ["read"], False),
        ("!(background || tools[?type == 'mcp'])", {}, True),
        ("!(background || tools[?type == 'mcp'])", {"background": True}, False),
        ("!(background || tools[?type == 'mcp'])", {"tools": [{"type": "mcp"}]}, False),
        ("!(background || tools[?type == 'mcp'])", {"tools": [{"type": "search"}]}, True),
        ("tools", {"tools": [1]}, False),  # only an honest true counts
        ("body.query == 'x'", {"query": "x"}, True),  # `query` alone is the address's
        ("query == 'x'", {"query": "x"}, False),
        ("nonsense(@)", {}, False),
    ],
)
def test_when(expression: str, document: object, fits: bool) -> None:
    """JMESPath on the arguments."""
    assert found(when(expression), seen(json.dumps(document).encode())) == ("one" if fits else "next")


def test_forms_and_queries_are_lists() -> None:
    """So a name that is given twice is not taken for one that is given once."""
    rule = when('Action == `["SendEmail"]`')
    for data, name in ((b"Action=SendEmail&To=a", "one"), (b"Action=SendEmail&Action=Other", "next")):
        assert found(rule, seen(data, media_type=FORM)) == name
    assert found(rule, seen(query=b"Action=SendEmail", media_type=""), method="GET") == "one"


UNREADABLE = [
    b'{"kind": "read", "kind": "write"}',
    b'{"kind": "read"',
    b'{"kind": "read", "x": "\\ud800"}\xff',
    b'["kind", "read"]',  # no name says what is meant
]


@pytest.mark.parametrize("data", UNREADABLE)
@pytest.mark.parametrize("expression", ["kind == 'read'", "kind != 'read'", "!kind"])
def test_what_cannot_be_read_meets_no_rule_that_may_loosen(expression: str, data: bytes) -> None:
    """Two readers could see two things in it, and one of them may act."""
    for rule in (when(expression), when(expression, safe=True), when(expression, mode=Mode.CACHE)):
        assert found(rule, seen(data)) == "next"
        assert found(rule, seen(data, media_type="text/plain")) == "next"


@pytest.mark.parametrize("data", [*UNREADABLE, b"{}", b'{"kind": ["read"]}', b'{"kind": "read"}'])
def test_what_cannot_be_read_is_no_way_around_a_guard(data: bytes) -> None:
    """A rule that denies, or asks a person, lets go only what it surely is not for."""
    for rule in (when("kind == 'read'", mode=Mode.DENY), when("kind == 'read'", approval=Approval())):
        assert found(rule, seen(data)) == "one"
        assert found(rule, seen(b'{"kind": "write"}')) == "next"


@pytest.mark.parametrize(
    ("headers", "fits"),
    [
        (((b"X-Amz-Target", b"AmazonSQS.SendMessage"),), True),
        (((b"x-amz-target", b"AmazonSQS.SendMessageBatch"),), True),
        (((b"X-Amz-Target", b"amazonsqs.sendmessage"),), False),
        (((b"X-Amz-Target", b"AmazonSQS.ReceiveMessage"),), False),
        (((b"X-Other", b"AmazonSQS.SendMessage"),), False),
        ((), False),
        (((b"X-Amz-Target", b"AmazonSQS.SendMessage"), (b"X-Amz-Target", b"AmazonSQS.SendX"),), True),
        (((b"X-Amz-Target", b"AmazonSQS.SendMessage"), (b"X-Amz-Target", b"Other"),), None),
        (((b"X-Amz-Target", b"Other, AmazonSQS.SendMessage"),), None),
        (((b"X-Amz-Target", b"Other,\tAnother"),), False),
    ],
)  # fmt: skip
def test_headers(headers: Headers, fits: bool | None) -> None:
    """By value, with a wildcard. One that says two things fits only what guards."""
    asked = seen(b"", *headers)
    assert found(wanting("AmazonSQS.Send*"), asked) == ("one" if fits else "next")
    assert found(wanting("AmazonSQS.Send*", mode=Mode.DENY), asked) == ("next" if fits is False else "one")


@pytest.mark.parametrize("value", [b"a, X-ray", b"a,X-ray\t", b"X-ray ,a", b" X-ray,a"])
def test_one_of_several_values_is_found_whatever_is_around_it(value: bytes) -> None:
    """Spaces and tabs are; letters are its own."""
    guard = wanting("X-ray", mode=Mode.DENY)
    assert found(guard, seen(b"", (TARGET.encode(), value))) == "one"
    assert found(guard, seen(b"", (TARGET.encode(), value.replace(b"X-ray", b"-ray")))) == "next"
    assert found(wanting("-ray", mode=Mode.DENY), seen(b"", (TARGET.encode(), value))) == "next"


def test_values_are_taken_by_the_letter_but_for_the_wildcard() -> None:
    """A dot is a dot, and one of several values is enough."""
    rule = wanting("a.b", "c*d")
    for value, name in (
        (b"a.b", "one"),
        (b"axb", "next"),
        (b"cd", "one"),
        (b"c.x.d", "one"),
        (b"cde", "next"),
    ):
        assert found(rule, seen(b"", (TARGET.encode(), value))) == name


def test_all_that_a_rule_looks_at_must_fit() -> None:
    """Headers and arguments both, and method and path as ever; the body is not read for nothing."""
    rule = Rule(
        name="one",
        methods=frozenset({"POST"}),
        looks=Looks(headers=((TARGET, ("Send",)),), when="kind == 'read'"),
    )
    right, wrong = (b'{"kind": "read"}', b'{"kind": "write"}')
    header = (TARGET.encode(), b"Send")
    assert found(rule, seen(right, header)) == "one"
    assert found(rule, seen(wrong, header)) == "next"
    assert found(rule, seen(right)) == "next"
    assert found(rule, seen(right, header), method="PUT") == "next"

    def read() -> Body:
        raise AssertionError("nobody asked for it")

    assert found(rule, Seen((), b"", read)) == "next"


def test_json_that_is_said_to_be_a_form_is_not_read() -> None:
    """curl's -d says so, and many an API reads it all the same: nothing may follow from what is not there."""
    for data in (b'{"mcp_servers": [1]}', b' [{"mcp_servers": 1}]'):
        assert found(when("!mcp_servers", safe=True), seen(data, media_type=FORM)) == "next"
        assert (
            found(when("not_null(env, 'dev') == 'prod'", mode=Mode.DENY), seen(data, media_type=FORM))
            == "one"
        )


@pytest.mark.parametrize("charset", [b"utf-7", b"utf-16", b'"UTF-7"', b"iso-8859-1"])
def test_another_charset_may_mean_something_else(charset: bytes) -> None:
    """The same bytes, another reader."""

    def judged(content_type: bytes, data: bytes) -> str:
        body = Body(media_type=JSON, content_type=content_type, data=data)
        return found(when("env == 'prod'", mode=Mode.DENY), Seen((), b"", lambda: body))

    assert judged(b"application/json; charset=" + charset, b'{"env": "+AHAAcgBvAGQ-"}') == "one"
    assert judged(b"application/json; charset=UTF-8", b'{"env": "dev"}') == "next"
    assert judged(b"application/json", b'{"env": "dev"}') == "next"


@pytest.mark.parametrize(
    "expression", ["body | env == 'prod'", "[env == 'prod'] | [0]", "to_string(env == 'prod') == 'true'"]
)
def test_a_comparison_behind_something_is_no_sure_false(expression: str) -> None:
    """A form's values are lists, and a field that is not there is no other one."""
    rule = when(expression, mode=Mode.DENY)
    assert found(rule, seen(b"env=prod", media_type=FORM)) == "one"
    assert found(rule, seen(b"{}")) == "one"


def test_a_guard_that_cannot_say_takes_nothing_else_along() -> None:
    """A person is asked, whatever the rule would have them asked by; and nothing of the rule that loosens
    holds for a call that it may not be for."""
    rule = when(
        "mode == 'test'",
        key=KeyRecipe(exclude=("amount",)),
        upstream_key=UpstreamKey(header="x-key"),
        in_doubt=OnDoubt.RESEND,
        outcome=OutcomeRule(not_executed=frozenset({500})),
        approval=Approval(when="amount > `100`"),
    )
    upstream = Upstream(name="mail", scheme="https", host="mail.example", port=443, rules=(rule,))
    unsure = find_rule(upstream, "POST", "/a", seen(b'{"amount": 5}'))
    sure = find_rule(upstream, "POST", "/a", seen(b'{"amount": 5, "mode": "test"}'))
    assert sure is not None
    assert sure.rule == rule
    assert unsure is not None
    assert (unsure.rule.name, unsure.rule.approval) == ("one", Approval())
    assert (unsure.rule.in_doubt, unsure.rule.upstream_key) == (OnDoubt.HOLD, None)
    assert (unsure.rule.key.exclude, unsure.rule.outcome) == ((), OutcomeRule())


def test_a_guard_in_shadow_is_passed_over_where_it_cannot_say() -> None:
    """It would let what the next rule records go out twice."""
    rule = when("env == 'prod'", mode=Mode.DENY, shadow=True)
    assert found(rule, seen(b'{"x": 5}')) == "next"
    assert found(rule, seen(b'{"env": "prod"}')) == "one"


def test_no_header_makes_matching_take_long() -> None:
    """Many wildcards and a long value that nearly fits: work grows with the length, not with its powers."""
    rule = wanting("*a*a*a*a*b*")
    began = process_time()
    found(rule, seen(b"", (TARGET.encode(), b"a" * 1_000)))
    short = process_time() - began
    began = process_time()
    assert found(rule, seen(b"", (TARGET.encode(), b"a" * 60_000))) == "next"
    assert process_time() - began < 1000 * max(short, 0.0005)


def test_accounts_name_calls_without_a_rule_too() -> None:
    for method in ("GET", "POST"):
        assert default_rule(method, has_grant_type=False, accounts=("x-account",)).rule.key.counted == (
            "x-account",
        )
