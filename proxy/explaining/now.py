"""What the record means for a call made now, in words: the decision of core/decide.py, told to people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from proxy.core import decide as core
from proxy.core.approval import for_occurrence, is_granted
from proxy.core.doubt import Ask, Held, Resend, way_out
from proxy.core.intent import Call, State, is_live
from proxy.core.policy import Mode, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Happens:
    """`what` is one word for programs; `since` is a moment, `age` and `ttl_left` are lengths, in seconds."""

    what: str
    detail: str
    since: float | None = None
    age: float | None = None
    ttl_left: float | None = None


def without_record(rule: Rule) -> Happens:
    """For what has no name: the rule alone decides."""
    if rule.mode is Mode.DENY:
        return Happens(what="denied", detail="the rule denies this call: 403, nothing is sent")
    if rule.mode is Mode.PASS:
        return Happens(what="passed", detail="forwarded and not recorded: the rule says pass")
    return Happens(
        what="passed",
        detail="forwarded and not recorded: outside a run a safe call goes live each time (mode: cache, or "
        "repeat: same, would keep its answer)",
    )


def new_call(detail: str, bound_to: bytes) -> Happens:
    """For what no record has. `bound_to`: what a person would have to permit."""
    if bound_to:
        asked = "a person would be asked to permit it first: 409, nothing is sent until then"
        return Happens(what="awaiting-approval", detail=asked)
    return Happens(what="executed", detail=detail)


def in_shadow(rule: Rule, happens: Happens) -> Happens:
    """What is only looked on at goes out, whatever the record says."""
    if not rule.shadow:
        return happens
    detail = f"forwarded as if semel were not there (shadow: true). Without that: {happens.detail}"
    return Happens(what="passed", detail=detail)


def with_record(
    decision: core.Decision,
    *,
    now: float,
    owner_is_dead: bool = False,
    rule: Rule | None = None,
    bound_to: bytes = b"",
) -> Happens:
    """`rule`: what settles its doubts. `bound_to`: what a person would have to permit."""
    match decision:
        case core.Claim(over):
            permitted = is_granted(over, for_occurrence(bound_to, over.occurrence if over else 1), now)
            return new_call(_why_executed(over, rule, now), b"" if permitted else bound_to)
        case core.Replay(call, answer):
            age = max(0.0, now - answer.recorded_at)
            left = None if call.expires_at is None else call.expires_at - now
            told = f"the answer (status {answer.status}) recorded {spell(age)} ago"
            rest = "" if left is None else f", for another {spell(left)}"
            return Happens(what="replayed", detail=told + rest, age=age, ttl_left=left)
        case core.Wait(call) if owner_is_dead:
            return _after_a_death(call)
        case core.Wait(call):
            since = call.sent_at or call.created_at
            detail = f"the same call has been under way since {moment(since)}: it would wait for that answer"
            return Happens(what="waits", detail=detail, since=since)
        case core.Hold(call):
            return held(call, rule, now)
        case core.Unavailable(_, why):
            return Happens(what="answer-unavailable", detail=f"it happened, and is not sent again: {why}")
        case core.AwaitPerson(call):
            return Happens(what="awaiting-approval", detail="held for a person", since=call.created_at)
        case core.Refused(call):
            said = "" if call.terms is None else call.terms.said
            return Happens(what="denied", detail=f"a person has denied it{f': {said}' if said else ''}")
        case core.Lapsed(call):
            detail = "the question has lapsed, or the refusal is over: a person would be asked anew"
            return Happens(what="awaiting-approval", detail=detail, since=call.created_at)
        case core.TooOld(_, age, most):
            detail = f"its answer is {spell(age)} old, the rule allows {spell(most)}: 409, nothing is sent"
            return Happens(what="stale", detail=detail, age=age)
        case core.Conflict():
            detail = "this Idempotency-Key stands for other arguments or another caller: 422, nothing is sent"
            return Happens(what="key-conflict", detail=detail)
        case core.Collision():
            return Happens(what="identity-collision", detail="another call has the same key: nothing is sent")
        case _:
            assert_never(decision)


def _why_executed(over: Call | None, rule: Rule | None, now: float) -> str:
    if over is None:
        return "nobody has made this call yet: it would be sent"
    if over.state is State.RELEASED:
        return "nothing came of it so far: it would be sent"
    if is_live(over, now) and core.is_stale(over, rule, now):
        return "its recorded answer is older than max_age: it would be fetched anew, and both compared"
    return "its recorded answer is past its time: it would be sent"


def held(call: Call, rule: Rule | None = None, now: float = 0.0) -> Happens:
    assert call.doubt is not None  # a record in doubt has its reason
    since = call.doubt.since
    way = Held("") if rule is None else way_out(call, rule, now=now, mark=now)
    if isinstance(way, Resend):
        detail = f"in doubt since {moment(since)}: it would be sent again, under the same upstream key"
        return Happens(what="executed", detail=detail, since=since)
    if isinstance(way, Ask):
        detail = f"in doubt since {moment(since)}: the upstream would be asked first, by the rule's probe"
        return Happens(what="in-doubt", detail=detail, since=since)
    detail = (
        f"in doubt since {moment(since)}: {call.doubt.reason}. It is not sent again; find out what became of "
        f"it, then: semel calls resolve {call.id} --as executed|not-executed --reason …"
    )
    return Happens(what="in-doubt", detail=detail, since=since)


def joined(call: Call, *, owner_is_dead: bool) -> Happens:
    """In a run: the answer in flight is for whoever asks the same."""
    if owner_is_dead:
        return _after_a_death(call)
    since = call.sent_at or call.created_at
    detail = f"the same call has been under way since {moment(since)}: it would get that answer"
    return Happens(what="joined", detail=detail, since=since)


def _after_a_death(call: Call) -> Happens:
    """What the next proxy to look at it does first."""
    since = call.sent_at or call.created_at
    if call.safe:
        return Happens(what="executed", detail="the proxy that was sending it died: it would be sent again")
    detail = f"the proxy that sent it at {moment(since)} died: it would be held in doubt, and not sent again"
    return Happens(what="in-doubt", detail=detail, since=since)


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def spell(seconds: float) -> str:
    """Roughly, in the largest unit that fits: people compare it with a ttl."""
    for unit, worth in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= worth:
            return f"{seconds / worth:.1f}{unit}".replace(".0", "")
    return f"{seconds:.0f}s"
