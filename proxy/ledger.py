"""The exchange's hand on the store: claims and settlements that survive a store in trouble.

A write that failed may have landed. So after every failure the row is read again, and only the fence
says whose it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from proxy.clock import Clock
from proxy.core import decide as core
from proxy.core.identity import Identity
from proxy.core.intent import Answer, Call, Entry, Event, Place, State
from proxy.core.policy import Mode, Rule
from proxy.errors import StoreUnavailable
from proxy.observe import Observer
from proxy.spool import Spool
from proxy.store.base import BlobLost, BlobRef, Store, Swap
from proxy.store.codec import Codec, DamagedRecord, StoredRequest
from proxy.stream import Capture
from proxy.upstream.base import Headers

# Waiting for a store to come back: soon at first, then patiently.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
# A shared answer larger than this is not worth the cache's room; it is fetched again.
MAX_CACHED = 64 * 1024 * 1024
# How many answers are kept at hand, and up to which size: a few megabytes in all.
HOT, HOT_SIZE = 512, 8 * 1024
# Up to here a blob is read and verified before the first byte is handed on; beyond, before the last.
STREAMED_FROM = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What is about to be sent, as it will be written down."""

    identity: Identity
    rule: Rule
    safe: bool
    tenant: str
    upstream: str
    tool: str
    occurrence: int
    method: str
    target: bytes
    headers: Headers  # without credentials
    body: Spool | None

    def stored(self, inline: bytes) -> StoredRequest:
        """What a resend needs; a large body is a blob instead."""
        return StoredRequest(
            method=self.method,
            target=self.target,
            headers=self.headers,
            body=inline,
            arguments=self.identity.arguments,
        )


@dataclass(frozen=True, slots=True)
class Claimed:
    call: Call


@dataclass(frozen=True, slots=True)
class RaceLost:
    """Somebody else claimed it first."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """The store failed while writing: the claim may stand or not. Nothing was sent."""

    call: Call | None
    error: StoreUnavailable


class Produced(NamedTuple):
    status: int
    headers: Headers
    body: bytes | AsyncIterator[bytes]


ClaimResult: TypeAlias = Claimed | RaceLost | Uncertain


class Ledger:
    def __init__(
        self, *, store: Store, codec: Codec, clock: Clock, observer: Observer, inline_body: int
    ) -> None:
        self._store = store
        self._codec = codec
        self._clock = clock
        self._observer = observer
        self._inline_body = inline_body
        self._actor = f"proxy:{store.owner}"
        # Small answers given lately, each with the row it came from; good only while that row stands.
        self._hot: OrderedDict[bytes, tuple[Call, Produced]] = OrderedDict()

    async def get(self, key: bytes) -> Call | None:
        began = self._clock.monotonic()
        hot = self._hot.get(key)
        call = await self._store.get(key, None if hot is None else hot[0])
        self._observer.store_took("get", self._clock.monotonic() - began)
        return call

    async def _swap(self, call: Call, entry: Entry, *, expected: int) -> Swap:
        began = self._clock.monotonic()
        swap = await self._store.swap(call, entry, expected=expected)
        self._observer.store_took("swap", self._clock.monotonic() - began)
        return swap

    # ---- before the send ----

    async def claim(self, intent: Intent, over: Call | None) -> ClaimResult:
        call: Call | None = None
        try:
            fresh = await self._fresh(intent)
            call, entry, expected = core.claim(fresh, over, actor=self._actor, now=fresh.created_at)
            swap = await self._swap(call, entry, expected=expected)
        except StoreUnavailable as error:
            return Uncertain(call, error)
        return Claimed(call) if swap.won else RaceLost()

    async def _fresh(self, intent: Intent) -> Call:
        now = self._clock.now()
        blob, inline = "", b""
        if intent.body is not None:
            if intent.body.size > self._inline_body:
                blob = (await self._store.put_blob(intent.body.chunks())).digest
            else:
                inline = intent.body.whole()
        return Call(
            key=intent.identity.key,
            fingerprint=intent.identity.fingerprint,
            named_by=intent.identity.named_by,
            tenant=intent.tenant,
            occurrence=intent.occurrence,
            upstream=intent.upstream,
            rule=intent.rule.name,
            tool=intent.tool,
            safe=intent.safe,
            state=State.PENDING,
            version=1,
            fence=1,
            owner=self._store.owner,
            created_at=now,
            sent_at=now,
            sends=1,
            request=self._codec.seal_request(intent.stored(inline)),
            request_blob=blob,
        )

    async def withdraw(self, call: Call) -> None:
        """Take back a claim that may or may not stand. Nothing was sent for it."""
        settlement = core.Settlement(event=Event.NOT_SENT, why="the store failed while the claim was written")

        async def attempt() -> None:
            present = await self.get(call.key)
            if present is None or present.state is not State.PENDING:
                return  # it never stood, an earlier try took it back, or recovery has it
            if present.fence == call.fence and present.owner == call.owner:
                await self._move(present, settlement)

        await self._until_done(attempt, "withdraw", call.id, lambda error: None)

    # ---- after the send ----

    async def settle(
        self,
        call: Call,
        settlement: core.Settlement,
        capture: Capture | None,
        rule: Rule,
        on_trouble: Callable[[StoreUnavailable], None],
    ) -> Call | None:
        """The settled row once it is durable; None where another owner has the call by now. Waits out a
        store in trouble; `on_trouble` hears of every failure."""
        answer: Answer | None = None

        async def attempt() -> Call | None:
            nonlocal answer
            if capture is not None and answer is None:
                answer = await self._place(call, capture, rule)
            return await self._settle_once(call, settlement, answer)

        return await self._until_done(attempt, "settle", call.id, on_trouble)

    async def _settle_once(
        self, call: Call, settlement: core.Settlement, answer: Answer | None
    ) -> Call | None:
        expected_by_us = call
        while True:
            settled, entry = core.settle(
                expected_by_us, settlement, actor=self._actor, now=self._clock.now(), answer=answer
            )
            swap = await self._swap(settled, entry, expected=expected_by_us.version)
            if swap.won:
                return settled
            present = swap.present
            if present is not None and _is_ours(present, settled):
                return present  # an earlier try had landed after all
            if present is None or not core.can_settle(present, call.fence, settlement.event):
                await self._keep_as_evidence(call, settlement, present)
                return None
            expected_by_us = present

    async def _keep_as_evidence(self, call: Call, settlement: core.Settlement, present: Call | None) -> None:
        state = present.state if present is not None else None
        entry = Entry(
            at=self._clock.now(),
            actor=self._actor,
            event="evidence",
            before=state,
            after=state,
            why=f"late: {settlement.event}, {settlement.why}",
            fence=call.fence,
        )
        await self._store.note(call.key, entry)
        self._observer.noted("late-outcome", call=call.id, outcome=str(settlement.event), state=str(state))

    async def _place(self, call: Call, capture: Capture, rule: Rule) -> Answer:
        """The answer, its body put where it belongs. Blobs are durable before the row that names them."""
        kept, size, now = capture.kept, capture.received, self._clock.now()
        headers = tuple(pair for pair in capture.headers if _is_kept(pair[0].lower()))
        head = self._codec.seal_head(headers)
        if kept is None:
            why = f"its answer of {size} bytes was too long to keep"
            return Answer(
                status=capture.status,
                size=size,
                recorded_at=now,
                place=Place.NOWHERE,
                head=head,
                why_nowhere=why,
            )
        if rule.mode is Mode.CACHE:
            if size > MAX_CACHED:
                why = "its answer is too long for the shared cache"
                return Answer(
                    status=capture.status, size=size, recorded_at=now, place=Place.NOWHERE, why_nowhere=why
                )
            value = self._codec.seal_cached(capture.status, headers, kept.whole())
            await self._store.cache_put(_cache_key(call), value, rule.ttl)
            return Answer(status=capture.status, size=size, recorded_at=now, place=Place.CACHE)
        if size > self._inline_body:
            ref = await self._store.put_blob(kept.chunks())
            return Answer(
                status=capture.status,
                size=size,
                recorded_at=now,
                place=Place.BLOB,
                head=head,
                blob=ref.digest,
            )
        body = self._codec.seal_body(kept.whole())
        return Answer(
            status=capture.status, size=size, recorded_at=now, place=Place.INLINE, head=head, body=body
        )

    # ---- from the record ----

    async def produce(self, call: Call, answer: Answer) -> Produced | None:
        """The recorded answer, ready to be given; None where it is lost or damaged."""
        try:
            if answer.place is Place.INLINE:
                return self._inline(call, answer)
            if answer.place is Place.CACHE:
                value = await self._store.cache_get(_cache_key(call))
                return None if value is None else Produced(*self._codec.open_cached(value))
            headers = self._codec.open_head(answer.head)
            chunks = self._store.read_blob(BlobRef(answer.blob, answer.size))
            if answer.size > STREAMED_FROM:
                first = await anext(chunks)  # a file that is missing or has another size is found here
                return Produced(answer.status, headers, _chain(first, chunks))
            return Produced(answer.status, headers, b"".join([chunk async for chunk in chunks]))
        except (BlobLost, DamagedRecord) as error:
            self._observer.noted("answer-lost", call=call.id, error=str(error))
            return None

    def _inline(self, call: Call, answer: Answer) -> Produced:
        hot = self._hot.get(call.key)
        if hot is not None and hot[0] is call:
            self._hot.move_to_end(call.key)
            return hot[1]
        produced = Produced(
            answer.status, self._codec.open_head(answer.head), self._codec.open_body(answer.body)
        )
        if answer.size <= HOT_SIZE:
            self._hot[call.key] = (call, produced)
            if len(self._hot) > HOT:
                self._hot.popitem(last=False)
        return produced

    # ---- what others left ----

    async def recover(self, call: Call) -> Call | None:
        """Settle a dead owner's pending call. None: somebody else did, or its answer came after all."""
        return await self._move(call, core.orphaned(call), actor=f"recovery:{self._store.owner}")

    async def _move(self, call: Call, settlement: core.Settlement, actor: str | None = None) -> Call | None:
        settled, entry = core.settle(call, settlement, actor=actor or self._actor, now=self._clock.now())
        swap = await self._swap(settled, entry, expected=call.version)
        return settled if swap.won else None

    async def _until_done(
        self,
        attempt: Callable[[], Awaitable[Call | None]] | Callable[[], Awaitable[None]],
        what: str,
        call_id: str,
        on_trouble: Callable[[StoreUnavailable], None],
    ) -> Call | None:
        pause = FIRST_PAUSE
        while True:
            try:
                return await attempt()
            except StoreUnavailable as error:
                self._observer.noted("store-trouble", doing=what, call=call_id, error=error.detail)
                on_trouble(error)
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _is_kept(name: bytes) -> bool:
    """Outside runs an answer may be given to somebody who did not ask first: no session of another's. Age
    and Semel-* are true for one reply only; a replay has its own."""
    return name not in (b"set-cookie", b"age") and not name.startswith(b"semel-")


def _cache_key(call: Call) -> bytes:
    """With the fence: a late owner's answer must not stand where a newer claim's row points to."""
    return call.key + call.fence.to_bytes(8)


def _is_ours(present: Call, settled: Call) -> bool:
    return (
        present.fence == settled.fence
        and present.version == settled.version
        and present.state is settled.state
        and present.answer == settled.answer
        and present.doubt == settled.doubt  # recovery may have put it in doubt too, knowing less than we do
    )


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk
