"""The life of a call: the table is the picture, and no walk over it breaks a record's laws."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.decide import Claim, Settlement, can_settle, claim, decide, forget, orphaned, settle
from proxy.core.identity import Identity
from proxy.core.intent import (
    OPEN_STATES,
    SETTLED_STATES,
    TRANSITIONS,
    Answer,
    Call,
    Doubt,
    Entry,
    Event,
    IllegalTransition,
    Place,
    State,
    advance,
    begun,
    evolve,
    next_state,
)
from proxy.core.run_record import InRun
from proxy.core.terms import Terms
from tests.counts import count

NAMES = [field.name for field in fields(Call)]

# The picture of the design, line by line: from, event, to.
PICTURE: list[tuple[State | None, Event, State]] = [
    (None, Event.CLAIM, State.PENDING),
    (State.PENDING, Event.ANSWERED, State.DONE),
    (State.PENDING, Event.NOT_SENT, State.RELEASED),
    (State.PENDING, Event.NOT_EXECUTED, State.RELEASED),
    (State.PENDING, Event.INCONCLUSIVE, State.RELEASED),  # a safe call without a final answer
    (State.PENDING, Event.LOST, State.IN_DOUBT),
    (State.RELEASED, Event.CLAIM, State.PENDING),
    (State.RELEASED, Event.ANSWERED, State.DONE),  # a late answer
    (State.IN_DOUBT, Event.RESEND, State.PENDING),
    (State.IN_DOUBT, Event.ANSWERED, State.DONE),
    (State.IN_DOUBT, Event.NOT_EXECUTED, State.RELEASED),
    (None, Event.NEEDS_APPROVAL, State.AWAITING_APPROVAL),
    (State.RELEASED, Event.NEEDS_APPROVAL, State.AWAITING_APPROVAL),
    (State.AWAITING_APPROVAL, Event.ANSWERED, State.DONE),
    (State.AWAITING_APPROVAL, Event.APPROVE, State.RELEASED),
    (State.AWAITING_APPROVAL, Event.EXPIRE, State.RELEASED),
    (State.AWAITING_APPROVAL, Event.DENY, State.DENIED),
    (State.DENIED, Event.ANSWERED, State.DONE),
    (State.DENIED, Event.EXPIRE, State.RELEASED),
]

KEY = bytes(16)
IDENTITY = Identity(key=KEY, fingerprint=b"f", named_by=b"", arguments=b"")
NOW = 1_700_000_000.0


def fresh(*, safe: bool = False, owner: str = "p1", at: float = NOW) -> Call:
    return Call(
        key=KEY, fingerprint=b"f", tenant="default", upstream="mail", rule="send", tool="send", safe=safe,
        state=State.PENDING, version=1, fence=1, owner=owner, created_at=at, sent_at=at, sends=1,
    )  # fmt: skip


def answer(at: float = NOW) -> Answer:
    return Answer(status=200, size=0, recorded_at=at, place=Place.INLINE)


def test_the_table_is_the_picture() -> None:
    """Not one arrow more or less."""
    assert {(before, event): after for before, event, after in PICTURE} == dict(TRANSITIONS)
    assert len(PICTURE) == len(TRANSITIONS)


ABSENT = [
    pair for pair in itertools.product((None, *State), Event) if pair not in {(b, e) for b, e, _ in PICTURE}
]


@pytest.mark.parametrize(("before", "event"), ABSENT, ids=lambda value: str(value))
def test_what_is_not_in_the_picture_raises(before: State | None, event: Event) -> None:
    """A change that nobody drew is a bug of ours."""
    with pytest.raises(IllegalTransition):
        next_state(before, event)


def test_the_table_cannot_be_changed() -> None:
    """It is a constant."""
    with pytest.raises(TypeError):
        TRANSITIONS[State.DONE, Event.CLAIM] = State.PENDING  # type: ignore[index]


def test_every_state_is_open_settled_or_waiting_for_a_person() -> None:
    """And nothing is both."""
    assert not OPEN_STATES & SETTLED_STATES
    assert set(State) - OPEN_STATES - SETTLED_STATES == {State.AWAITING_APPROVAL}


@pytest.mark.parametrize(
    "changes",
    [
        {"key": b"short"},
        {"version": 0},
        {"state": State.DONE},
        {"state": State.IN_DOUBT},
        {"expires_at": NOW},
        {"state": State.IN_DOUBT, "doubt": Doubt(since=NOW, reason="r"), "expires_at": NOW},
        {"owner": ""},
        {"state": State.AWAITING_APPROVAL},
        {"state": State.AWAITING_APPROVAL, "terms": Terms()},
        {"run": "r"},
        {"in_run": InRun(family=b"f", group=())},
    ],
    ids=str,
)
def test_a_record_refuses_nonsense(changes: dict[str, object]) -> None:
    """Done without an answer, doubt without a reason, an open call that expires, a pending one of nobody."""
    good = fresh()
    fields = {name: getattr(good, name) for name in NAMES} | changes
    for make in (Call, begun, partial(evolve, good)):
        with pytest.raises(ValueError):
            make(**fields)
    with pytest.raises(FrozenInstanceError):
        good.version = 2  # type: ignore[misc]


def test_a_record_is_made_of_its_fields_and_of_nothing_else() -> None:
    """By whichever way; what is left out has its default, where there is one."""
    good = fresh()
    fields = {name: getattr(good, name) for name in NAMES}
    for made in (begun(**fields), evolve(good), evolve(evolve(good, version=7), version=good.version)):
        assert (made, hash(made), repr(made)) == (Call(**fields), hash(good), repr(good))
    few = {name: fields[name] for name in NAMES if name not in ("seq", "answer", "terms")}
    assert begun(**few) == Call(**few)
    makes: list[Callable[..., Call]] = [Call, begun]
    for make in makes:
        with pytest.raises(TypeError):
            make(**{name: value for name, value in fields.items() if name != "owner"})
        with pytest.raises(TypeError):
            make(**fields, colour="blue")
    with pytest.raises(TypeError, match="colour"):
        evolve(good, colour="blue")


@pytest.mark.parametrize(
    "fields",
    [
        {"place": Place.BLOB},
        {"place": Place.INLINE, "blob": "ab"},
        {"place": Place.BLOB, "blob": "ab", "body": b"x"},
        {"place": Place.CACHE, "body": b"x"},
        {"place": Place.NOWHERE},
        {"place": Place.INLINE, "why_nowhere": "lost"},
    ],
    ids=str,
)
def test_an_answer_refuses_nonsense(fields: dict[str, object]) -> None:
    """A blob has a digest, only inline has a body, nowhere says why."""
    with pytest.raises(ValueError):
        Answer(status=200, size=1, recorded_at=NOW, **fields)  # type: ignore[arg-type]


def test_advance_writes_the_history_line_that_goes_with_the_change() -> None:
    """From, to, who, when, why, and the fence."""
    call, entry = advance(fresh(), Event.NOT_SENT, at=NOW + 1, actor="proxy:p1", why="refused")
    assert (call.state, call.version, call.fence) == (State.RELEASED, 2, 1)
    assert entry == Entry(
        at=NOW + 1, actor="proxy:p1", event="not_sent", before=State.PENDING, after=State.RELEASED,
        why="refused", fence=1,
    )  # fmt: skip


def test_an_open_call_is_never_claimed_over() -> None:
    """Neither pending nor in doubt, whatever its age."""
    pending = fresh()
    doubtful, _ = settle(pending, Settlement(event=Event.LOST, why="reset"), actor="a", now=NOW)
    for over in (pending, doubtful):
        with pytest.raises(ValueError, match="open"):
            claim(fresh(), over, actor="a", now=NOW + 1e9)
        with pytest.raises(ValueError, match="settled"):
            forget(over, actor="a", now=NOW, why="w")


@pytest.mark.parametrize("event", [Event.NOT_SENT, Event.NOT_EXECUTED])
def test_with_an_unresolved_send_nothing_happened_leads_back_to_doubt(event: Event) -> None:
    """It speaks only for the later send: the earlier one may have executed."""
    doubtful, _ = settle(fresh(), Settlement(event=Event.LOST, why="reset"), actor="a", now=NOW)
    again, _ = advance(doubtful, Event.RESEND, at=NOW, actor="a", why="same key", fence=2)
    assert again.unresolved
    after, entry = settle(again, Settlement(event=event, why="refused", ttl=10.0), actor="a", now=NOW)
    assert (after.state, after.unresolved, after.expires_at) == (State.IN_DOUBT, True, None)
    assert "an earlier send is still unresolved" in entry.why
    person, _ = settle(after, Settlement(event=Event.NOT_EXECUTED, why="looked"), actor="o", now=NOW)
    assert (person.state, person.unresolved) == (State.RELEASED, False)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("event", list(Event))
@pytest.mark.parametrize("mine", [True, False], ids=["my fence", "another fence"])
def test_who_may_settle_what(state: State, event: Event, mine: bool) -> None:
    """The owner by its fence; what is in doubt, released or waiting only an answer still moves."""
    present = fresh()
    fields = {name: getattr(present, name) for name in NAMES} | {
        "state": state,
        "fence": 5,
        "answer": answer(),
        "doubt": Doubt(since=NOW, reason="r"),
        "terms": Terms(bound_to=b"this"),
    }
    allowed = state is State.PENDING or (state not in (State.PENDING, State.DONE) and event is Event.ANSWERED)
    assert can_settle(Call(**fields), 5 if mine else 4, event) is (mine and allowed)


def test_an_orphan_with_effects_is_in_doubt_and_a_safe_one_released() -> None:
    """A dead owner's call."""
    for safe, state in ((False, State.IN_DOUBT), (True, State.RELEASED)):
        call = fresh(safe=safe)
        assert settle(call, orphaned(call), actor="recovery", now=NOW)[0].state is state


# ---- random walks ----

STEPS = st.tuples(
    st.sampled_from(["claim", "answered", "not_sent", "not_executed", "inconclusive", "lost", "resend",
                     "forget", "orphaned", "wait"]),
    st.sampled_from([0.0, 1.0, 50.0, 200.0]),
    st.sampled_from(["p1", "p2"]),
)  # fmt: skip


@settings(max_examples=count(500, 20_000), deadline=None)
@given(st.lists(STEPS, max_size=25), st.booleans())
def test_no_walk_breaks_the_laws_of_a_record(steps: list[tuple[str, float, str]], safe: bool) -> None:
    """Versions grow by one, fences exactly with claims, open calls never expire, doubt is never lost."""
    row: Call | None = None
    now = NOW
    for what, later, owner in steps:
        now += later
        before = row
        try:
            row, entry = _step(row, what, owner, now, safe=safe)
        except (IllegalTransition, ValueError):
            assert row is before
            continue
        if row is before:
            continue
        _check(before, row, entry, now)


def _step(
    row: Call | None, what: str, owner: str, now: float, *, safe: bool
) -> tuple[Call | None, Entry | None]:
    if what == "wait":
        return row, None
    if what == "claim":
        decision = decide(row, IDENTITY, now=now)
        if not isinstance(decision, Claim):
            return row, None
        made, entry, expected = claim(
            fresh(safe=safe, owner=owner, at=now), decision.over, actor=owner, now=now
        )
        assert expected == (row.version if row else 0)
        return made, entry
    if row is None:
        raise IllegalTransition
    if what == "forget":
        return forget(row, actor="operator", now=now, why="w")
    if what == "resend":
        return advance(
            row, Event.RESEND, at=now, actor=owner, why="same key", owner=owner, fence=row.fence + 1
        )
    if what == "orphaned":
        if row.state is not State.PENDING:
            raise IllegalTransition
        return settle(row, orphaned(row), actor=owner, now=now)
    event = Event(what)
    if event is Event.INCONCLUSIVE and not row.safe:
        return row, None  # only safe calls are ever inconclusive
    kept = answer(now) if event is Event.ANSWERED else None
    return settle(row, Settlement(event=event, why=what, answer=kept, ttl=100.0), actor=owner, now=now)


def _check(before: Call | None, row: Call | None, entry: Entry | None, now: float) -> None:
    assert row is not None
    assert entry is not None
    assert row.version == (before.version if before else 0) + 1
    claimed = entry.event in (Event.CLAIM, Event.RESEND)
    assert row.fence == (before.fence if before else 0) + claimed
    assert entry.fence == row.fence
    assert entry.at == now
    if entry.event == "forgotten":
        assert before is not None
        assert row.state is before.state
        assert isinstance(decide(row, IDENTITY, now=now), Claim)
        return
    assert entry.after is row.state
    assert next_state(entry.before, Event(entry.event)) is row.state
    if row.state in OPEN_STATES:
        assert row.expires_at is None
    if row.state is State.DONE:
        assert row.answer is not None
        assert not row.unresolved
    if row.state is State.IN_DOUBT:
        assert row.doubt is not None
        assert row.unresolved
        assert row.settled_at is None or (before is not None and before.settled_at == row.settled_at)
    if row.state is State.RELEASED and before is not None and before.state is State.PENDING:
        assert not before.unresolved  # a doubt ends by an answer or a person, never by a later send
    if row.state is State.RELEASED:
        assert row.answer is None
        assert not row.unresolved
