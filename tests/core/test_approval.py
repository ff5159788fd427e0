"""Permissions, pure: when a person is asked, what a permission is for, and what the rows of it hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.core import approval as core
from proxy.core.canonical import Body
from proxy.core.clauses import Approval
from proxy.core.document import document_of
from proxy.core.identity import Asked
from proxy.core.intent import Answer, Call, Event, Place, State, evolve
from proxy.core.policy import Implied, KeyRecipe, Rule
from proxy.core.terms import Held, Reserved, Terms
from tests.stores import calls

NOW = calls.NOW
SECRET = b"s" * 32
RULE = Rule(name="pay", key=KeyRecipe(headers=("x-account",)))
HELD = Reserved("", "pay", (Held("calls", 1, 1),), False)
ASKED = Asked(
    tenant="default",
    upstream="bank",
    method="POST",
    raw_path=b"/pay/7",
    query=b"fast=1",
    headers=((b"X-Account", b"a"), (b"Accept", b"text/plain"), (b"X-Other", b"1")),
    path_names={"id": "7"},
    body=Body(media_type="application/json", data=b'{"amount": 5, "nonce": 1}'),
)


# It lies in records: the same request is bound to the same bytes in every later version.
KNOWN = "48e9c62d10d35a729bd3a5a5269addc9c98d4757c041a4b3d469921ef0bf07f0"


def bound(asked: Asked = ASKED, *, secret: bytes = SECRET, **more: Any) -> bytes:
    return core.binding(asked, RULE, secret, **({"excluded": ()} | more))


@pytest.mark.parametrize(
    ("when", "data", "asks"),
    [
        (None, b'{"amount": 5}', True),
        ("amount > `10`", b'{"amount": 5}', False),
        ("amount > `10`", b'{"amount": 50}', True),
        ("amount > `10`", b'{"amount": "5"}', True),
        ("amount > `10`", b"{}", True),
        ("amount > `10`", b"not json", True),
    ],
)
def test_only_an_honest_no_goes_without_a_person(when: str | None, data: bytes, asks: bool) -> None:
    """What is missing, of another kind or unreadable is no way around."""
    document = document_of(path={}, query=b"", body=Body(media_type="application/json", data=data))
    assert core.needs_person(Approval(when=when), document) is asks


@pytest.mark.parametrize(
    "other",
    [
        {"upstream": "bank2"},
        {"host": "eu.bank"},
        {"method": "PUT"},
        {"raw_path": b"/pay/8"},
        {"path_names": {"id": "8"}},
        {"query": b"fast=0"},
        {"body": ASKED.body._replace(data=b'{"amount": 6, "nonce": 1}')},
        {"headers": ((b"X-Account", b"b"), (b"Accept", b"text/plain"))},
        {"headers": ((b"X-Account", b"a"), (b"Accept", b"text/html"))},
    ],
    ids=str,
)
def test_a_permission_is_for_this_request_alone(other: dict[str, Any]) -> None:
    """Each part that the upstream would act on differently makes it another one."""
    assert bound(ASKED._replace(**other)) != bound()


def test_what_changes_nothing_is_not_permitted_anew() -> None:
    """Spelling, order, headers that do not count, and what the rule leaves out; 32 bytes, keyed."""
    spelled = ASKED._replace(
        headers=((b"x-other", b"2"), (b"accept", b"text/plain"), (b"x-account", b"a")),
        body=ASKED.body._replace(data=b'{"nonce":1,"amount":5.0}'),
    )
    assert bound(spelled) == bound()
    fresh = ASKED._replace(body=ASKED.body._replace(data=b'{"amount": 5, "nonce": 2}'))
    assert bound(fresh) != bound()
    assert bound(fresh, excluded=("body.nonce",)) == bound(excluded=("body.nonce",))
    assert bound().hex() == KNOWN, "permissions in the record must still be found"
    assert bound(secret=b"t" * 32) != bound()


def test_headers_that_count_by_now_count_and_repeated_ones_keep_their_order() -> None:
    """`further` is what the rule of now adds; two values of one name are two different lists."""
    one, two = (b"X-Other", b"1"), (b"X-Other", b"2")
    with_other = [ASKED._replace(headers=headers) for headers in ((one, two), (two, one))]
    assert bound(with_other[0]) == bound(with_other[1])
    assert bound(with_other[0], further=("x-other",)) != bound(with_other[1], further=("x-other",))
    apart = ASKED._replace(headers=(one, (b"X-Account", b"a"), two))
    together = ASKED._replace(headers=((b"X-Account", b"a"), one, two))
    assert bound(apart, further=("x-other",)) == bound(together, further=("x-other",))
    implied = replace(RULE, key=KeyRecipe(implied=Implied(headers=("x-other",))))
    assert core.binding(with_other[0], implied, SECRET, excluded=()) != bound(with_other[0])


def test_each_occurrence_is_permitted_by_itself() -> None:
    """The n-th of several identical ones."""
    found = {core.for_occurrence(bound(), n) for n in (1, 2, 10, 12)}
    assert len(found) == 4
    assert {len(each) for each in found} == {32}
    # Permissions are in the record: what they are bound to is told the same way by every later version.
    assert (
        core.for_occurrence(b"x", 1).hex()
        == "f7aa48578024e92e79c5837754f21b5aee0a233b0e10dfa15c1dcff81eccab71"
    )


def granted(**changes: Any) -> Call:
    row, _ = calls.ask()
    permitted, _ = core.approve(row, actor="operator:a", now=NOW, why="fine")
    return evolve(permitted, **changes)


def test_a_permission_counts_while_it_stands_and_for_what_it_was_given() -> None:
    """Not for another request, not when it has lapsed, not when it is used up, not without a row."""
    assert core.is_granted(granted(), b"this", NOW)
    assert not core.is_granted(None, b"this", NOW)
    assert not core.is_granted(granted(), b"that", NOW)
    assert not core.is_granted(granted(), b"this", NOW + core.GRANTED_FOR)
    assert core.is_granted(granted(), b"this", NOW + core.GRANTED_FOR - 1)
    assert not core.is_granted(granted(terms=Terms(bound_to=b"this")), b"this", NOW)
    assert not core.is_granted(granted(terms=None), b"this", NOW)
    answer = Answer(status=200, size=0, recorded_at=NOW, place=Place.INLINE)
    assert not core.is_granted(granted(state=State.DONE, answer=answer), b"this", NOW)


def test_who_waits_owns_nothing_and_has_sent_nothing() -> None:
    """The first ask: no fence, no owner, no send; until when is said."""
    fresh, _ = calls.claim("p1", bytes(16))
    row, entry, version = core.ask_person(
        fresh, None, approval=Approval(expires=60.0), bound_to=b"this", actor="a", now=NOW
    )
    assert (row.state, row.owner, row.fence, row.sends, row.sent_at) == (
        State.AWAITING_APPROVAL,
        "",
        0,
        0,
        None,
    )
    assert row.terms == Terms(bound_to=b"this", until=NOW + 60)
    assert (entry.at, entry.actor, entry.event, entry.before, entry.after, entry.fence, version) == (
        NOW, "a", Event.NEEDS_APPROVAL, None, State.AWAITING_APPROVAL, 0, 0,
    )  # fmt: skip
    assert entry.why == "a person has to permit it"


def over(**changes: Any) -> Call:
    call, _ = calls.claim("p1", bytes(16), at=NOW - 50)
    return evolve(call, **({"state": State.RELEASED, "version": 4, "fence": 3, "sends": 2} | changes))


def test_over_a_row_that_was_sent_the_question_goes_on_with_it() -> None:
    """A late answer of an earlier send must still find its fence and its owner, and money held stays held."""
    fresh, _ = calls.claim("p2", bytes(16))
    terms = Terms(bound_to=b"that", granted=True, reserved=HELD)
    row, entry, version = core.ask_person(
        fresh, over(terms=terms), approval=Approval(), bound_to=b"this", actor="a", now=NOW
    )
    assert (row.version, row.fence, row.owner, row.born, version) == (5, 3, "p1", NOW - 50, 4)
    assert (row.created_at, row.sends, row.sent_at) == (NOW - 50, 2, NOW - 50)
    assert row.terms == Terms(bound_to=b"this", until=NOW + 86400, reserved=HELD)
    assert (entry.before, entry.fence) == (State.RELEASED, 3)
    assert "another request" in entry.why
    *_, plain = core.ask_person(
        fresh, over(terms=Terms(reserved=HELD)), approval=Approval(), bound_to=b"this", actor="a", now=NOW
    )[1:2]
    assert "another request" not in plain.why


def test_over_a_row_past_its_time_the_question_is_a_new_one() -> None:
    """Only fence, version, owner and birth go on."""
    fresh, _ = calls.claim("p2", bytes(16))
    row, entry, version = core.ask_person(
        fresh, over(expires_at=NOW), approval=Approval(), bound_to=b"this", actor="a", now=NOW
    )
    assert (row.version, row.fence, row.owner, row.born, version) == (5, 3, "p1", NOW - 50, 4)
    assert (row.created_at, row.sends, row.sent_at, entry.before) == (NOW, 0, None, None)


def test_over_a_done_row_the_question_is_a_new_one_too() -> None:
    """A safe answer that is too old, say: nothing leads from it to a question."""
    fresh, _ = calls.claim("p2", bytes(16))
    answer = Answer(status=200, size=0, recorded_at=NOW, place=Place.INLINE)
    row, entry, _ = core.ask_person(
        fresh,
        over(state=State.DONE, answer=answer),
        approval=Approval(),
        bound_to=b"this",
        actor="a",
        now=NOW,
    )
    assert (row.created_at, row.sends, entry.before) == (NOW, 0, None)


def test_a_question_and_a_refusal_lapse_at_their_time_and_nothing_else_does() -> None:
    """To the moment."""
    waiting, _ = calls.ask()
    refused, _ = core.deny(waiting, ttl=60.0, actor="a", now=NOW, why="no")
    assert [core.has_lapsed(waiting, NOW + at) for at in (0, 3599.5, 3600, 3601)] == [
        False,
        False,
        True,
        True,
    ]
    assert [core.has_lapsed(refused, NOW + at) for at in (0, 59.5, 60)] == [False, False, True]
    assert not core.has_lapsed(evolve(waiting, terms=Terms(bound_to=b"this")), NOW + 1e9)
    assert not core.has_lapsed(over(terms=Terms(until=NOW)), NOW + 1)


def test_what_is_decided_says_so_and_for_how_long() -> None:
    """Outside runs each has its time; in a run it stays with it."""
    waiting, _ = calls.ask()
    held = evolve(waiting, terms=Terms(bound_to=b"this", until=NOW + 5, reserved=HELD))
    yes, entry = core.approve(held, actor="operator:a", now=NOW + 1, why="fine")
    assert (yes.state, yes.expires_at, yes.settled_at) == (State.RELEASED, NOW + 1 + 30 * 86400, NOW + 1)
    assert yes.terms == Terms(bound_to=b"this", granted=True, reserved=HELD)
    assert (entry.at, entry.actor, entry.event, entry.why) == (NOW + 1, "operator:a", Event.APPROVE, "fine")
    no, entry = core.deny(held, ttl=60.0, actor="operator:a", now=NOW + 1, why="no")
    assert (no.state, no.expires_at, no.settled_at) == (State.DENIED, NOW + 61, NOW + 1)
    assert no.terms == Terms(bound_to=b"this", until=NOW + 61, said="no", reserved=HELD)
    gone, entry = core.lapse(held, actor="proxy:p", now=NOW + 9)
    assert (gone.state, gone.expires_at) == (State.RELEASED, NOW + 9 + 86400)
    assert (gone.terms, entry.event) == (Terms(reserved=HELD), Event.EXPIRE)
    assert core.lapse(waiting, actor="proxy:p", now=NOW + 9)[0].terms is None
    assert "decided" in entry.why
    assert "refusal" in core.lapse(no, actor="proxy:p", now=NOW + 99)[1].why
