"""A person's decisions on a recorded call: what came of one in doubt, and that a settled one be forgotten.

Every decision carries a reason and, except from people at a keyboard, the version of the record that it was
made on. A decision on another version is refused with the present state: between two operators, or an
operator and a late answer, the first one wins and the other one is told. Nothing is retried here. If the
store fails meanwhile (`StoreUnavailable`), the decision may have landed: look at the call again.
"""

from __future__ import annotations

import re
from enum import StrEnum

from proxy.clock import Clock
from proxy.core import decide as core
from proxy.core.headers import Headers, end_to_end, without_semel
from proxy.core.intent import SETTLED_STATES, Answer, Call, Entry, Place, State, evolve
from proxy.errors import NotFound, NotInDoubt, NotSettled, StaleVersion
from proxy.store.base import Store
from proxy.store.codec import Codec

# As for answers of an upstream: what is larger goes into a blob.
INLINE_BODY = 64 * 1024
# The status of an answer that nobody knows; it is never given to anybody.
UNKNOWN_STATUS = 0
# Framing follows the body that was given, and a session belongs to whoever asked first.
_NOT_TAKEN_OVER = frozenset({b"content-length", b"set-cookie"})
_BODILESS = frozenset({204, 304})
# What would end a header, and let its value say another one.
_SPLITS = re.compile(rb"[\r\n\0]")


class Verdict(StrEnum):
    EXECUTED = "executed"
    NOT_EXECUTED = "not_executed"


async def resolve(
    store: Store,
    codec: Codec,
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
        answer = await _answer(store, codec, status, headers, body, reason=reason, now=clock.now())
    elif status is not None or body is not None:
        raise ValueError("what was not executed has no answer")
    settlement = core.resolved(answer, why=f"{verdict}: {_said(reason)}", ttl=None if call.run else ttl)
    settled, entry = core.settle(call, settlement, actor=_name(actor), now=clock.now())
    return await _write(store, evolve(settled, in_run=core.by_person(settled)), entry)


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


async def _write(store: Store, call: Call, entry: Entry) -> Call:
    swap = await store.swap(call, entry, expected=call.version - 1)
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
    store: Store,
    codec: Codec,
    status: int | None,
    headers: Headers,
    body: bytes | None,
    *,
    reason: str,
    now: float,
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
    if body and known in _BODILESS:
        raise ValueError(f"an answer of status {known} has no body")
    kept = tuple(
        pair for pair in without_semel(end_to_end(headers)) if pair[0].lower() not in _NOT_TAKEN_OVER
    )
    if known not in _BODILESS:
        kept += ((b"Content-Length", b"%d" % len(body)),)
    head = codec.seal_head(kept)
    if len(body) > INLINE_BODY:
        blob = (await store.put_blob([body])).digest
        return Answer(status=known, size=len(body), recorded_at=now, place=Place.BLOB, head=head, blob=blob)
    sealed = codec.seal_body(body)
    return Answer(status=known, size=len(body), recorded_at=now, place=Place.INLINE, head=head, body=sealed)


def _said(reason: str) -> str:
    if not reason.strip():
        raise ValueError("a decision needs a reason")
    return reason.strip()


def _name(actor: str) -> str:
    return f"operator:{actor}"
