"""The last value that counts and the first that does not; what is nothing, and what is of another kind."""

from __future__ import annotations

import json
from decimal import Decimal
from ipaddress import ip_address
from typing import Any

import pytest

from proxy.core import budget, canonical
from proxy.core.budget import FOR_GOOD, Account, Charge, Meter, Posting, Spent, UsedUp, adjustment, used_up
from proxy.core.canonical import MAX_DEPTH, PLAIN_DIGITS, Body, canonical_arguments, is_json, read_body
from proxy.core.clauses import Cost
from proxy.core.cost import DEAREST, READABLE, cost_of, read_answer
from proxy.core.headers import Headers
from proxy.core.intent import evolve
from proxy.core.policy import Normalize, Rule
from proxy.core.reachable import Kind, Said, advice, kind_of, may_be
from proxy.core.terms import Held, Reserved, Terms
from tests.stores import calls

JSON: Headers = ((b"Content-Type", b"application/json"),)
STREAM: Headers = ((b"Content-Type", b"text/event-stream"),)
ACCOUNT = Account("default", "", "mail", "send")


# ---- budgets ----


def charge(*postings: Posting) -> Charge:
    return Charge(ACCOUNT, postings)


def limit(meter: Meter, most: int, *, bucket: int = 60_000, expires: int = 120_000) -> Posting:
    return Posting(meter, bucket, 1, since=0, most=most, expires=expires)


def test_of_two_limits_the_one_that_stands_longest_in_the_way_is_told() -> None:
    """For ever is longest; what is not reached stands in nobody's way."""
    soon, late = limit(Meter.CALLS, 1), limit(Meter.USD, 1, expires=600_000)
    spent = [Spent(Meter.CALLS, 60_000, 1, 0), Spent(Meter.USD, 60_000, 1, 0)]
    for both in (charge(soon, late), charge(late, soon)):
        told = used_up(both, spent)
        assert told == UsedUp(Meter.USD, 1, 1, 1, 540.0, 600.0)
    for_good = limit(Meter.USD, 1, bucket=FOR_GOOD, expires=FOR_GOOD)
    never = used_up(charge(soon, for_good), [spent[0], Spent(Meter.USD, FOR_GOOD, 1, 0)])
    assert never == UsedUp(Meter.USD, 1, 1, 1, None, None)
    assert used_up(charge(soon, limit(Meter.USD, 5)), spent) == UsedUp(Meter.CALLS, 1, 1, 1, 60.0, 120.0)
    assert used_up(charge(limit(Meter.CALLS, 2), limit(Meter.USD, 2)), spent) is None


def test_what_lies_in_a_bucket_for_good_does_not_come_back_within_a_period() -> None:
    """A budget that had no period, and has one by now."""
    told = used_up(charge(limit(Meter.USD, 1)), [Spent(Meter.USD, FOR_GOOD, 1, 0)])
    assert told is not None
    assert told.until is None


def test_a_posting_without_a_limit_is_never_too_much() -> None:
    """What was reserved is set right whatever stands there."""
    plain = Posting(Meter.CALLS, 60_000, 5)
    assert not budget.is_exceeded(plain, [Spent(Meter.CALLS, 60_000, 10**9, 0)])
    assert (plain.peak, plain.since, plain.most, plain.expires) == (0, 0, None, FOR_GOOD)


def holding(amount: int, *, cost: float | None = None, later: bool = True, meter: Meter = Meter.USD) -> Any:
    call, _ = calls.claim("p1", bytes(16))
    reserved = Reserved("", "send", (Held(meter, 5, amount),), later)
    return evolve(call, terms=Terms(reserved=reserved), cost_usd=cost)


@pytest.mark.parametrize(
    ("before", "after", "peak"),
    [
        (holding(7), holding(9, cost=9e-6), 9),
        (holding(7), holding(7, cost=7e-6), 7),
        (holding(7), holding(9), 0),
        (holding(7, cost=7e-6), holding(9, cost=9e-6), 0),
        (holding(7, later=False), holding(9, cost=9e-6, later=False), 0),
        (holding(7, meter=Meter.CALLS), holding(9, cost=9e-6, meter=Meter.CALLS), 0),
    ],
)
def test_the_dearest_call_is_remembered_where_its_answer_told_the_price(
    before: Any, after: Any, peak: int
) -> None:
    """Once, of money, and also where the price is what was held."""
    told = adjustment(before, after)
    assert told is not None
    (posting,) = told.postings
    assert posting.peak == peak
    assert posting.amount == after.terms.reserved.held[0].amount - before.terms.reserved.held[0].amount
    assert not Reserved("", "r", ()).priced_later


# ---- canonical ----


def raw(data: bytes) -> bytes:
    return canonical_arguments(path={}, query=b"", body=Body("application/json", b"", data))


def args(data: bytes = b"", media_type: str = "application/json", **more: Any) -> Any:
    given: dict[str, Any] = {"path": {}, "query": b""} | more
    return json.loads(canonical_arguments(body=Body(media_type=media_type, data=data), **given))


def test_numbers_are_plain_up_to_eighteen_digits() -> None:
    """Longer ones as digits and exponent; both signs; zero is zero however it is written."""
    plain, long = "9" * PLAIN_DIGITS, "9" * (PLAIN_DIGITS + 1)
    assert canonical_arguments(
        path={}, query=b"", body=Body("application/json", b"", b"[%b]" % plain.encode())
    ) == (b'["json",{"body":[%b]}]' % plain.encode())
    assert b"e0" in canonical_arguments(path={}, query=b"", body=Body("application/json", b"", long.encode()))
    same = [b"-1200", b"-1.2e3", b"-12E2", b"-0.012e5", b"-1200.00"]
    assert {
        canonical_arguments(path={}, query=b"", body=Body("application/json", b"", each)) for each in same
    } == {b'["json",{"body":-1200}]'}
    for zero in (b"0", b"-0", b"0.000", b"0e99", b"-0.0e-7"):
        assert args(zero) == ["json", {"body": 0}]
    assert args(b"1e" + b"9" * 5000)[0] == "digest"


def nested(depth: int, extra: int = 0) -> bytes:
    return b"[" * depth + b",".join([b"[]"] * extra) + b"]" * depth


def test_nesting_counts_up_to_two_hundred() -> None:
    """Whether or not there are many brackets beside."""
    assert args(nested(MAX_DEPTH))[0] == "json"
    assert args(nested(MAX_DEPTH - 1, extra=5))[0] == "json"
    assert args(nested(MAX_DEPTH, extra=1))[0] == "digest"
    assert args(nested(MAX_DEPTH + 1))[0] == "digest"
    assert args(b"[" + b",".join([b"{}"] * 5 * MAX_DEPTH) + b"]")[0] == "json"


def test_lists_are_emptied_and_what_is_none_stays() -> None:
    """`items[]` without a name behind it; a name that leads nowhere takes nothing."""
    data = b'{"items": [1, {"a": 2}], "n": 5, "o": {"a": 1}}'
    assert args(data, exclude=["items[]"])[1]["body"] == {"items": [], "n": 5, "o": {"a": 1}}
    for nowhere in ("n[]", "n[].a", "o[]", "o[].a", "x[]", "n.a", "items.a"):
        assert args(data, exclude=[nowhere])[1]["body"] == json.loads(data)
    assert args(data, include=["n[]"])[1] == args(data)[1], "nothing is found, so all counts"
    assert args(data, include=["items[].a"])[1] == {"include": {"items[].a": [[], [2]]}}


def test_a_name_alone_is_never_a_source() -> None:
    """`body`, `query` and `path` are fields too, where nothing follows; with a dot they are sources."""
    data = b'{"path": 1, "query": 2, "body": 3, "id": 4}'
    for name, value in (("path", 1), ("query", 2), ("body", 3)):
        assert args(data, include=[name])[1] == {"include": {name: [value]}}
    given: dict[str, Any] = {"path": {"id": "7"}, "query": b"id=8"}
    found: dict[str, Any] = {"path.id": "7", "query.id": ["8"], "body.id": 4}
    for name, each in found.items():
        assert args(data, include=[name], **given)[1] == {"include": {name: [each]}}
    assert args(include=["id"], **given)[1] == {"include": {"id": [["8"]]}}
    # Without anything that was found, all of it names the call.
    assert args(include=["x"], **given)[1] == {"path": {"id": "7"}, "query": {"id": ["8"]}}


def test_what_cannot_be_written_keeps_its_selection() -> None:
    """Half a character: the digest stands for the body, and the query is selected as it was."""
    data = b'{"a": "\\ud800"}'
    given: dict[str, Any] = {"query": b"id=8&t=9"}
    assert args(data, exclude=["query.t"], **given)[1]["query"] == {"id": ["8"]}
    kind, chosen = args(data, **given)
    assert (kind, chosen["query"]) == ("digest", {"id": ["8"], "t": ["9"]})
    day = b"at=2024-01-31"
    normalised = args(data, query=day, normalize=[Normalize.TIMESTAMPS])
    assert normalised[1]["query"] == {"at": ["<timestamp>"]}
    assert args(query=b"%ff")[1] == {"query": "%ff"}


@pytest.mark.parametrize(
    ("media_type", "is_one"),
    [
        ("application/json", True),
        ("application/problem+json", True),
        ("application/x-amz-json-1.0", True),
        ("application/x-amz-json-1.1", True),
        ("application/x-amz-json-1.2", False),
        ("+json-like/x", False),
        ("text/plain", False),
    ],
)
def test_json_by_its_names(media_type: str, is_one: bool) -> None:
    """What is called otherwise is not read as one."""
    assert is_json(media_type) is is_one
    read = read_body(Body(media_type=media_type, data=b"{}"))
    assert read is not None
    assert (read[0] == "json") is is_one


def test_a_body_that_looks_like_parts_is_read_as_such_only_where_it_is_said() -> None:
    """The boundary alone does not make it one."""
    kind = b"x/y; boundary=b"
    data = b"--b\r\nA:1\r\n\r\none\r\n--b--"
    for media_type, found in (("multipart/mixed", "multipart"), ("x/y", "digest")):
        read = read_body(Body(media_type, kind, data))
        assert read is not None
        assert read[0] == found


def test_plus_and_percent_are_one_space() -> None:
    """In names and in values; a percent sign that escapes nothing stays."""
    assert canonical.parse_pairs(b"a+b=c%20d&e=100%&f") == {"a b": ["c d"], "e": ["100%"], "f": [""]}
    assert canonical.parse_pairs(b"&&") == {}


# ---- prices ----


def cost(body: bytes, usd_from: str = "usd", status: int = 200, headers: Headers = JSON) -> float | None:
    return cost_of(Rule(name="r", cost=Cost(usd_from=usd_from)), status, headers, body)


@pytest.mark.parametrize(("status", "known"), [(199, False), (200, True), (299, True), (300, False)])
def test_only_a_success_has_a_price(status: int, known: bool) -> None:
    """Fixed or found."""
    assert (cost(b'{"usd": 1}', status=status) is not None) is known
    fixed = Rule(name="r", cost=Cost(usd=Decimal(2)))
    assert cost_of(fixed, status, JSON, b"") == (2.0 if known else None)
    assert cost_of(Rule(name="r"), status, JSON, b"") is None


@pytest.mark.parametrize(
    ("value", "usd"),
    [
        ("0", 0.0),
        (str(DEAREST), 1_000_000.0),
        (f'"{DEAREST}"', 1_000_000.0),
        (str(DEAREST + 1), None),
        ("-0.01", None),
        ("true", None),
        ("null", None),
        ("[1]", None),
        ('{"a": 1}', None),
        ('"1.5"', 1.5),
        ('"1.5 USD"', None),
        ('"NaN"', None),
        ('"1e3"', None),
    ],
)
def test_an_amount_is_a_number_or_a_plain_text_of_one(value: str, usd: float | None) -> None:
    """From nothing to a million; whatever else is there is no price."""
    assert cost(b'{"usd": %b}' % value.encode()) == usd


def test_an_answer_is_read_up_to_eight_mebibytes() -> None:
    """One more byte, and it is not."""
    head, tail = b'{"usd": 1, "x": "', b'"}'
    for size, usd in ((READABLE, 1.0), (READABLE + 1, None)):
        assert cost(head + b"x" * (size - len(head) - len(tail)) + tail) == usd


def test_events_are_read_however_they_are_written() -> None:
    """Line ends, a space or none, data over several lines; what is no object tells nothing."""
    stream = (
        b'data:{"usage": {"a": 1, "b": 2}}\r\n\r\n'
        b": a comment\n\n"
        b'event: x\rdata: {"response":\rdata: {"model": "m", "usage": {"a": 3, "b": null}}}\r\r'
        b"data: [1]\n\ndata: [DONE]\n\n"
        b'data:  {"message": {"service_tier": "s", "usage": 5}}\n\n'
    )
    answer = read_answer(STREAM, stream)
    assert len(answer["events"]) == 3
    assert (answer["usage"], answer["model"], answer["service_tier"]) == ({"a": 3, "b": 2}, "m", "s")
    assert read_answer(STREAM, b'data: {"x": 1}\n\n') == {"events": [{"x": 1}]}


# ---- addresses ----


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("2001:0:808:808:0:0:f7f7:f7f7", Kind.PUBLIC),  # Teredo: server and client are 8.8.8.8
        ("2001:0:a00:1:0:0:f7f7:f7f7", Kind.PRIVATE),  # its server is 10.0.0.1
        ("2001:0:808:808:0:0:f5ff:fffe", Kind.PRIVATE),  # its client is
        ("8.8.8.8", Kind.PUBLIC),
        ("::1", Kind.PRIVATE),
        ("4000::1", Kind.SPECIAL),
    ],
)
def test_what_an_address_leads_to(address: str, kind: Kind) -> None:
    """Where there are two inside, the less expected one counts."""
    assert kind_of(ip_address(address)) is kind


def test_what_is_no_address_is_never_reached() -> None:
    """Whatever a policy says; and a written one only as itself."""
    for said in Said:
        assert not may_be("a.example", "not an address", said, private=True)
    assert not may_be("10.0.0.2", "10.0.0.1", Said.NAMED)
    assert may_be("10.0.0.1", "10.0.0.1", Said.NAMED)
    assert not may_be("10.0.0.1", "10.0.0.1", Said.NOTHING)


def test_advice_is_for_the_host_as_it_is_written() -> None:
    """An address belongs into `hosts`, a name may be allowed to be private; no address is told."""
    assert "leads to" not in advice("10.0.0.1", Said.NOTHING)
    assert "'hosts'" in advice("10.0.0.1", Said.NOTHING)
    told = {said: advice("a.example", said) for said in Said}
    assert len(set(told.values())) == 3
    assert all("a.example leads to" in each for each in told.values())
    assert "private: true" in told[Said.NAMED]
