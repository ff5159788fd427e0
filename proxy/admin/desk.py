"""What an operator can ask and decide, and how it is done on a store.

Documents are those of schemas.py. Whoever asks gets the same whether the desk stands in this process, over
a store opened beside a running proxy, or behind that proxy's HTTP API (remote.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from proxy import operator
from proxy.admin import views
from proxy.admin.decision import Decision, Resolution, check, content_type
from proxy.admin.probing import Probes
from proxy.admin.rules import Lifetimes, Segments, Ways, no_segments, no_ways
from proxy.admin.run_desk import LocalRunDesk, RunDesk
from proxy.admin.run_export import Exporter
from proxy.admin.schemas import BODILESS
from proxy.admin.views import Json
from proxy.answers import Answers
from proxy.clock import Clock
from proxy.core.doubt import Unclear
from proxy.core.headers import Headers
from proxy.core.intent import Call, Place, State
from proxy.errors import AnswerUnavailable, BadRequest, NotFound, StillInDoubt, StoreUnavailable, Unreadable
from proxy.observe import Deaf
from proxy.recorded import lies_apart, shown_body, size_apart
from proxy.store.base import BlobLost, Query, Store
from proxy.store.codec import Codec, DamagedRecord

T = TypeVar("T")

# A page ends with the portion that makes it as large as this; arguments of 64 KiB make a portion of 1 MiB.
LARGEST_PAGE_BYTES = 4 * 1024 * 1024
PORTION = 16
# As for answers of an upstream: what is larger goes into a blob.
INLINE_BODY = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The recorded answer's body as it was encoded. Raises BlobLost in place of a damaged end."""

    content_type: str = ""
    content_encoding: str = ""
    size: int
    content: bytes | AsyncIterator[bytes]


class Desk(Protocol):
    """Raises the errors of proxy/errors.py: a DecisionRefused, or another Refusal."""

    @property
    def runs(self) -> RunDesk: ...

    async def calls(self, query: Query) -> Json: ...

    async def call(self, call_id: str) -> Json: ...

    async def body(self, call_id: str) -> Body: ...

    async def resolve(self, call_id: str, resolution: Resolution) -> Json:
        """The call after it, as `call` gives it."""

    async def forget(self, call_id: str, decision: Decision) -> Json: ...

    async def approve(self, call_id: str, decision: Decision) -> Json: ...

    async def deny(self, call_id: str, decision: Decision) -> Json: ...

    async def probe(self, call_id: str, decision: Decision) -> Json:
        """Raises StillInDoubt where the upstream's answer settles nothing."""

    async def stats(self) -> Json: ...


class LocalDesk:
    """`serving`: this process is a proxy, and its own figures mean something. `tenant`: whose calls can be
    seen from here; another's is as good as not there. Empty: everybody's. `retention`: of runs.
    `decided`: told after every decision, whether it is known to be written or not."""

    def __init__(
        self,
        *,
        store: Store,
        codec: Codec,
        clock: Clock,
        lifetimes: Lifetimes,
        segments: Segments = no_segments,
        serving: bool = True,
        tenant: str = "",
        retention: float | None = None,
        decided: Callable[[], None] = lambda: None,
        probe: Probes | None = None,
        ways: Ways = no_ways,
    ) -> None:
        self._probe = probe
        self._ways = ways
        self._store = store
        self._codec = codec
        self._clock = clock
        self._lifetimes = lifetimes
        self._segments = segments
        self._serving = serving
        self._tenant = tenant
        self._retention = retention
        self._told = decided
        self._answers = Answers(store=store, codec=codec, observer=Deaf(), inline_body=INLINE_BODY)

    def of(self, tenant: str) -> LocalDesk:
        return LocalDesk(
            store=self._store,
            codec=self._codec,
            clock=self._clock,
            lifetimes=self._lifetimes,
            segments=self._segments,
            serving=self._serving,
            tenant=tenant,
            retention=self._retention,
            decided=self._told,
            probe=self._probe,
            ways=self._ways,
        )

    @property
    def runs(self) -> RunDesk:
        return LocalRunDesk(
            store=self._store,
            clock=self._clock,
            tenant=self._tenant,
            retention=self._retention,
            decided=self._told,
            export=Exporter(
                store=self._store, codec=self._codec, answers=self._answers, segments=self._segments
            ),
        )

    async def calls(self, query: Query) -> Json:
        """Read in portions, so that a page can end where it is large enough."""
        whole: Json = {"calls": [], "next": query.after, "unreadable": []}
        left, size = query.limit, 0
        while left > 0 and size < LARGEST_PAGE_BYTES:
            wanted = replace(query, tenant=self._tenant, limit=min(left, PORTION), after=whole["next"])
            part = await self._portion(wanted)
            size += sum(len(json.dumps(call)) for call in part["calls"])
            left -= wanted.limit
            whole["calls"] += part["calls"]
            whole["unreadable"] += part["unreadable"]
            whole["next"] = part["next"]
            if part["next"] is None:
                break
        return whole

    async def _portion(self, query: Query) -> Json:
        page = await self._store.find(query)
        replays = await asyncio.gather(*(self._store.replays(call.key) for call in page.calls))
        return views.page(page, replays, self._codec)

    async def call(self, call_id: str) -> Json:
        call = await self._find(call_id)
        replays, history = await asyncio.gather(self._store.replays(call.key), self._store.history(call.key))
        segments = partial(self._segments, call.upstream, call.rule)
        body, way = await self._kept_apart(call), self._ways(call.upstream, call.rule)
        return views.detail(call, replays, history, self._codec, segments, body, way)

    async def _kept_apart(self, call: Call) -> bytes:
        """The body of a request that does not lie in its row; empty where it cannot be shown."""
        try:
            stored = self._codec.open_request(call.request)
            if not lies_apart(call, stored) or size_apart(stored) > views.LONGEST_BODY:
                return b""
            return await shown_body(self._store, call, stored)
        except (BlobLost, DamagedRecord):
            return b""

    async def body(self, call_id: str) -> Body:
        call = await self._find(call_id)
        if call.answer is None:
            raise NotFound(f"The call is {call.state}: it has no answer.", call)
        if call.answer.place is Place.NOWHERE:
            raise AnswerUnavailable(
                f"The answer is not there: {call.answer.why_nowhere}.", call=call.id, state=call.state
            )
        produced = await self._answers.produce(call, call.answer)
        if produced is None:
            raise AnswerUnavailable(
                "The answer is lost or damaged; the log of the proxy may say why.",
                call=call.id,
                state=call.state,
            )
        return Body(
            content_type=_header(produced.headers, b"content-type"),
            content_encoding=_header(produced.headers, b"content-encoding"),
            size=call.answer.size,
            content=produced.body,
        )

    async def resolve(self, call_id: str, resolution: Resolution) -> Json:
        check(resolution)
        call = await self._find(call_id)
        # Only where it will be used: whoever looks it up may have something to say about it.
        ttl = self._lifetimes(call.upstream, call.rule) if call.state is State.IN_DOUBT else None
        status, body = resolution.status, resolution.body
        if body is None and status in BODILESS:
            body = b""  # the status says that there is none: the answer is complete
        await self._decided(
            operator.resolve(
                self._store,
                self._answers,
                self._clock,
                call_id,
                verdict=resolution.verdict,
                reason=resolution.reason,
                actor=resolution.by,
                version=resolution.version,
                status=status,
                headers=content_type(resolution.content_type, body),
                body=body,
                ttl=ttl,
            )
        )
        return await _sure(self.call(call_id))

    async def forget(self, call_id: str, decision: Decision) -> Json:
        return await self._decide(operator.forget, call_id, decision)

    async def approve(self, call_id: str, decision: Decision) -> Json:
        return await self._decide(operator.approve, call_id, decision)

    async def deny(self, call_id: str, decision: Decision) -> Json:
        call = await self._find(call_id)
        ttl = self._lifetimes(call.upstream, call.rule) if call.state is State.AWAITING_APPROVAL else None
        return await self._decide(partial(operator.deny, ttl=ttl), call_id, decision)

    async def probe(self, call_id: str, decision: Decision) -> Json:
        check(decision)
        call = await self._find(call_id)
        operator.check_in_doubt(call, decision.version)
        if self._probe is None:
            raise BadRequest("A probe asks the upstream, which a running proxy does: use --proxy URL.")
        found = await self._probe(call, f"operator:{decision.by}", decision.reason)
        self._told()
        if isinstance(found, Unclear):
            await operator.note_probe(self._store, self._clock, call, decision.by, found.why, decision.reason)
            raise StillInDoubt(f"The call stays in doubt: {found.why}.", await self._find(call_id))
        return await _sure(self.call(call_id))

    async def _decide(self, decide: Callable[..., Awaitable[Call]], call_id: str, decision: Decision) -> Json:
        check(decision)
        await self._find(call_id)
        await self._decided(
            decide(
                self._store,
                self._clock,
                call_id,
                reason=decision.reason,
                actor=decision.by,
                version=decision.version,
            )
        )
        return await _sure(self.call(call_id))

    async def stats(self) -> Json:
        census = await self._store.census()
        evictions = self._store.evictions() if self._serving else None
        return views.stats(census, self._store.name, self._clock.now(), evictions)

    async def _decided(self, deciding: Awaitable[object]) -> None:
        try:
            await _sure(deciding)
        finally:
            self._told()

    async def _find(self, call_id: str) -> Call:
        key = key_of(call_id)
        try:
            call = await self._store.get(key)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, DamagedRecord | UnicodeDecodeError):
                raise Unreadable(
                    f"The call is there and cannot be read: {error.__cause__}. Nothing is sent under its "
                    "name, and nothing can be decided here.",
                    call=call_id,
                ) from error
            raise
        if call is None or (self._tenant and call.tenant != self._tenant):
            raise NotFound(f"There is no call {call_id}.")
        return call


def key_of(call_id: str) -> bytes:
    if len(call_id) != 32 or not set(call_id) <= set("0123456789abcdef"):
        raise NotFound(f"{call_id[:64]!r} is not a call's id: 32 lower-case hexadecimal digits.")
    return bytes.fromhex(call_id)


async def _sure(deciding: Awaitable[T]) -> T:
    try:
        return await deciding
    except ValueError as error:
        raise BadRequest(f"This cannot be decided: {error}.") from None
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{error.detail}. Whether the decision was written is not known, and nothing was sent: look at "
            "the call again before you decide."
        ) from error


def _header(headers: Headers, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in headers if name.lower() == wanted), "")
