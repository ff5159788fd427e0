"""What to do with a call, given what is stored: pure, exhaustive, in one place.

The second half builds the rows: a claim before anything is sent, a settlement after. Recovery and
operators use the same functions, so there is no second logic anywhere.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, assert_never

from proxy.core import budget
from proxy.core.approval import has_lapsed
from proxy.core.clauses import OnStale
from proxy.core.decision import (
    AwaitPerson,
    Claim,
    Collision,
    Conflict,
    Decision,
    Hold,
    Lapsed,
    Refused,
    Replay,
    TooOld,
    Unavailable,
    Wait,
)
from proxy.core.identity import Identity
from proxy.core.intent import (
    OPEN_STATES,
    SETTLED_STATES,
    Answer,
    Call,
    Doubt,
    Entry,
    Event,
    Place,
    State,
    advance,
    evolve,
    is_live,
    next_state,
)
from proxy.core.outcome import Verdict
from proxy.core.policy import Rule
from proxy.core.run_record import InRun, Receipt

# Whoever decides speaks of decisions: they are to be had here too.
__all__ = [
    "FORGOTTEN",
    "LATE_ANSWERS_SETTLE",
    "NOTHING_CAME_OF_IT",
    "PROVES_NOTHING_EARLIER",
    "VERDICT_EVENTS",
    "AwaitPerson",
    "Claim",
    "Collision",
    "Conflict",
    "Decision",
    "Hold",
    "Lapsed",
    "Refused",
    "Replay",
    "Settlement",
    "TooOld",
    "Unavailable",
    "Wait",
    "answer_lost",
    "by_person",
    "can_settle",
    "claim",
    "decide",
    "forget",
    "is_stale",
    "orphaned",
    "replays_until",
    "resend",
    "resolved",
    "settle",
]


def decide(
    row: Call | None, identity: Identity, *, now: float, refresh: bool = False, rule: Rule | None = None
) -> Decision:
    """`refresh`: the caller asked for a new answer of a safe call, and the rule allows it. `rule`: whose
    answers can be too old; in a run none can, what was given stands."""
    if row is None or not is_live(row, now):
        return Claim(row)
    if row.named_by != identity.named_by:
        return Collision()
    if row.fingerprint != identity.fingerprint:
        return Conflict(row) if identity.named_by else Collision()
    match row.state:
        case State.PENDING:
            return Wait(row)
        case State.IN_DOUBT:
            return Hold(row)
        case State.RELEASED:
            return Claim(row)
        case State.AWAITING_APPROVAL:
            return Lapsed(row) if has_lapsed(row, now) else AwaitPerson(row)
        case State.DENIED:
            return Lapsed(row) if has_lapsed(row, now) else Refused(row)
        case State.DONE:
            return _from_record(row, refresh=refresh, rule=rule, now=now)
        case _:
            assert_never(row.state)


def is_stale(row: Call, rule: Rule | None, now: float) -> bool:
    """Whether its answer, which is there, is older than the rule allows: of safe calls alone."""
    if rule is None or rule.max_age is None or row.state is not State.DONE or not row.safe:
        return False
    return row.answer is not None and now - row.answer.recorded_at > rule.max_age


def replays_until(row: Call, rule: Rule) -> float:
    """A row that `decide` has just called a Replay it calls one again, to the same ask, until then; but for
    changes of the row."""
    assert row.answer is not None  # it is what is given
    ends = [] if row.expires_at is None else [row.expires_at]
    if rule.max_age is not None and rule.stale is not OnStale.SERVE and row.safe:
        ends.append(row.answer.recorded_at + rule.max_age)
    return min(ends, default=math.inf)


def _from_record(row: Call, *, refresh: bool, rule: Rule | None, now: float) -> Decision:
    assert row.answer is not None  # a done call has one: Call refuses to be otherwise
    if refresh and row.safe:
        return Claim(row)
    if row.answer.place is Place.NOWHERE:
        return Claim(row) if row.safe else Unavailable(row, row.answer.why_nowhere)
    if rule is not None and rule.max_age is not None and is_stale(row, rule, now):
        match rule.stale:
            case OnStale.SERVE:
                pass
            case OnStale.REVALIDATE:
                return Claim(row)
            case OnStale.REFUSE:
                return TooOld(row, now - row.answer.recorded_at, rule.max_age)
            case _:
                assert_never(rule.stale)
    return Replay(row, row.answer)


def answer_lost(row: Call, why: str) -> Decision:
    """The record says done, but its answer cannot be produced: a safe call is made again, no other."""
    return Claim(row) if row.safe else Unavailable(row, why)


# ---- building rows -----------------------------------------------------------------------------


def claim(fresh: Call, over: Call | None, *, actor: str, now: float) -> tuple[Call, Entry, int]:
    """The row to write, its history line, and the version it must replace.

    `fresh` describes the call as if it were new. Over a released row the call goes on with its history;
    over one that has lapsed, or whose safe answer is lost, it starts anew. Either way the fence grows, so
    an older owner's late answer cannot be taken for this one's.
    """
    if over is None:
        entry = _entry(Event.CLAIM, None, fresh, at=now, actor=actor, why="first ask")
        return fresh, entry, 0
    fenced = evolve(fresh, version=over.version + 1, fence=over.fence + 1, born=over.born)
    if over.state is State.RELEASED and is_live(over, now):
        again = evolve(fenced, created_at=over.created_at, sends=over.sends + 1)
        return (
            again,
            _entry(Event.CLAIM, over.state, again, at=now, actor=actor, why="asked again"),
            over.version,
        )
    if over.state in OPEN_STATES:
        raise ValueError("an open call is never claimed over")
    return fenced, _entry(Event.CLAIM, None, fenced, at=now, actor=actor, why="asked anew"), over.version


def resend(fresh: Call, over: Call, *, actor: str, now: float) -> tuple[Call, Entry, int]:
    """The row of a call in doubt that is sent again, under its own key and with its own bytes. `fresh` says
    who asks now. The earlier send stays unresolved: only an answer to this one speaks for both."""
    in_run = fresh.in_run
    if in_run is not None and over.in_run is not None:  # what was given while it was in doubt stays given
        in_run = replace(in_run, receipts=over.in_run.receipts)
    again, entry = advance(
        over,
        Event.RESEND,
        at=now,
        actor=actor,
        why="sent again under its upstream key",
        fence=over.fence + 1,
        owner=fresh.owner,
        attempt=fresh.attempt,
        in_run=in_run,
        sent_at=now,
        sends=over.sends + 1,
        unresolved=True,
    )
    return again, entry, over.version


def _entry(event: Event, before: State | None, call: Call, *, at: float, actor: str, why: str) -> Entry:
    after = next_state(before, event)
    assert after is call.state
    return Entry(at, actor, event, before, after, why, call.fence)


class Settlement(NamedTuple):
    """What became of a send. `answer` for what is kept or handed on, `doubt` for what is not known."""

    event: Event
    why: str
    answer: Answer | None = None
    doubt: Doubt | None = None
    ttl: float | None = None
    receipt: Receipt | None = None  # in a run: the problem that the caller is given
    cost_usd: float | None = None
    free: bool = False  # the upstream answered, and took nothing for it
    orphan: bool = False  # of a call that is filled from a shared one: only that one knows


VERDICT_EVENTS = {
    Verdict.FINAL: Event.ANSWERED,
    Verdict.NOT_EXECUTED: Event.NOT_EXECUTED,
    Verdict.INCONCLUSIVE: Event.INCONCLUSIVE,
    Verdict.IN_DOUBT: Event.LOST,
}


# What these say of a send they do not say of the one before it.
PROVES_NOTHING_EARLIER = frozenset({Event.NOT_SENT, Event.NOT_EXECUTED, Event.INCONCLUSIVE})


def settle(
    call: Call, settlement: Settlement, *, actor: str, now: float, answer: Answer | None = None
) -> tuple[Call, Entry]:
    """The row after its send. With an earlier one unresolved, "nothing happened" speaks only for this."""
    event, why = settlement.event, settlement.why
    if call.unresolved and call.state is State.PENDING and event in PROVES_NOTHING_EARLIER:
        event, why = Event.LOST, f"{why}; an earlier send is still unresolved"
    terms = budget.after(call.terms, event, settlement.cost_usd, free=settlement.free)
    if terms is not None and terms.granted and event not in PROVES_NOTHING_EARLIER:
        terms = replace(terms, granted=False)  # used up by a send that may have been executed
    if next_state(call.state, event) is State.IN_DOUBT:
        doubt = settlement.doubt or call.doubt or Doubt(since=now, reason=why)
        return advance(
            call,
            event,
            at=now,
            actor=actor,
            why=why,
            doubt=doubt,
            unresolved=True,
            expires_at=None,
            in_run=_received(call, settlement),
            terms=terms,
        )
    return advance(
        call,
        event,
        at=now,
        actor=actor,
        why=why,
        answer=answer or settlement.answer,
        unresolved=False,
        settled_at=now,
        expires_at=None if settlement.ttl is None else now + settlement.ttl,
        cost_usd=settlement.cost_usd,
        in_run=_received(call, settlement),
        terms=terms,
    )


def _received(call: Call, settlement: Settlement) -> InRun | None:
    receipt, in_run = settlement.receipt, call.in_run
    if in_run is not None and settlement.orphan:
        return replace(in_run, orphaned=True)
    if in_run is None or receipt is None or receipt in in_run.receipts:
        return in_run
    return replace(in_run, receipts=(*in_run.receipts, receipt))


LATE_ANSWERS_SETTLE = frozenset({State.IN_DOUBT, State.RELEASED, State.AWAITING_APPROVAL, State.DENIED})


def can_settle(present: Call, fence: int, event: Event) -> bool:
    """An owner settles what carries its fence. What somebody else has settled meanwhile (in doubt,
    released, waiting, denied) only an answer can still change; anything less is evidence."""
    if present.fence != fence:
        return False
    late = present.state in LATE_ANSWERS_SETTLE and event is Event.ANSWERED
    return present.state is State.PENDING or late


# A released row outside a run says only that nothing came of it. With the rule out of reach, a day is enough.
NOTHING_CAME_OF_IT = 86400.0


def orphaned(call: Call) -> Settlement:
    """A dead owner's call: with effects it may have been sent, a safe one does no harm again."""
    if call.safe:
        why = "its proxy died; repeating it does no harm"
        return Settlement(event=Event.INCONCLUSIVE, why=why, ttl=None if call.run else NOTHING_CAME_OF_IT)
    if call.in_run is not None and call.in_run.shared:
        # The call of the whole tenant is the one that was sent, or not; it says so when it is asked again.
        return Settlement(
            event=Event.NOT_EXECUTED, why="its proxy died; the shared call knows more", orphan=True
        )
    reason = "the proxy that was sending it died; whether it was sent, and what came of it, is not known"
    return Settlement(
        event=Event.LOST, why=reason, doubt=Doubt(since=call.sent_at or call.created_at, reason=reason)
    )


# ---- a person's word ---------------------------------------------------------------------------

FORGOTTEN = "forgotten"  # a history line of its own: the state stays, only its time is over


def by_person(call: Call) -> InRun | None:
    """In a run: what a person has resolved is no longer given again as a problem."""
    return None if call.in_run is None else replace(call.in_run, resolved=True)


def resolved(answer: Answer | None, *, why: str, ttl: float | None) -> Settlement:
    """What a person found out about a call in doubt: it was executed (`answer`), or it was not (None)."""
    event = Event.NOT_EXECUTED if answer is None else Event.ANSWERED
    return Settlement(event=event, why=why, answer=answer, ttl=ttl)


def forget(call: Call, *, actor: str, now: float, why: str) -> tuple[Call, Entry]:
    """The call as if its time to live had ended with its settlement, so the next ask is a new first one.

    Stores have no delete, and need none: a row past its time is as good as deleted, and a claim over it
    raises the fence. The moment of settlement, not now, is the end: every other proxy's clock has passed
    it, also one that runs behind this one.
    """
    if call.state not in SETTLED_STATES:
        raise ValueError("only a settled call can be forgotten")
    ended = now if call.settled_at is None else min(now, call.settled_at)
    past = evolve(call, version=call.version + 1, expires_at=ended)
    entry = Entry(
        at=now, actor=actor, event=FORGOTTEN, before=call.state, after=None, why=why, fence=call.fence
    )
    return past, entry
