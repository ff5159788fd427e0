"""The rows that decide.py builds: what a settlement, a resend, a dead owner and a person leave in one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.core import decide as core
from proxy.core.budget import Meter
from proxy.core.clauses import OnStale
from proxy.core.identity import Identity
from proxy.core.intent import Answer, Call, Doubt, Entry, Event, Place, State, evolve
from proxy.core.outcome import Verdict
from proxy.core.policy import Rule
from proxy.core.run_record import InRun, Receipt
from proxy.core.terms import Held, Reserved, Terms
from tests.stores import calls

NOW = calls.NOW
ANSWER = Answer(status=200, size=1, recorded_at=NOW, place=Place.INLINE, body=b"x")
OTHER = replace(ANSWER, status=201)
RECEIPT = Receipt(attempt="a1", problem="in-doubt", position=3)
IN_RUN = InRun(family=b"f", group=("g",))


def pending(**changes: Any) -> Call:
    call, _ = calls.claim("p1", bytes(16), at=NOW - 10)
    return evolve(call, **changes)


def in_run(**changes: Any) -> Call:
    return pending(run="r", in_run=replace(IN_RUN, **changes))


def settled(call: Call, event: Event = Event.ANSWERED, **more: Any) -> Call:
    answer = {"answer": ANSWER} if event is Event.ANSWERED else {}
    settlement = core.Settlement(event, "why", **(answer | more))
    row, entry = core.settle(call, settlement, actor="proxy:p1", now=NOW)
    assert (entry.at, entry.actor, entry.before, entry.after) == (NOW, "proxy:p1", call.state, row.state)
    assert row.version == call.version + 1
    return row


def test_every_verdict_is_an_event() -> None:
    """The table itself: what each means is in TRANSITIONS."""
    assert {
        Verdict.FINAL: Event.ANSWERED,
        Verdict.NOT_EXECUTED: Event.NOT_EXECUTED,
        Verdict.INCONCLUSIVE: Event.INCONCLUSIVE,
        Verdict.IN_DOUBT: Event.LOST,
    } == core.VERDICT_EVENTS
    assert set(Verdict) == set(core.VERDICT_EVENTS)


def test_an_answer_is_kept_with_its_time_and_its_price() -> None:
    """From now on for as long as the settlement says, or for ever."""
    row = settled(pending(unresolved=True, doubt=Doubt(since=NOW, reason="r")), ttl=60.0, cost_usd=0.5)
    assert (row.state, row.answer, row.settled_at, row.expires_at) == (State.DONE, ANSWER, NOW, NOW + 60)
    assert (row.cost_usd, row.unresolved) == (0.5, False)
    assert settled(pending()).expires_at is None
    given, _ = core.settle(
        pending(), core.Settlement(Event.ANSWERED, "w", answer=ANSWER), actor="a", now=NOW, answer=OTHER
    )
    assert given.answer == OTHER, "as it was stored, not as it was meant"


@pytest.mark.parametrize("event", [Event.NOT_SENT, Event.NOT_EXECUTED, Event.INCONCLUSIVE])
def test_nothing_happened_speaks_only_for_this_send(event: Event) -> None:
    """With an earlier one unresolved it is still in doubt; without, or in doubt already, it is released."""
    assert settled(pending(), event).state is State.RELEASED
    row = settled(pending(unresolved=True), event)
    assert (row.state, row.unresolved) == (State.IN_DOUBT, True)
    assert row.doubt is not None
    assert "earlier send" in row.doubt.reason
    doubted = pending(state=State.IN_DOUBT, unresolved=True, doubt=Doubt(since=NOW, reason="r"))
    assert settled(doubted, Event.NOT_EXECUTED).state is State.RELEASED


def test_an_answer_speaks_for_both() -> None:
    """Also where an earlier send is unresolved."""
    assert settled(pending(unresolved=True)).state is State.DONE


def test_doubt_says_since_when_and_why() -> None:
    """The settlement's own first, then the one that was there, then this one. It never expires."""
    mine, earlier = Doubt(since=NOW - 5, reason="mine"), Doubt(since=NOW - 9, reason="earlier")
    assert settled(pending(doubt=earlier), Event.LOST, doubt=mine).doubt == mine
    assert settled(pending(doubt=earlier), Event.LOST).doubt == earlier
    row = settled(pending(), Event.LOST, ttl=5.0)
    assert (row.doubt, row.unresolved, row.expires_at) == (Doubt(since=NOW, reason="why"), True, None)


def test_what_a_caller_was_told_is_remembered_once() -> None:
    """In a run, whether the call ends in doubt or not; outside one there is nothing to remember."""
    for event in (Event.LOST, Event.NOT_SENT):
        row = settled(in_run(), event, receipt=RECEIPT)
        assert row.in_run == replace(IN_RUN, receipts=(RECEIPT,))
        again = replace(RECEIPT, attempt="a2")
        more = settled(in_run(receipts=(RECEIPT,)), event, receipt=again)
        assert more.in_run == replace(IN_RUN, receipts=(RECEIPT, again))
        assert settled(in_run(receipts=(RECEIPT,)), event, receipt=RECEIPT).in_run == replace(
            IN_RUN, receipts=(RECEIPT,)
        )
        assert settled(in_run(), event).in_run == IN_RUN
        assert settled(pending(), event, receipt=RECEIPT).in_run is None
        assert settled(in_run(), event, orphan=True).in_run == replace(IN_RUN, orphaned=True)
        assert settled(pending(), event, orphan=True).in_run is None


def held(meter: Meter, amount: int) -> Terms:
    return Terms(granted=True, bound_to=b"b", reserved=Reserved("", "r", (Held(meter, 1, amount),), True))


@pytest.mark.parametrize(
    ("event", "granted"),
    [(Event.ANSWERED, False), (Event.LOST, False), (Event.NOT_SENT, True), (Event.NOT_EXECUTED, True),
     (Event.INCONCLUSIVE, True)],
)  # fmt: skip
def test_a_permission_is_used_up_by_a_send_that_may_have_been_executed(event: Event, granted: bool) -> None:
    """What did not happen leaves it; and what it is bound to stays."""
    row = settled(pending(terms=Terms(granted=True, bound_to=b"b")), event)
    assert row.terms == Terms(granted=granted, bound_to=b"b")
    assert settled(pending(), event).terms is None


def test_what_was_held_is_given_back_with_the_row() -> None:
    """Also where the call ends in doubt nothing is lost: it stays held."""
    after = {event: settled(pending(terms=held(Meter.USD, 7)), event, cost_usd=2e-6) for event in
             (Event.ANSWERED, Event.LOST, Event.NOT_SENT)}  # fmt: skip
    amounts = {event: row.terms.reserved.held[0].amount for event, row in after.items()
               if row.terms is not None and row.terms.reserved is not None}  # fmt: skip
    assert amounts == {Event.ANSWERED: 2, Event.LOST: 7, Event.NOT_SENT: 0}
    free = settled(pending(terms=held(Meter.USD, 7)), free=True)
    assert free.terms is not None
    assert free.terms.reserved is not None
    assert free.terms.reserved.held[0].amount == 0


def test_a_resend_is_a_new_fence_and_an_earlier_send_unresolved() -> None:
    """The row is its own; who asks now owns it, and what was given while it was in doubt stays given."""
    over = pending(
        state=State.IN_DOUBT, doubt=Doubt(since=NOW, reason="r"), run="r", version=4, fence=2, sends=1,
        in_run=replace(IN_RUN, receipts=(RECEIPT,)), attempt="a1", request=b"as sent",
    )  # fmt: skip
    fresh = pending(run="r", in_run=replace(IN_RUN, uses=3), owner="p2", attempt="a2", request=b"as asked")
    row, entry, version = core.resend(fresh, over, actor="proxy:p2", now=NOW)
    assert (row.state, row.version, version, row.fence, row.sends) == (State.PENDING, 5, 4, 3, 2)
    assert (row.owner, row.attempt, row.sent_at, row.unresolved, row.request) == (
        "p2", "a2", NOW, True, b"as sent",
    )  # fmt: skip
    assert row.in_run == replace(IN_RUN, uses=3, receipts=(RECEIPT,))
    assert (entry.event, entry.before, entry.after, entry.fence, entry.at) == (
        Event.RESEND, State.IN_DOUBT, State.PENDING, 3, NOW,
    )  # fmt: skip
    outside, _, _ = core.resend(
        pending(owner="p2"), pending(state=State.IN_DOUBT, doubt=over.doubt), actor="a", now=NOW
    )
    assert outside.in_run is None


def test_a_late_answer_settles_what_carries_its_fence() -> None:
    """Anything less than an answer is evidence by then; what is done stays done."""
    doubt = Doubt(since=NOW, reason="r")
    terms = Terms(bound_to=b"b")
    for state in State:
        row = pending(state=state, fence=3, answer=ANSWER, doubt=doubt, terms=terms)
        assert core.can_settle(row, 3, Event.ANSWERED) is (state is not State.DONE)
        assert core.can_settle(row, 3, Event.LOST) is (state is State.PENDING)
        assert not core.can_settle(row, 2, Event.ANSWERED)


def test_a_dead_owners_call() -> None:
    """With effects it is in doubt since it was sent; a safe one does no harm; a shared one knows more."""
    lost = core.orphaned(pending(sent_at=NOW - 3))
    assert (lost.event, lost.doubt and lost.doubt.since) == (Event.LOST, NOW - 3)
    unsent = core.orphaned(pending(sent_at=None))
    assert unsent.doubt is not None
    assert unsent.doubt.since == NOW - 10
    safe = core.orphaned(pending(safe=True))
    assert (safe.event, safe.ttl, safe.orphan) == (Event.INCONCLUSIVE, 86400.0, False)
    kept = core.orphaned(evolve(in_run(), safe=True))
    assert (kept.event, kept.ttl) == (Event.INCONCLUSIVE, None)
    shared = core.orphaned(in_run(shared="abc"))
    assert (shared.event, shared.orphan, shared.doubt) == (Event.NOT_EXECUTED, True, None)
    assert core.orphaned(in_run()).event is Event.LOST


def test_what_a_person_found_out() -> None:
    """It was executed, with an answer, or it was not; in a run the row says that a person spoke."""
    yes = core.resolved(ANSWER, why="seen", ttl=5.0)
    assert yes == core.Settlement(Event.ANSWERED, "seen", answer=ANSWER, ttl=5.0)
    assert core.resolved(None, why="not", ttl=None) == core.Settlement(Event.NOT_EXECUTED, "not")
    assert core.by_person(in_run()) == replace(IN_RUN, resolved=True)
    assert core.by_person(pending()) is None


def test_what_is_forgotten_ended_with_its_settlement() -> None:
    """So that every clock has passed it; only what is settled can be."""
    for at, ended in ((NOW - 5, NOW - 5), (NOW + 5, NOW), (None, NOW)):
        call = pending(state=State.DONE, answer=ANSWER, settled_at=at, version=3, fence=2)
        past, entry = core.forget(call, actor="operator:a", now=NOW, why="asked to")
        assert (past.expires_at, past.version, past.state) == (ended, 4, State.DONE)
        assert entry == Entry(NOW, "operator:a", "forgotten", State.DONE, None, "asked to", 2)
    for state in (State.PENDING, State.IN_DOUBT, State.AWAITING_APPROVAL):
        open_ = pending(state=state, doubt=Doubt(since=NOW, reason="r"), terms=Terms(bound_to=b"b"))
        with pytest.raises(ValueError):
            core.forget(open_, actor="a", now=NOW, why="w")


def test_a_claim_goes_on_from_the_birth_of_the_row() -> None:
    """A row that was collected and made again is another, one that is claimed over is not. No open one is."""
    fresh, _ = calls.claim("p2", bytes(16))
    over = pending(state=State.RELEASED, born=NOW - 99)
    assert core.claim(fresh, over, actor="a", now=NOW)[0].born == NOW - 99
    for state in (State.PENDING, State.IN_DOUBT):
        with pytest.raises(ValueError):
            core.claim(fresh, pending(state=state, doubt=Doubt(since=NOW, reason="r")), actor="a", now=NOW)


AGED = Rule(name="r", max_age=60.0)


@pytest.mark.parametrize(
    ("age", "changes", "rule", "stale"),
    [
        (61, {}, AGED, True),
        (60, {}, AGED, False),
        (61, {"safe": False}, AGED, False),
        (61, {"state": State.RELEASED}, AGED, False),
        (61, {}, Rule(name="r"), False),
        (61, {}, None, False),
    ],
)
def test_only_the_answer_of_a_safe_call_can_be_too_old(
    age: int, changes: dict[str, Any], rule: Rule | None, stale: bool
) -> None:
    """By the rule's own measure, from the moment it was recorded."""
    call = pending(**({"safe": True, "state": State.DONE, "answer": ANSWER} | changes))
    assert core.is_stale(call, rule, NOW + age) is stale
    assert not core.is_stale(evolve(call, state=State.RELEASED, answer=None), rule, NOW + age)


def test_what_is_too_old_is_given_fetched_anew_or_refused() -> None:
    """As the rule says; what is young enough is given."""
    call = pending(safe=True, state=State.DONE, answer=ANSWER)
    identity = Identity(key=call.key, fingerprint=call.fingerprint, named_by=b"", arguments=b"")

    def decided(stale: OnStale, age: float) -> core.Decision:
        return core.decide(call, identity, now=NOW + age, rule=replace(AGED, stale=stale))

    assert decided(OnStale.SERVE, 61) == core.Replay(call, ANSWER)
    assert decided(OnStale.REVALIDATE, 61) == core.Claim(call)
    assert decided(OnStale.REFUSE, 61) == core.TooOld(call, 61.0, 60.0)
    assert {type(decided(each, 60)) for each in OnStale} == {core.Replay}


def test_a_question_or_refusal_past_its_time_has_lapsed() -> None:
    """Until then it stands."""
    terms = Terms(bound_to=b"b", until=NOW)
    for state, before in ((State.AWAITING_APPROVAL, core.AwaitPerson), (State.DENIED, core.Refused)):
        call = pending(state=state, terms=terms)
        identity = Identity(key=call.key, fingerprint=call.fingerprint, named_by=b"", arguments=b"")
        assert core.decide(call, identity, now=NOW - 1) == before(call)
        assert core.decide(call, identity, now=NOW) == core.Lapsed(call)


def test_a_done_call_is_given_again_unless_somebody_asks_otherwise() -> None:
    """`refresh` is said, not assumed."""
    call = pending(safe=True, state=State.DONE, answer=ANSWER)
    identity = Identity(key=call.key, fingerprint=call.fingerprint, named_by=b"", arguments=b"")
    assert core.decide(call, identity, now=NOW) == core.Replay(call, ANSWER)
