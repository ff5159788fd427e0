"""Calls that a person permits first: when to ask, what a permission is bound to, and the rows of it.

A permission is for exactly one request: method, target, keyed headers, the body without what the key leaves
out, and which of the identical ones it is. It is used up by the first send that may have been executed.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from operator import itemgetter

from proxy.core.canonical import canonical_arguments
from proxy.core.clauses import Approval
from proxy.core.document import Document, verdict_on
from proxy.core.identity import Asked, frame, sort_headers
from proxy.core.intent import Call, Entry, Event, State, advance, evolve, is_live, next_state
from proxy.core.policy import Rule
from proxy.core.terms import Terms

# A permission that nobody has used by then is no longer what anybody has in mind. In a run it stays with it.
GRANTED_FOR = 30 * 86400.0
# What a question that lapsed leaves behind outside runs: only that it was asked.
LAPSED_FOR = 86400.0


def needs_person(approval: Approval, document: Document) -> bool:
    """Only an honest `false` about all that is sent lets a call go without asking: an expression that fails,
    a number written as a text, a field that is left out or is a list must not be a way around the person."""
    return approval.when is None or verdict_on(approval.when, document) is not False


def binding(
    asked: Asked, rule: Rule, secret: bytes, *, excluded: tuple[str, ...], further: tuple[str, ...] = ()
) -> bytes:
    """What a permission is bound to, but for the occurrence. Not narrowed by `include`, nothing normalised:
    a person permits what is there to be read, but for what is `excluded`. `further`: headers that the rule
    counts by now that asks."""
    arguments = canonical_arguments(
        path=asked.path_names, query=asked.query, body=asked.body, exclude=excluded
    )
    counted = sort_headers(asked.headers, (*rule.key.counted, *further)).keyed
    keyed = sorted(counted, key=itemgetter(0))  # stable
    where = (asked.upstream.encode(), asked.host.encode(), asked.method.encode(), asked.raw_path)
    parts = (b"approval", *where, arguments, *(part for pair in keyed for part in pair))
    return blake2b(frame(parts), digest_size=32, key=secret).digest()


def for_occurrence(bound_to: bytes, occurrence: int) -> bytes:
    return blake2b(frame((bound_to, b"%d" % occurrence)), digest_size=32).digest()


def is_granted(over: Call | None, bound_to: bytes, now: float) -> bool:
    """Whether what stands there is a permission of this very request."""
    if over is None or over.state is not State.RELEASED or not is_live(over, now):
        return False
    return over.terms is not None and over.terms.granted and over.terms.bound_to == bound_to


# ---- rows ----


def ask_person(
    fresh: Call, over: Call | None, *, approval: Approval, bound_to: bytes, actor: str, now: float
) -> tuple[Call, Entry, int]:
    """The row that waits, its history line, and the version it must replace. `fresh` as for a claim; nothing
    is sent for it, so the fence stays and nobody owns it but whoever sent something before."""
    held = None if over is None or over.terms is None else over.terms.reserved
    terms = Terms(bound_to=bound_to, until=now + approval.expires, reserved=held)
    row = evolve(fresh, state=State.AWAITING_APPROVAL, terms=terms, sent_at=None, sends=0, fence=0, owner="")
    before = None
    if over is not None:
        row = evolve(row, version=over.version + 1, fence=over.fence, born=over.born, owner=over.owner)
        if over.state is State.RELEASED and is_live(over, now):
            before = over.state
            row = evolve(row, created_at=over.created_at, sends=over.sends, sent_at=over.sent_at)
    after = next_state(before, Event.NEEDS_APPROVAL)
    why = "a person has to permit it"
    if over is not None and over.terms is not None and over.terms.granted:
        why = "what was permitted is another request: a person has to permit this one"
    entry = Entry(now, actor, Event.NEEDS_APPROVAL, before, after, why, row.fence)
    return row, entry, 0 if over is None else over.version


def has_lapsed(call: Call, now: float) -> bool:
    """Whether the question, or the refusal, is past its time."""
    waits = call.state in (State.AWAITING_APPROVAL, State.DENIED)
    return waits and call.terms is not None and call.terms.until is not None and now >= call.terms.until


def lapse(call: Call, *, actor: str, now: float) -> tuple[Call, Entry]:
    why = "nobody decided in time" if call.state is State.AWAITING_APPROVAL else "the refusal is over"
    held = _terms(call).reserved  # of an earlier send, whose answer may still come
    terms = None if held is None else Terms(reserved=held)
    return _decided(call, Event.EXPIRE, terms, LAPSED_FOR, actor=actor, now=now, why=why)


def approve(call: Call, *, actor: str, now: float, why: str) -> tuple[Call, Entry]:
    terms = replace(_terms(call), granted=True, until=None)
    return _decided(call, Event.APPROVE, terms, GRANTED_FOR, actor=actor, now=now, why=why)


def deny(call: Call, *, ttl: float, actor: str, now: float, why: str) -> tuple[Call, Entry]:
    terms = replace(_terms(call), until=now + ttl, said=why)
    return _decided(call, Event.DENY, terms, ttl, actor=actor, now=now, why=why)


def _decided(
    call: Call, event: Event, terms: Terms | None, kept_for: float, *, actor: str, now: float, why: str
) -> tuple[Call, Entry]:
    return advance(
        call,
        event,
        at=now,
        actor=actor,
        why=why,
        terms=terms,
        settled_at=now,
        expires_at=None if call.run else now + kept_for,
    )


def _terms(call: Call) -> Terms:
    assert call.terms is not None  # a call that waits says what for
    return call.terms
