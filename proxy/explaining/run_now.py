"""Which call of its run a request would be now, why, and what would become of it.

The choice is the proxy's own (core/occurrence.py, frontier.py, divergence.py), made on what the record says.
Where the proxy would wait a little for others, it is told what comes if nothing else happens meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from proxy.core import decide as core
from proxy.core.divergence import GRACE, Hold, OnDivergence, Proceed, group_of, judge
from proxy.core.frontier import ANSWER, Again, ByState, GoLive, recall
from proxy.core.identity import Identity, occurrence_of
from proxy.core.intent import Call, State, is_live
from proxy.core.occurrence import (
    MARK_LAG,
    Ask,
    AwaitMark,
    Existing,
    Join,
    New,
    Why,
    choose_occurrence,
    repeat_in_run,
)
from proxy.core.policy import DEFAULT_NAME
from proxy.core.run_record import End, Step
from proxy.core.runs import Occurrence, with_dead_owners
from proxy.explaining.in_run import Viewed
from proxy.explaining.now import Happens, held, joined, new_call, with_record
from proxy.explaining.record import decision_on, decision_on_answer
from proxy.front.naming import Named, ToName
from proxy.front.sending import Told
from proxy.runs.book import Book
from proxy.runs.shared import identity_of
from proxy.store.base import Store

FIRST = "the run has no such call yet"
USED_UP = "this attempt has used up all that the record has"
NO_ATTEMPT = "without an attempt a safe call goes live each time"
SAME_CALLER = "; no credentials were given with -H: taken to be the same caller"
OVER = "the run's retention is over (runs.retention): 410, nothing is sent; use another name for new work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """`identity` is that of the occurrence; None where the request would be no call of the run."""

    happens: Happens
    recorded: int = 0  # how many identical calls the run has
    occurrence: int | None = None
    why: str = ""
    identity: Identity | None = None
    unasked: tuple[Step, ...] = ()  # why it would be held as diverged


class InQuestion(NamedTuple):
    """A request in a run, named. `named` has an identity: that of all identical calls together."""

    viewed: Viewed
    request: ToName
    named: Named
    said: Told
    on_divergence: OnDivergence

    @property
    def book(self) -> Book:
        return self.viewed.book

    @property
    def family(self) -> Identity:
        assert self.named.identity is not None
        return self.named.identity


def over() -> Fate:
    return Fate(happens=Happens(what="run-expired", detail=OVER))


async def fate_of(question: InQuestion, store: Store | None) -> Fate:
    """Without a store there is no record: then everything is new."""
    if store is None:
        happens = new_call("there is no record: it would be sent", question.named.bound_to)
        return _new(question, 1, 0, happens)
    book = question.book
    known = book.occurrences(question.family.key)
    rows = with_dead_owners([row for _, row in known], await _dead(store, known))
    steps = {step.occurrence: (step, row) for (step, _), row in zip(known, rows, strict=True)}
    ask, assumed = _asked(question, store, rows)
    match choose_occurrence(rows, ask, book.frontier, waited=MARK_LAG):
        case New(n):
            return await _not_on_record(question, store, n, len(known))
        case Existing(n, why):
            found = await _on_record(question, store, *steps[n])
        case Join(n):
            why = Why.IN_FLIGHT
            found = await _on_record(question, store, *steps[n])
        case AwaitMark():  # it has been waited for
            raise AssertionError("nothing is waited for here")
        case choice:
            assert_never(choice)
    return replace(found, recorded=len(known), why=why + assumed)


async def _dead(store: Store, known: list[tuple[Step, Occurrence]]) -> frozenset[str]:
    owners = {x.owner for _, row in known for x in row.exchanges if x.end is End.UNDER_WAY}
    return frozenset([owner for owner in owners if await store.owner_is_dead(owner)])


def _asked(question: InQuestion, store: Store, rows: tuple[Occurrence, ...]) -> tuple[Ask, str]:
    """And what was taken for granted: nobody types credentials to ask about a call in flight."""
    rule, attempt = question.named.match.rule, question.book.attempt
    evidence = question.named.evidence
    credentials, assumed = evidence.credentials, ""
    in_flight = [x for row in rows for x in row.by(attempt) if x.end is End.UNDER_WAY and x.credentials]
    if not credentials and in_flight and attempt:
        credentials, assumed = in_flight[0].credentials, SAME_CALLER
    ask = Ask(
        attempt=attempt,
        safe=question.named.safe,
        proxy=store.owner,
        repeat=repeat_in_run(rule.mode, rule.scope, rule.repeat),
        credentials=credentials,
        tokens=evidence.tokens,
        wording=evidence.wording,
        retry_count=evidence.retry_count,
        occurrence=question.said.occurrence,
    )
    return ask, assumed


# ---- what the record does not have ----


async def _not_on_record(question: InQuestion, store: Store, n: int, recorded: int) -> Fate:
    book, named = question.book, question.named
    verdict = Proceed() if named.safe else _verdict(question)
    if isinstance(verdict, Hold):
        steps = [book.step(bytes.fromhex(row.id)) for row in verdict.unasked]
        unasked = tuple(step for step in steps if step is not None)
        detail = (
            "it is not in the run's record, while this attempt has not asked for what the record has of the "
            "same rule. semel waits 2 s for that, then holds it: 409, nothing is sent. The agent may ask for "
            f"that first; `semel runs allow {book.run.name} --reason WHY` lets it go its new way"
        )
        return replace(_new(question, n, recorded, Happens(what="diverged", detail=detail)), unasked=unasked)
    happens = await _live(question, store, "not in the run's record: it would be sent", None)
    if verdict.noted:
        happens = replace(happens, detail=f"{happens.detail}, and noted as diverged (on_divergence: allow)")
    return _new(question, n, recorded, happens)


def _verdict(question: InQuestion) -> Proceed | Hold:
    book, request, rule = question.book, question.request, question.named.match.rule
    verdict = judge(
        group=group_of(
            upstream=request.upstream.name,
            rule=None if rule.name == DEFAULT_NAME else rule.name,
            method=request.method,
            host=(request.address.place or request.upstream).host,
            path=request.address.raw_path,
        ),
        attempt=book.attempt,
        attempts=book.run.attempt_names,
        rows=book.rows(),
        waited=GRACE,
        on_divergence=question.on_divergence,
    )
    assert isinstance(verdict, Proceed | Hold)  # it has been waited for
    return verdict


def _new(question: InQuestion, n: int, recorded: int, happens: Happens) -> Fate:
    if question.said.occurrence is not None:
        why: str = Why.NUMBERED
    elif question.named.safe and not question.book.attempt:
        why = NO_ATTEMPT
    else:
        why = USED_UP if recorded else FIRST
    identity = occurrence_of(question.family, question.book.run.name, n)
    return Fate(happens=happens, recorded=recorded, occurrence=n, why=why, identity=identity)


async def _live(question: InQuestion, store: Store, detail: str, shared: Identity | None) -> Happens:
    """Sent; or, where the rule shares it with the tenant, whatever becomes of the shared call. `shared`: the
    one that it was filled from before."""
    asked = question.named.shared
    if asked is None:
        return new_call(detail, question.named.bound_to)
    now = time.time()
    named = question.named._replace(identity=shared or asked)
    decision, owner_is_dead = await decision_on(store, named, refresh=question.said.refresh, now=now)
    rule, bound_to = named.match.rule, named.bound_to
    happens = with_record(decision, now=now, owner_is_dead=owner_is_dead, rule=rule, bound_to=bound_to)
    return replace(happens, detail=f"the rule shares it with the whole tenant: {happens.detail}")


# ---- what it has ----


async def _on_record(question: InQuestion, store: Store, step: Step, row: Occurrence) -> Fate:
    run, n = step.run, step.occurrence
    what = recall(row, question.book.attempt, question.book.frontier)
    identity = occurrence_of(question.family, run, n)
    call = await store.get(identity.key)
    if call is not None and call.fingerprint != identity.fingerprint:
        happens = with_record(core.Collision(), now=0.0)
    elif isinstance(what, GoLive) or call is None or await _doubt_is_settled(store, what, step):
        happens = await _again_live(question, store, step)
        identity = occurrence_of(question.family, question.book.run.name, n)
    else:
        happens = await _recalled(what, store, call, question.named._replace(identity=identity))
    return Fate(happens=happens, occurrence=n, identity=identity)


async def _again_live(question: InQuestion, store: Store, step: Step) -> Happens:
    why = "a person has had it forgotten" if step.state is None else "nothing came of it so far"
    known = await store.get(bytes.fromhex(step.in_run.shared)) if step.in_run.shared else None
    filled_from = identity_of(known) if known is not None and is_live(known, time.time()) else None
    return await _live(question, store, f"{why}: it would be sent", filled_from)


async def _doubt_is_settled(store: Store, what: Again | ByState, step: Step) -> bool:
    """The doubt was the shared call's, which has its answer by now."""
    if what != Again("in-doubt") or not step.in_run.shared:
        return False
    call = await store.get(bytes.fromhex(step.in_run.shared))
    return call is not None and call.state is not State.IN_DOUBT and is_live(call, time.time())


async def _recalled(what: Again | ByState, store: Store, call: Call, named: Named) -> Happens:
    now = time.time()
    match what:
        case Again(problem) if problem == ANSWER:
            assert call.answer is not None  # done, or sealed with an answer
            decision = await decision_on_answer(store, core.Replay(call, call.answer))
            return _sealed(with_record(decision, now=now), call)
        case Again(problem):
            return _told_again(problem, call)
        case ByState(State.PENDING):
            return joined(call, owner_is_dead=await store.owner_is_dead(call.owner))
        case ByState():
            decision, dead = await decision_on(store, named, refresh=False, now=now)
            rule, bound_to = named.match.rule, named.bound_to
            return with_record(decision, now=now, owner_is_dead=dead, rule=rule, bound_to=bound_to)
        case _:
            assert_never(what)


def _sealed(happens: Happens, call: Call) -> Happens:
    if call.state is State.DONE or happens.what != "replayed":
        return happens
    why = "it is not final, and given again because the run made calls with effects after it"
    return replace(happens, detail=f"{happens.detail}: {why}")


def _told_again(problem: str, call: Call) -> Happens:
    why = "an earlier attempt was told so and made calls with effects after it"
    if problem == "in-doubt" and call.doubt is not None:
        happens = held(call)
        return replace(happens, detail=f"{happens.detail}; {why}")
    lets = f"`semel calls forget {call.id}` lets the call go out again"
    return Happens(what=problem, detail=f"told again from the record, nothing is sent: {why}; {lets}")
