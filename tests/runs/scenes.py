"""What the scenes of runs share: rows by name, callers that leave, people who decide, forks, lost marks."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace

from proxy import operator
from proxy.asking import Live, Replayed
from proxy.core.intent import Call, Entry, evolve
from proxy.core.run_record import Parent, Run, RunEntry, Serving
from proxy.operator import Verdict
from tests.exchange.staged_store import StagedStore
from tests.runs.stage import TENANT, Agent, RunProcess, identity_of


def row(semel: RunProcess, name: str, n: int = 1, run: str = "r", origin: str = "") -> Call:
    """The n-th identical call of a run."""
    family = identity_of(f"{origin or run} {name}").key
    for call in semel.rows():
        if (call.run, call.occurrence) == (run, n) and call.in_run and call.in_run.family == family:
            return call
    raise AssertionError(f"there is no {name} #{n} in {run}")


def shared_row(semel: RunProcess, name: str) -> Call:
    """The call of the whole tenant."""
    return semel.world.calls[identity_of(f"tenant {name}").key]


def uses(semel: RunProcess, name: str, n: int = 1) -> int:
    in_run = row(semel, name, n).in_run
    assert in_run is not None
    return in_run.uses


async def begun(
    agent: Agent, name: str, *, safe: bool, tokens: frozenset[str] = frozenset()
) -> Replayed | Live:
    """A caller that has its answer's head, and neither takes the rest nor leaves."""
    reply = await agent.semel.runs.ask(await agent.asked(name, safe=safe, tokens=tokens))
    assert isinstance(reply, Replayed | Live)
    return reply


async def leaves_after_a_part(agent: Agent, name: str, *, safe: bool) -> None:
    """A caller that takes the first part of the answer as it arrives, and is gone."""
    reply = await begun(agent, name, safe=safe)
    assert isinstance(reply, Live)
    assert reply.delivery is not None
    parts = reply.reader.parts()
    await anext(parts)
    await parts.aclose()  # type: ignore[attr-defined]
    reply.delivery.abandoned()
    reply.leave()


async def gone(task: asyncio.Task[object]) -> None:
    """A caller that left, or whose process died."""
    task.cancel()
    with contextlib.suppress(BaseException):
        await task


async def forget(semel: RunProcess, call: Call) -> None:
    await operator.forget(
        semel.store, semel.clock, call.id, reason="it may go out", actor="ada", version=None
    )


async def resolve(semel: RunProcess, call: Call, *, body: bytes | None) -> None:
    """As executed with this answer, or as not executed."""
    await operator.resolve(
        semel.store,
        semel.ledger.answers,
        semel.clock,
        call.id,
        verdict=Verdict.NOT_EXECUTED if body is None else Verdict.EXECUTED,
        reason="looked it up",
        actor="ada",
        version=None,
        body=body,
    )


async def retire(semel: RunProcess, call: Call) -> None:
    """What `runs allow` does to a call that nobody asks for any more."""
    assert call.in_run is not None
    retired = evolve(call, version=call.version + 1, in_run=replace(call.in_run, retired=True))
    entry = Entry(semel.clock.now(), "operator:ada", "retired", call.state, call.state, "allowed", call.fence)
    assert (await semel.store.swap(retired, entry, expected=call.version)).won


async def fork(semel: RunProcess, name: str, *, at: int, of: str = "r", resend: bool = False) -> None:
    """A fork's calls are named as its parent's, and are counted on from where the parent is."""
    parent = await semel.store.get_run(TENANT, of)
    assert parent is not None
    now = semel.clock.now()
    run = Run(
        tenant=TENANT,
        name=name,
        created_at=now,
        active_at=now,
        last_seq=parent.last_seq,
        parent=Parent(run=of, at=at, resend=resend),
        origin=parent.origin or parent.name,
        recipes=parent.recipes,
    )
    entry = RunEntry(now, "operator:ada", "forked", f"from {of} at {at}")
    assert await semel.store.swap_run(run, entry, expected=0)


@dataclass
class Marks:
    """The lazy marks of a process: dropped, or kept back until `deliver`."""

    store: StagedStore
    kept: list[Serving]

    @classmethod
    def kept_back(cls, semel: RunProcess) -> Marks:
        marks = cls(semel.store, [])
        semel.store.mark_served = marks.kept.append  # type: ignore[method-assign, assignment]
        return marks

    def deliver(self) -> None:
        del self.store.mark_served  # the store's own again
        for served in self.kept:
            self.store.mark_served(served)
        self.kept.clear()
