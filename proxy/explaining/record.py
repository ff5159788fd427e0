"""What is read from the record for an explanation: a call by the beginning of its id, its request, its fate.

Nothing is written, not even a count of replays.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from proxy.answers import Answers
from proxy.core import decide as core
from proxy.core.intent import Call, Place
from proxy.core.policy import Mode
from proxy.errors import ConfigurationError
from proxy.front.naming import Named
from proxy.observe import Everyone
from proxy.recorded import shown_body
from proxy.store.base import BlobLost, Query, Store
from proxy.store.codec import Codec, DamagedRecord, StoredRequest

SHORTEST_PREFIX = 6
# How far back the beginning of an id is looked for: a store has no index for it.
LOOKED_THROUGH, PAGE = 5000, 500


class NotComparable(Exception):
    """`--like` names no call that a request could be compared with: the option is wrong, not the request."""


async def find_call(store: Store, given: str, place: str) -> Call:
    """By its id, or by the beginning of one that is unique among the newest calls. `place`: where the store
    was found, for the message."""
    text = given.lower()
    if re.fullmatch(rf"[0-9a-f]{{{SHORTEST_PREFIX},32}}", text) is None:
        raise ConfigurationError(
            f"--like {given[:64]!r} is not a call's id: that has 32 hex digits, of which the first "
            f"{SHORTEST_PREFIX} or more are enough."
        )
    flag, other = ("--store", "database") if "://" in place else ("--state-dir", "directory")
    elsewhere = (
        f"`semel calls list {flag} {shlex.quote(place)}` shows those there are. If semel keeps its "
        f"record in another {other}, name that one with {flag} {'URL' if flag == '--store' else 'DIR'}."
    )
    if len(text) == 32:
        call = await store.get(bytes.fromhex(text))
        if call is None:
            raise NotComparable(f"--like: there is no call {text} in the record in {place}. {elsewhere}")
        return call
    found = await _beginning_with(store, text)
    if not found:
        raise NotComparable(
            f"--like: none of the newest {LOOKED_THROUGH} calls in the record in {place} begins with {text}; "
            f"an older one is found by its whole id. {elsewhere}"
        )
    if len(found) > 1:
        told = ", ".join(sorted(found)[:5])
        raise NotComparable(f"--like: more than one call begins with {text}: {told}. Give more of it.")
    return found.popitem()[1]


async def _beginning_with(store: Store, text: str) -> dict[str, Call]:
    found: dict[str, Call] = {}

    async def page(after: int | None) -> tuple[list[str], int | None]:
        listed = await store.find(Query(limit=PAGE, after=after))
        found.update((call.id, call) for call in listed.calls if call.id.startswith(text))
        return [*(call.id for call in listed.calls), *listed.unreadable], listed.next

    await ids_beginning_with(text, page)
    return found


async def ids_beginning_with(
    text: str, page: Callable[[int | None], Awaitable[tuple[list[str], int | None]]]
) -> set[str]:
    """Among the newest calls. `page` lists ids after a cursor, and says where the next page begins."""
    found: set[str] = set()
    looked, after = 0, None
    while looked < LOOKED_THROUGH:
        ids, after = await page(after)
        looked += len(ids)
        found |= {one for one in ids if one.startswith(text)}
        if after is None:
            break
    return found


class Recorded(NamedTuple):
    """A call, its request as it was recorded, and the body of that."""

    call: Call
    stored: StoredRequest
    body: bytes


async def read_request(store: Store, call: Call) -> tuple[StoredRequest, bytes]:
    """The request as it was recorded, and its body, from wherever it lies."""
    try:
        stored = Codec().open_request(call.request)
        return stored, await shown_body(store, call, stored)
    except (DamagedRecord, BlobLost) as error:
        raise NotComparable(
            f"--like: the request of call {call.id} cannot be read from the record: {error}."
        ) from None


async def decision_on(store: Store, named: Named, *, refresh: bool, now: float) -> tuple[core.Decision, bool]:
    """What the exchange would decide, and whether the owner it would wait for is dead."""
    identity, rule = named.identity, named.match.rule
    assert identity is not None
    row = await store.get(identity.key)
    decision = core.decide(row, identity, now=now, refresh=refresh and rule.mode is Mode.CACHE, rule=rule)
    if isinstance(decision, core.Replay):
        return await decision_on_answer(store, decision), False
    if isinstance(decision, core.Wait):
        return decision, await store.owner_is_dead(decision.call.owner)
    return decision, False


async def decision_on_answer(store: Store, replay: core.Replay) -> core.Decision:
    """What becomes of a replay: the answer may not be there any more."""
    call, answer = replay.call, replay.answer
    if answer.place is Place.NOWHERE:
        return core.answer_lost(call, answer.why_nowhere)
    answers = Answers(store=store, codec=Codec(), observer=Everyone(), inline_body=0)
    if await answers.produce(call, answer) is None:
        return core.answer_lost(call, "its answer is lost or damaged")
    return replay
