"""Answers in and out of the record: where a body is put, and how it is given again.

Small bodies lie in the row, large ones in blobs that are durable before the row that names them, shared
ones in the cache. What cannot be produced is never replaced by something else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from functools import partial
from typing import NamedTuple

from proxy.core.headers import SEMEL_PREFIX, end_to_end, without_semel
from proxy.core.intent import Answer, Call, Place, State, answer_in_row
from proxy.core.policy import Mode, Rule
from proxy.observe import Observer
from proxy.store.base import BlobLost, BlobRef, Store
from proxy.store.codec import Codec, DamagedRecord
from proxy.stream import Capture, Whole
from proxy.upstream.base import Headers

# A shared answer larger than this is not worth the cache's room; it is fetched again.
MAX_CACHED = 16 * 1024 * 1024
# How many calls are kept at hand, how large each may be, and all of them together: enough for an agent that
# comes back after some thousand steps.
HOT, HOT_SIZE, HOT_BYTES = 4096, 8 * 1024, 16 * 1024 * 1024
# Up to here a blob is read and verified before the first byte is handed on; beyond, before the last.
STREAMED_FROM = 8 * 1024 * 1024
BODILESS = frozenset({204, 304})
# So many sealed heads are remembered, of up to this size each.
HEADS, HEAD_SIZE = 256, 2048
# A session of MCP's is as good as a credential, and whoever is given it again has its own.
_ONE_REPLYS = frozenset({b"age", b"mcp-session-id"})
_ONE_CALLERS = _ONE_REPLYS | {b"set-cookie"}
_NOT_TAKEN_OVER = frozenset({b"content-length", b"set-cookie", b"age"})


class Produced(NamedTuple):
    status: int
    headers: Headers
    body: bytes | AsyncIterator[bytes]


class AtHand(NamedTuple):
    """A call with a small answer, given lately or recorded in a run. It is good while its row stands:
    certainly so while the store's stamp is the one under which that was last read (None: not yet)."""

    call: Call
    produced: Produced | None  # None: not opened yet
    stamp: int | None
    size: int


class Answers:
    def __init__(self, *, store: Store, codec: Codec, observer: Observer, inline_body: int) -> None:
        self._store = store
        self._codec = codec
        self._observer = observer
        self.inline_body = inline_body
        self._hot: OrderedDict[bytes, AtHand] = OrderedDict()
        self._hot_bytes = 0
        self._heads: dict[Headers, bytes] = {}  # of answers outside runs, sealed: most have come before
        # Rows whose blob was found damaged while it was given: key, birth, version. Not the blob itself: a
        # later row of the same content has put it again.
        self._damaged: set[tuple[bytes, float, int]] = set()

    def is_at_hand(self, key: bytes) -> bool:
        return key in self._hot

    def at_hand(self, key: bytes) -> Call | None:
        """For whoever knows which version the row has by now."""
        hot = self._hot.get(key)
        return None if hot is None else hot.call

    def recorded(self, call: Call) -> None:
        """In a run: when its agent comes back, this is asked for again."""
        self._at_hand_from(call, None)

    def stands_while(self, call: Call) -> int | None:
        """The store's stamp under which this very row was read: while it is the present one, the row stands.
        None: that cannot be said."""
        hot = self._hot.get(call.key)
        return hot.stamp if hot is not None and hot.call is call else None

    async def row(self, key: bytes) -> Call | None:
        """What the store has. For an answer at hand it need only say whether its row still stands, and not
        even that while nothing settled has changed."""
        hot, stamp = self._hot.get(key), self._store.settled_stamp()
        if hot is not None and stamp is not None and stamp == hot.stamp:
            return hot.call
        call = await self._store.get(key, None if hot is None else hot.call)
        if hot is not None and call is hot.call:
            if self._hot.get(key) is hot:
                self._hot[key] = hot._replace(stamp=stamp)
        elif call is not None:
            self._at_hand_from(call, stamp)
        return call

    def in_row(self, call: Call, whole: Whole, now: float) -> Answer:
        """An answer that is short, and shared by nobody through the cache."""
        status, headers, body = whole
        head = self._heads.get(headers) if not call.run else None
        if head is None:
            head = self._codec.seal_head(_kept_of(headers, in_run=bool(call.run)))
            if not call.run and sum([len(name) + len(value) for name, value in headers]) <= HEAD_SIZE:
                if len(self._heads) >= HEADS:
                    self._heads.clear()
                self._heads[headers] = head
        return answer_in_row(status, now, head, self._codec.seal_body(body), size=len(body))

    async def place(self, call: Call, capture: Capture, rule: Rule, now: float) -> Answer:
        """The answer, its body put where it belongs. Blobs are durable before the row that names them."""
        kept, size = capture.kept, capture.received
        make = partial(Answer, status=capture.status, size=size, recorded_at=now)
        in_run = bool(call.run)
        headers = _kept_of(capture.headers, in_run=in_run)
        if kept is None:
            why = capture.why_unkept or f"its answer of {size} bytes could not be kept"
            return make(place=Place.NOWHERE, why_nowhere=why)
        if rule.mode is Mode.CACHE and not in_run:  # what a run was given is kept with the run
            if size > MAX_CACHED:
                return make(place=Place.NOWHERE, why_nowhere="its answer is too long for the shared cache")
            value = self._codec.seal_cached(capture.status, headers, kept.whole())
            await self._store.cache_put(_cache_key(call), value, rule.ttl)
            return make(place=Place.CACHE)
        if size <= self.inline_body:
            return self.in_row(call, Whole(capture.status, capture.headers, kept.whole()), now)
        ref = await self._store.put_blob(kept.chunks())
        return make(place=Place.BLOB, head=self._codec.seal_head(headers), blob=ref.digest)

    async def given(self, status: int, headers: Headers, body: bytes, now: float) -> Answer:
        """An answer that did not come by a send of the call itself: from a probe, or from a person. Framing
        follows the body, and a session belongs to whoever asked first."""
        kept = tuple(
            pair for pair in without_semel(end_to_end(headers)) if pair[0].lower() not in _NOT_TAKEN_OVER
        )
        if status not in BODILESS:
            kept += ((b"Content-Length", b"%d" % len(body)),)
        make = partial(
            Answer, status=status, size=len(body), recorded_at=now, head=self._codec.seal_head(kept)
        )
        if len(body) > self.inline_body:
            return make(place=Place.BLOB, blob=(await self._store.put_blob([body])).digest)
        return make(place=Place.INLINE, body=self._codec.seal_body(body))

    async def produce(self, call: Call, answer: Answer) -> Produced | None:
        """The recorded answer, ready to be given; None where it is lost or damaged."""
        try:
            if answer.place is Place.INLINE:
                return self._inline(call, answer)
            if answer.place is Place.CACHE:
                value = await self._store.cache_get(_cache_key(call))
                return None if value is None else Produced(*self._codec.open_cached(value))
            if _row(call) in self._damaged:
                return None
            headers = self._codec.open_head(answer.head)
            chunks = self._store.read_blob(BlobRef(answer.blob, answer.size))
            if answer.size > STREAMED_FROM:
                first = await anext(chunks)  # a file that is missing or has another size is found here
                return Produced(answer.status, headers, self._watched(call, first, chunks))
            return Produced(answer.status, headers, b"".join([chunk async for chunk in chunks]))
        except (BlobLost, DamagedRecord) as error:
            self._observer.noted("answer-lost", call=call.id, error=str(error))
            return None

    async def _watched(self, call: Call, first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Damage inside a long body shows only at its end. This caller is cut off; the next is told."""
        yield first
        try:
            async for chunk in rest:
                yield chunk
        except BlobLost as error:
            self._damaged.add(_row(call))
            self._observer.noted("answer-lost", call=call.id, error=str(error))
            raise

    def _at_hand_from(self, call: Call, stamp: int | None) -> None:
        """Rows in other states change without the stamp."""
        answer = call.answer
        if answer is not None and answer.place is Place.INLINE and call.state is State.DONE:
            self._keep(call, answer, None, stamp)

    def _inline(self, call: Call, answer: Answer) -> Produced:
        hot = self._hot.get(call.key)
        if hot is not None and hot.call is call and hot.produced is not None:
            self._hot.move_to_end(call.key)
            return hot.produced
        produced = Produced(
            answer.status, self._codec.open_head(answer.head), self._codec.open_body(answer.body)
        )
        if call.state is State.DONE:  # others change without the stamp
            same = hot is not None and hot.call is call
            self._keep(call, answer, produced, hot.stamp if hot is not None and same else None)
        return produced

    def _keep(self, call: Call, answer: Answer, produced: Produced | None, stamp: int | None) -> None:
        size = len(answer.head) + len(answer.body) + len(call.request)
        if size > HOT_SIZE:
            return
        before = self._hot.pop(call.key, None)
        self._hot[call.key] = AtHand(call, produced, stamp, size)
        self._hot_bytes += size - (before.size if before is not None else 0)
        while len(self._hot) > HOT or self._hot_bytes > HOT_BYTES:
            self._hot_bytes -= self._hot.popitem(last=False)[1].size


def _kept_of(headers: Headers, *, in_run: bool) -> Headers:
    """Outside runs an answer may be given to somebody who did not ask first: no session of another's. Age
    and Semel-* are true for one reply only; a replay has its own."""
    dropped = _ONE_REPLYS if in_run else _ONE_CALLERS
    return tuple(
        [
            pair
            for pair in headers
            if (name := pair[0].lower()) not in dropped and not name.startswith(SEMEL_PREFIX)
        ]
    )


def _row(call: Call) -> tuple[bytes, float, int]:
    return call.key, call.born, call.version


def _cache_key(call: Call) -> bytes:
    """With the fence: a late owner's answer must not stand where a newer claim's row points to."""
    return call.key + call.fence.to_bytes(8)
