"""What is read from the record for an explanation: a call by the beginning of its id, its request, its fate.

Nothing is written, not even a count of replays.
"""

from __future__ import annotations

import re

from proxy.answers import Answers
from proxy.core import decide as core
from proxy.core.intent import Call
from proxy.core.policy import Mode
from proxy.errors import NotFound
from proxy.front.naming import Named
from proxy.observe import Everyone
from proxy.store.base import BlobLost, BlobRef, Query, Store
from proxy.store.codec import Codec, DamagedRecord, StoredRequest

SHORTEST_PREFIX = 6
# How far back the beginning of an id is looked for: a store has no index for it.
LOOKED_THROUGH, PAGE = 5000, 500


async def find_call(store: Store, given: str) -> Call:
    """By its id, or by the beginning of one that is unique among the newest calls."""
    text = given.lower()
    if re.fullmatch(rf"[0-9a-f]{{{SHORTEST_PREFIX},32}}", text) is None:
        raise NotFound(
            f"{given[:64]!r} is not a call's id: 32 hex digits, or the first {SHORTEST_PREFIX} or more."
        )
    if len(text) == 32:
        call = await store.get(bytes.fromhex(text))
        if call is None:
            raise NotFound(f"There is no call {text}: `semel calls list` shows those there are.")
        return call
    found = await _beginning_with(store, text)
    if not found:
        raise NotFound(
            f"None of the newest {LOOKED_THROUGH} calls begins with {text}: `semel calls list` shows them, "
            "and an older one is found by its whole id."
        )
    if len(found) > 1:
        raise NotFound(
            f"More than one call begins with {text}: {', '.join(sorted(found)[:5])}. Give more of it."
        )
    return found.popitem()[1]


async def _beginning_with(store: Store, text: str) -> dict[str, Call]:
    found: dict[str, Call] = {}
    after: int | None = None
    for _ in range(LOOKED_THROUGH // PAGE):
        page = await store.find(Query(limit=PAGE, after=after))
        found |= {call.id: call for call in page.calls if call.id.startswith(text)}
        after = page.next
        if after is None:
            break
    return found


async def read_request(store: Store, call: Call) -> tuple[StoredRequest, bytes]:
    """The request as it was recorded, and its body, from wherever it lies."""
    try:
        stored = Codec().open_request(call.request)
        if not call.request_blob:
            return stored, stored.body
        # What goes upstream is always framed by its length.
        size = next(int(value) for name, value in stored.headers if name.lower() == b"content-length")
        chunks = [chunk async for chunk in store.read_blob(BlobRef(call.request_blob, size))]
    except (DamagedRecord, BlobLost) as error:
        raise NotFound(f"The request of call {call.id} cannot be read from the record: {error}.") from None
    return stored, b"".join(chunks)


async def decision_on(store: Store, named: Named, *, refresh: bool, now: float) -> tuple[core.Decision, bool]:
    """What the exchange would decide, and whether the owner it would wait for is dead."""
    identity, rule = named.identity, named.match.rule
    assert identity is not None
    row = await store.get(identity.key)
    decision = core.decide(row, identity, now=now, refresh=refresh and rule.mode is Mode.CACHE)
    if isinstance(decision, core.Replay):
        answers = Answers(store=store, codec=Codec(), observer=Everyone(), inline_body=0)
        if await answers.produce(decision.call, decision.answer) is None:
            return core.answer_lost(decision.call, "its answer is lost or damaged"), False
    if isinstance(decision, core.Wait):
        return decision, await store.owner_is_dead(decision.call.owner)
    return decision, False
