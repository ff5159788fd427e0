"""Calls in somebody's hands: an upstream whose network is a person's word.

A call is handed out to whoever asked for it, directly after the last look at our own heartbeat. From then on
it is out: only a report settles it, and who gives no sign of life for a lease long is taken for dead. That is
doubt, never "nothing happened".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from proxy.clock import Clock
from proxy.core.intent import Call, State
from proxy.errors import StoreUnavailable
from proxy.store.base import Store
from proxy.tools.errand import Errand
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, Sink, UpstreamClient

# While the store does not answer, how soon it is asked again whether somebody else has the call by now.
STORE_PAUSE = 1.0
# How long one look at a row may wait; what changes is told at once.
WATCHED = 60.0


@dataclass(frozen=True, slots=True)
class Done:
    """What the function gave, or how it failed: the recorded answer, byte for byte."""

    answer: bytes


@dataclass(frozen=True, slots=True)
class NotDone:
    """Whoever had it says that nothing happened."""

    reason: str


@dataclass(frozen=True, slots=True)
class Silent:
    """No sign of life for as long as this."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LetGo:
    """This process ends, and nobody can report to it any more. A late result settles the doubt."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another process has it by now, or has settled it."""


Word: TypeAlias = Done | NotDone | Silent | LetGo | Elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    heartbeat: float = 5.0  # how often whoever has it is asked to say so
    lasts: float = 15.0


@dataclass(slots=True)
class Job:
    call: Call
    until: float  # by the monotonic clock
    word: asyncio.Future[Word] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def tell(self, word: Word) -> None:
        """The first word counts."""
        if not self.word.done():
            self.word.set_result(word)


async def result_of(word: Word, sink: Sink) -> Result:
    match word:
        case Done(answer):
            headers = ((b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(answer)))
            sink.head(200, headers)
            await sink.data(answer)
            return Answered(200)
        case NotDone(reason):
            return NotSent(reason, for_good=True)
        case Silent(seconds):
            return Lost(f"whoever had it in hand gave no sign of life for {seconds:g} s")
        case LetGo():
            return Lost("semel ended while somebody had it in hand")
        case Elsewhere():
            return Lost("another semel process has it by now")
        case _:
            assert_never(word)


class Workshop:
    """For everything else `network` is asked."""

    def __init__(self, *, network: UpstreamClient, store: Store, clock: Clock, lease: Lease) -> None:
        self.lease = lease
        self._network = network
        self._store = store
        self._clock = clock
        self._jobs: dict[tuple[bytes, int], Job] = {}

    def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Awaitable[Result]:
        if out.errand is None:
            return self._network.send(out, sink, may_send)
        assert isinstance(out.errand, Errand)
        return self._hand_out(out.errand, sink, may_send)

    async def close(self) -> None:
        await self._network.close()

    async def _hand_out(self, errand: Errand, sink: Sink, may_send: Callable[[], bool]) -> Result:
        call = errand.call
        assert call is not None  # claimed, and the errand was told
        if errand.handed.done():
            return NotSent("whoever asked for it had left before it was handed out", for_good=True)
        if not may_send():
            return NotSent("this process was taken for dead before it was handed out", for_good=True)
        job = self.take(call)
        errand.handed.set_result(call)
        return await result_of(await self.word_on(job), sink)

    # ---- what is out ----

    def job(self, key: bytes, fence: int) -> Job | None:
        return self._jobs.get((key, fence))

    def take(self, call: Call) -> Job:
        job = Job(call, self._clock.monotonic() + self.lease.lasts)
        self._jobs[call.key, call.fence] = job
        return job

    def beat(self, job: Job) -> None:
        job.until = self._clock.monotonic() + self.lease.lasts

    def let_go(self) -> None:
        for job in list(self._jobs.values()):
            job.tell(LetGo())

    async def word_on(self, job: Job) -> Word:
        """What is said of it first: here, by silence, or in another process."""
        watching = asyncio.create_task(self._watch(job))
        try:
            while not job.word.done():
                left = job.until - self._clock.monotonic()
                if left <= 0:
                    return Silent(self.lease.lasts)
                await self._clock.within(left, asyncio.wait({job.word}))
            return job.word.result()
        finally:
            watching.cancel()
            del self._jobs[job.call.key, job.call.fence]

    async def _watch(self, job: Job) -> None:
        """Its row may be settled, or moved, by another process that was told."""
        call = job.call
        while not job.word.done():
            try:
                await self._store.changed(call.key, call.version, WATCHED)
                present = await self._store.get(call.key)
            except StoreUnavailable:
                await self._clock.sleep(STORE_PAUSE)
                continue
            if (
                present is None
                or present.state is not State.PENDING
                or present.fence != call.fence
                or present.owner != call.owner
            ):
                job.tell(Elsewhere())
            else:
                call = present
