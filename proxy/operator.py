"""A person's decisions on a recorded call: what came of one in doubt, whether one that waits may go out, and
that a settled one be forgotten.

Every decision carries a reason and, except from people at a keyboard, the version of the record that it was
made on. A decision on another version is refused with the present state: between two operators, or an
operator and a late answer, the first one wins and the other one is told. Nothing is retried here. If the
store fails meanwhile (`StoreUnavailable`), the decision may have landed: look at the call again.
"""

from __future__ import annotations

import re
from enum import StrEnum

from proxy.answers import BODILESS, Answers
from proxy.clock import Clock
from proxy.core import approval
from proxy.core import decide as core
from proxy.core.budget import Charge, adjustment
from proxy.core.headers import Headers
from proxy.core.intent import SETTLED_STATES, Answer, Call, Entry, Place, State, evolve
from proxy.errors import NotAwaiting, NotFound, NotInDoubt, NotSettled, StaleVersion
from proxy.store.base import Store

# The status of an answer that nobody knows; it is never given to anybody.
UNKNOWN_STATUS = 0
# With the rule out of reach: so long a refusal stands.
DENIED_FOR = 86400.0
# What would end a header, and let its value say another one.
_SPLITS = re.compile(rb"[\r\n\0]")


class Verdict(StrEnum):
    EXECUTED = "executed"
    NOT_EXECUTED = "not_executed"


async def resolve(
    store: Store,
    answers: Answers,
    clock: Clock,
    call_id: str,
    *,
    verdict: Verdict,
    reason: str,
    actor: str,
    version: int | None,
    status: int | None = None,
    headers: Headers = (),
    body: bytes | None = None,
    ttl: float | None = None,
) -> Call:
    """Settle a call in doubt.

    Executed, with a body: the next identical call gets it replayed (status 200 unless given). Executed
    without one: `answer-unavailable`, and never a second send; an empty body is b"", not None. Not
    executed: released, so the next identical call is sent. `ttl` is the rule's where the caller knows it;
    without it the decision stands until it is forgotten.
    """
    call = await _find(store, call_id, version)
    if call.state is not State.IN_DOUBT:
        raise NotInDoubt(f"The call is {call.state}: only one in doubt can be resolved.", call)
    answer = None
    if verdict is Verdict.EXECUTED:
        answer = await _answer(answers, status, headers, body, reason=reason, now=clock.now())
    elif status is not None or body is not None:
        raise ValueError("what was not executed has no answer")
    settlement = core.resolved(answer, why=f"{verdict}: {_said(reason)}", ttl=None if call.run else ttl)
    settled, entry = core.settle(call, settlement, actor=_name(actor), now=clock.now())
    charge = adjustment(call, settled)
    return await _write(store, evolve(settled, in_run=core.by_person(settled)), entry, charge)


async def approve(
    store: Store, clock: Clock, call_id: str, *, reason: str, actor: str, version: int | None
) -> Call:
    """Permit exactly the request that waits: made again, it goes out once."""
    call = await _waiting(store, clock, call_id, version)
    approved, entry = approval.approve(call, actor=_name(actor), now=clock.now(), why=_said(reason))
    return await _write(store, evolve(approved, in_run=core.by_person(approved)), entry)


async def deny(
    store: Store,
    clock: Clock,
    call_id: str,
    *,
    reason: str,
    actor: str,
    version: int | None,
    ttl: float | None = None,
) -> Call:
    """Refuse it: whoever makes the call is told so, with the reason, for as long as `ttl`."""
    call = await _waiting(store, clock, call_id, version)
    refused, entry = approval.deny(
        call, ttl=DENIED_FOR if ttl is None else ttl, actor=_name(actor), now=clock.now(), why=_said(reason)
    )
    return await _write(store, refused, entry)


async def _waiting(store: Store, clock: Clock, call_id: str, version: int | None) -> Call:
    call = await _find(store, call_id, version)
    if call.state is not State.AWAITING_APPROVAL:
        raise NotAwaiting(
            f"The call is {call.state}: only one that awaits approval can be approved or denied.", call
        )
    if approval.has_lapsed(call, clock.now()):
        raise NotAwaiting("The question has lapsed: when the call is made again, it is asked anew.", call)
    return call


async def forget(
    store: Store, clock: Clock, call_id: str, *, reason: str, actor: str, version: int | None
) -> Call:
    """Let a settled call go live again: the next identical call is sent as if it were the first.

    There is no delete in a store, and a deletion would lose the history and restart the fence. So the row
    stays and its time to live ends (core.decide.forget). Open calls are refused: an effect may be out there.
    """
    call = await _find(store, call_id, version)
    if call.state not in SETTLED_STATES:
        raise NotSettled(f"The call is {call.state}: only a settled one can be forgotten.", call)
    past, entry = core.forget(call, actor=_name(actor), now=clock.now(), why=_said(reason))
    return await _write(store, past, entry)


def check_in_doubt(call: Call, version: int | None) -> None:
    if version is not None and version != call.version:
        raise _stale(call)
    if call.state is not State.IN_DOUBT:
        raise NotInDoubt(f"The call is {call.state}: only one in doubt can be asked about.", call)


async def note_probe(store: Store, clock: Clock, call: Call, actor: str, found: str, reason: str) -> None:
    """A probe that settled nothing stands in the history too."""
    why = f"{found} ({_said(reason)})"
    entry = Entry(clock.now(), _name(actor), "probed", call.state, call.state, why, call.fence)
    await store.note(call.key, entry)


async def _find(store: Store, call_id: str, version: int | None) -> Call:
    try:
        key = bytes.fromhex(call_id)
    except ValueError:
        raise NotFound(f"{call_id!r} is not a call's id: 32 hexadecimal digits.") from None
    call = await store.get(key)
    if call is None:
        raise NotFound(f"There is no call {call_id}.")
    if version is not None and version != call.version:
        raise _stale(call)
    return call


async def _write(store: Store, call: Call, entry: Entry, charge: Charge | None = None) -> Call:
    swap = await store.swap(call, entry, expected=call.version - 1, charge=charge)
    if swap.won:
        return call
    if swap.present is None:
        raise NotFound(f"The call {call.id} is gone.")
    raise _stale(swap.present)


def _stale(present: Call) -> StaleVersion:
    return StaleVersion(
        f"The call has changed: it is {present.state} now, version {present.version}. Look at it again.",
        present,
    )


async def _answer(
    answers: Answers, status: int | None, headers: Headers, body: bytes | None, *, reason: str, now: float
) -> Answer:
    if status is not None and not 200 <= status <= 599:
        raise ValueError("a status lies between 200 and 599")
    if body is None:
        why = f"a person settled it without an answer ({_said(reason)})"
        known = UNKNOWN_STATUS if status is None else status
        return Answer(status=known, size=0, recorded_at=now, place=Place.NOWHERE, why_nowhere=why)
    known = 200 if status is None else status
    if any(_SPLITS.search(name + value) for name, value in headers):
        raise ValueError("a header holds no line break and no NUL")
    if body and known in BODILESS:
        raise ValueError(f"an answer of status {known} has no body")
    return await answers.given(known, headers, body, now)


def _said(reason: str) -> str:
    if not reason.strip():
        raise ValueError("a decision needs a reason")
    return reason.strip()


def _name(actor: str) -> str:
    return f"operator:{actor}"
