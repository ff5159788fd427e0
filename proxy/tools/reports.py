"""What is said of a call by whoever has it in hand: done, not done, still at it. The fence says who that is.

A report reaches some process: mostly the one that handed the call out, perhaps another one behind the same
address, perhaps one that was started after that one died. The record is the same for all of them. What is
answered is what the record says afterwards, so a report may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from proxy.clock import Clock
from proxy.core import decide as core
from proxy.core.intent import Call, Entry, Event, State, evolve, next_state
from proxy.core.matching import DEFAULT_EFFECT
from proxy.core.policy import TOOLS_NAME, Rule, Upstream
from proxy.errors import NotFound, StaleVersion, StoreUnavailable
from proxy.judge import Judgement, judge
from proxy.ledger import Ledger
from proxy.pricing import price_now
from proxy.store.base import Store
from proxy.stream import Capture, CaptureLimits
from proxy.tools.workshop import Done, Elsewhere, Job, NotDone, Word, Workshop, result_of

# How long whoever reports waits for the record to be durable; then it reports again.
PATIENCE = 30.0
MOVED = "moved"  # a history line of its own: the state stays, another process watches over it


class Held(NamedTuple):
    """Who reports, and which claim it speaks for."""

    tenant: str
    tool: str
    call_id: str
    fence: int


class _Judged(NamedTuple):
    judgement: Judgement
    capture: Capture
    rule: Rule


class Reports:
    def __init__(
        self,
        *,
        workshop: Workshop,
        ledger: Ledger,
        store: Store,
        clock: Clock,
        tools: Callable[[], Upstream],
        limits: CaptureLimits,
    ) -> None:
        self._workshop = workshop
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._tools = tools
        self._limits = limits
        self._guards: set[asyncio.Task[None]] = set()

    async def complete(self, held: Held, answer: bytes) -> State:
        return await self._report(held, Done(answer))

    async def fail(self, held: Held, reason: str) -> State:
        return await self._report(held, NotDone(reason))

    async def heartbeat(self, held: Held) -> State:
        """Here it is only noted. Another process' call is moved to this one: it hears the next one too."""
        call = await self._call(held)
        job = self._workshop.job(call.key, held.fence)
        if job is not None:
            self._workshop.beat(job)
        elif call.state is State.PENDING:
            return await self._move_here(call)
        return call.state

    def let_go(self) -> None:
        """Before calls are waited for: whoever has one in hand cannot report here any more."""
        self._workshop.let_go()

    async def close(self) -> None:
        """What could not be written is found by recovery: this process is dead for it."""
        for guard in self._guards:
            guard.cancel()
        await asyncio.gather(*self._guards, return_exceptions=True)

    # ---- what came of it ----

    async def _report(self, held: Held, word: Done | NotDone) -> State:
        deadline, told = self._clock.monotonic() + PATIENCE, False
        while True:
            call = await self._call(held)
            judged = await self._judged(call, word)
            event = judged.judgement.settlement.event
            in_vain = call.state is State.IN_DOUBT and isinstance(word, NotDone)  # only an answer settles it
            said = call.state is next_state(State.PENDING, event) and not in_vain
            if said or (told and call.state is not State.PENDING):
                return call.state  # by this very report, or by one before it
            if in_vain or not core.can_settle(call, held.fence, event):
                await self._refuse(call, word)
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise StoreUnavailable("This could not be recorded in time: report it again.")
            job = self._workshop.job(call.key, held.fence) if call.state is State.PENDING else None
            if job is None:
                await self._settle(call, judged)
            else:
                job.tell(word)  # whoever waits for it settles it
                await self._store.changed(call.key, call.version, left)
            told = True

    async def _judged(self, call: Call, word: Word) -> _Judged:
        limits, rule = self._limits, self._rule(call)
        capture = Capture(limit=limits.kept, memory=limits.memory, directory=limits.directory)
        result = await result_of(word, capture)
        return _Judged(judge(result, capture, rule, call, self._clock.now()), capture, rule)

    async def _settle(self, call: Call, judged: _Judged) -> None:
        """As its own flight would have. If it has changed meanwhile, the next look shows that."""
        judgement, capture, rule = judged

        def give_up(trouble: StoreUnavailable) -> None:
            raise trouble

        kept, settlement = capture if judgement.keeps_answer else None, judgement.settlement
        if settlement.event is Event.ANSWERED:
            settlement = settlement._replace(cost_usd=await price_now(rule, capture))
        await self._ledger.settle(call, settlement, kept, rule, give_up)

    async def _call(self, held: Held) -> Call:
        """Raises NotFound, also for another tenant's, and for what is no tool of an agent's; StaleVersion
        where somebody has begun it anew."""
        call = await self._ledger.get(bytes.fromhex(held.call_id))
        ours = call is not None and (call.tenant, call.upstream) == (held.tenant, TOOLS_NAME)
        if call is None or not ours or call.tool != held.tool:
            raise NotFound(f"There is no call {held.call_id} of the tool {held.tool!r}.")
        if call.fence != held.fence:
            raise StaleVersion(
                f"The call has another fence than {held.fence}: it was begun anew since.", call
            )
        return call

    async def _refuse(self, call: Call, word: Done | NotDone) -> None:
        told = "it was done" if isinstance(word, Done) else f"it was not done: {word.reason}"
        now, actor = self._clock.now(), f"tool:{self._store.owner}"
        why = f"late, and not recorded: {told}"
        await self._store.note(
            call.key, Entry(now, actor, "evidence", call.state, call.state, why, call.fence)
        )
        raise StaleVersion(
            f"The call is {call.state} by now, and what came of it is not to be changed by this report; it "
            "is noted in the call's history, for people.",
            call,
        )

    def _rule(self, call: Call) -> Rule:
        named = (rule for rule in self._tools().rules if rule.name == call.rule)
        return next(named, DEFAULT_EFFECT)

    # ---- another process' calls ----

    async def _move_here(self, call: Call) -> State:
        if await self._store.owner_is_dead(call.owner):
            recovered = await self._ledger.recover(call)
            return State.PENDING if recovered is None else recovered.state
        moved = evolve(call, owner=self._store.owner, version=call.version + 1)
        why = f"whoever has it in hand speaks to another process than {call.owner}"
        entry = Entry(
            self._clock.now(), f"tool:{moved.owner}", MOVED, call.state, call.state, why, call.fence
        )
        if (await self._store.swap(moved, entry, expected=call.version)).won:
            guard = asyncio.create_task(self._guard(self._workshop.take(moved)))
            self._guards.add(guard)
            guard.add_done_callback(self._guards.discard)
        return State.PENDING

    async def _guard(self, job: Job) -> None:
        """No flight waits for it here."""
        word = await self._workshop.word_on(job)
        if isinstance(word, Elsewhere):
            return
        while True:
            try:
                call = await self._ledger.get(job.call.key)
                ours = call is not None and call.owner == job.call.owner and call.fence == job.call.fence
                if call is None or not ours or call.state is not State.PENDING:
                    return
                await self._settle(call, await self._judged(call, word))
            except StoreUnavailable:
                await self._clock.sleep(1.0)
