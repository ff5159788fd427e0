"""The observer that tells somebody outside. Hearing of something is putting it into a dictionary, no more.

One task sends, one notification at a time. A receiver in trouble makes all of them wait, longer each time;
one that refuses a single notification makes only that one wait. Nothing grows: what is too much is dropped
from the front, said, and found again in the record when there is room.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from proxy.clock import Clock
from proxy.core.intent import Call
from proxy.errors import StoreUnavailable
from proxy.notifying.event import OF_STATE, Event, of_call, of_divergence
from proxy.notifying.posting import Letter, Reply, Taken, post
from proxy.notifying.schema import Kind, Notify
from proxy.notifying.standing import Walk, is_over, note_told, was_told
from proxy.observe import DIVERGED, Deaf
from proxy.store.base import Store
from proxy.upstream.base import UpstreamClient

# So many wait to be told; a few kilobytes each.
WAITING = 1000
# So many names of what was told are remembered, so that the record need not be asked.
REMEMBERED = 10_000
# Between tries: first so long, then twice as long, at most so long; each shortened by chance up to a half.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 900.0
# A notification that is refused for itself is tried so often.
REFUSALS = 5
# How often the record is looked through for what nobody was told of: the work of processes that have died.
LOOKED_THROUGH_EVERY = 900.0
# What is younger is most likely being told by somebody else right now.
YOUNG = 60.0
# How long a shutdown waits for what can be told at once.
LAST_CHANCE = 2.0


class Tell(Protocol):
    def __call__(self, event: str, **fields: object) -> None: ...


@dataclass(slots=True)
class _Waiting:
    event: Event
    until: float  # it is given up then
    tries: int = 0
    refusals: int = 0
    not_before: float = 0.0


def pause(tries: int, chance: float) -> float:
    """`chance`: from 0 to 1. So that many processes do not come back at once."""
    longest = min(FIRST_PAUSE * 2.0 ** min(tries - 1, 20), LONGEST_PAUSE)
    return longest * (1.0 - chance / 2)


class Hook(Deaf):
    """`looks_at_start`: for what was not told before this process; `looks_again`: now and then, for what
    others have left."""

    def __init__(
        self,
        *,
        notify: Notify,
        secret: bytes,
        store: Store,
        client: UpstreamClient,
        clock: Clock,
        tell: Tell,
        count: Callable[[str, str], None],
        looks_at_start: bool = True,
        looks_again: bool = True,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._notify = notify
        self._secret = secret
        self._store = store
        self._client = client
        self._clock = clock
        self._tell = tell
        self._count = count
        self._looks_again = looks_again
        self._chance = chance
        self._base = notify.public_url
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self._told: OrderedDict[str, None] = OrderedDict()
        self._news, self._tried = asyncio.Event(), asyncio.Event()
        self._troubles, self._open_again = 0, 0.0  # of the receiver
        self._is_full = False
        self._walk = Walk(store, notify.events) if looks_at_start else None
        self._spares_the_young = False  # at the start nobody else is telling what was left
        self._look_at = clock.monotonic() + LOOKED_THROUGH_EVERY
        self._task: asyncio.Task[None] | None = None

    # ---- what is heard ----

    def entered(self, call: Call) -> None:
        kind = OF_STATE.get(call.state)
        if kind is not None and kind in self._notify.events:
            self._add(of_call(call))

    def noted(self, event: str, **fields: object) -> None:
        if event == DIVERGED and Kind.DIVERGED in self._notify.events:
            self._add(of_divergence(fields, self._clock.now()))

    def _add(self, event: Event) -> None:
        if event.id in self._waiting or event.id in self._told:
            return
        self._waiting[event.id] = _Waiting(event, self._clock.monotonic() + self._notify.give_up_after)
        if len(self._waiting) > WAITING:
            _, dropped = self._waiting.popitem(last=False)
            self._count(dropped.event.type, "dropped")
            self._look_at = 0.0  # it stands in the record: looked for as soon as there is room
            if not self._is_full:
                self._is_full = True
                self._tell("notifications-dropped", waiting=WAITING, to=str(self._notify.url))
        self._news.set()

    # ---- coming and going ----

    def start(self, base: str) -> None:
        """`base`: where semel listens, for the links; nothing where that is no address for others."""
        self._base = self._base or base
        self._task = asyncio.create_task(self._run(), name="notifying")

    async def stop(self, patience: float = LAST_CHANCE) -> None:
        """What can be told at once is told. The rest stands in the record, and the next process tells it."""
        task, self._task = self._task, None
        if task is not None:
            await self._clock.within(patience, self._all_tried())
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._client.close()

    async def _all_tried(self) -> None:
        while self._waiting and not self._troubles:
            self._tried.clear()
            await self._tried.wait()

    # ---- what is done ----

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except StoreUnavailable as error:
                self._tell("store-trouble", doing="notifying", error=error.detail)
                await self._clock.sleep(FIRST_PAUSE)
            except Exception as error:  # a defect of ours must not end the telling
                self._tell("notifying-failed", error=f"{type(error).__name__}: {error}")
                await self._clock.sleep(FIRST_PAUSE)

    async def _step(self) -> None:
        now = self._clock.monotonic()
        due = self._due(now)
        if due is not None:
            await self._try(due)
            self._tried.set()
        elif self._waiting or not await self._look_through(now):
            self._news.clear()
            if self._due(self._clock.monotonic()) is None:
                await self._clock.within(self._idle_for(), self._news.wait())

    def _due(self, now: float) -> _Waiting | None:
        if now < self._open_again:
            return None
        return next((one for one in self._waiting.values() if one.not_before <= now), None)

    def _idle_for(self) -> float:
        now = self._clock.monotonic()
        if not self._waiting:
            return max(0.0, self._look_at - now) if self._looks_again else LOOKED_THROUGH_EVERY
        first = min(one.not_before for one in self._waiting.values())
        return max(0.0, max(first, self._open_again) - now)

    async def _look_through(self, now: float) -> bool:
        """One page of the record, if it is time. False: there is nothing to look for now."""
        self._is_full = False
        if self._walk is None and now >= self._look_at and (self._looks_again or self._look_at == 0.0):
            self._walk = Walk(self._store, self._notify.events)
            self._spares_the_young = self._look_at != 0.0
            self._look_at = now + LOOKED_THROUGH_EVERY
        if self._walk is None:
            return False
        for event in await self._walk.page():
            young = self._spares_the_young and event.since > self._clock.now() - YOUNG
            if event.id in self._told or event.id in self._waiting or young:
                continue
            if await was_told(self._store, event):
                self._remember(event)
            else:
                self._add(event)
        if self._walk.is_done:
            self._walk = None
        return True

    async def _try(self, waiting: _Waiting) -> None:
        event = waiting.event
        if waiting.tries and event.key and await self._is_over(event):
            self._end(event, "overtaken")
            return
        letter = Letter(
            self._notify.url, event.id, event.body(self._base), self._secret, self._notify.timeout
        )
        reply = await post(self._client, letter, self._clock.now())
        waiting.tries += 1
        if reply.taken is Taken.DELIVERED:
            self._troubles, self._open_again = 0, 0.0
            self._remember(event)
            await self._note(event)  # it counts as waiting until then: a shutdown waits for it too
            self._end(event, "delivered")
            self._tell("notification-delivered", **self._named(event))
        else:
            self._failed(waiting, reply)

    def _failed(self, waiting: _Waiting, reply: Reply) -> None:
        event, now = waiting.event, self._clock.monotonic()
        if reply.taken is Taken.TROUBLE:
            self._troubles += 1
            asked = min(reply.wait, LONGEST_PAUSE)
            self._open_again = now + max(pause(self._troubles, self._chance()), asked)
            for old in [one for one in self._waiting.values() if now >= one.until and one is not waiting]:
                self._give_up(old, reply)
        else:
            self._troubles, self._open_again = 0, 0.0  # it answers
            waiting.refusals += 1
        if waiting.refusals >= REFUSALS or now >= waiting.until:
            self._give_up(waiting, reply)
            return
        waiting.not_before = now + pause(waiting.tries, self._chance())
        self._count(event.type, "failed")
        self._tell("notification-failed", why=reply.why, tries=waiting.tries, **self._named(event))

    def _give_up(self, waiting: _Waiting, reply: Reply) -> None:
        """Until the next start, that is: the call stands in the record."""
        event = waiting.event
        self._remember(event)
        self._end(event, "given_up")
        self._tell("notification-given-up", why=reply.why, tries=waiting.tries, **self._named(event))

    def _named(self, event: Event) -> dict[str, object]:
        return {"type": event.type, "id": event.id, "call": event.key.hex(), "to": str(self._notify.url)}

    def _end(self, event: Event, result: str) -> None:
        self._waiting.pop(event.id, None)
        self._count(event.type, result)

    def _remember(self, event: Event) -> None:
        self._told[event.id] = None
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)

    async def _is_over(self, event: Event) -> bool:
        try:
            return await is_over(self._store, event)
        except StoreUnavailable:
            return False  # rather told too often

    async def _note(self, event: Event) -> None:
        """If this fails it is told again by the next process, under the same name."""
        if event.key:
            try:
                await note_told(self._store, self._clock, event, str(self._notify.url))
            except StoreUnavailable as error:
                self._tell("store-trouble", doing="noting that somebody was told", error=error.detail)
