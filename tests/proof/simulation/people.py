"""People: they say what became of a call, permit and refuse, let a run go on, forget what failed.

Their word is true, but may come too late, or get lost on its way into the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from proxy import operator
from proxy.admin.run_desk import LocalRunDesk
from proxy.admin.run_views import Seen
from proxy.core.intent import Call, State
from proxy.errors import DecisionRefused, NotFound, Refusal
from proxy.operator import Verdict
from tests.proof.simulation.agents import Program
from tests.proof.simulation.process import Semel
from tests.proof.simulation.scene import Scene
from tests.runs.stage import TENANT

# Longer than any patience there is: a wait for others, the sends of one call, a stalled message at each step.
BOUND = 600.0


class People(Scene):
    async def resolve(self) -> None:
        for row in list(self.world.calls.values()):
            if row.state is State.IN_DOUBT and self.fate.happens(0.5):
                await self._look_and_resolve(row, self._any())

    async def decide(self) -> None:
        for row in list(self.world.calls.values()):
            if row.state is State.AWAITING_APPROVAL and self.fate.happens(0.7):
                await self._decide(row, self._any(), permit=self.fate.happens(0.7))

    async def _decide(self, row: Call, semel: Semel, *, permit: bool) -> None:
        """A person who is asked, and whose word may come too late or get lost."""
        with suppress(Refusal, TimeoutError):
            async with asyncio.timeout(BOUND):
                if permit:
                    await operator.approve(
                        semel.store, semel.clock, row.id, reason="yes", actor="ada", version=None
                    )
                else:
                    await operator.deny(
                        semel.store, semel.clock, row.id, reason="no", actor="ada", version=None, ttl=50.0
                    )

    async def _look_and_resolve(self, row: Call, semel: Semel) -> None:
        """A person who asked the upstream: truthful, but perhaps too late."""
        outs = [out for sent in self.upstream.outs.values() for out in sent if out.row == row.key]
        executed = any(out.executes or self._is_known(out.key) for out in outs)
        news = [out for out in outs if not executed and not out.resolved]
        for out in news:  # from when the word lands, and nobody knows when that is
            out.resolved = True
        looking = operator.resolve(
            semel.store,
            semel.ledger.answers,
            semel.clock,
            row.id,
            verdict=Verdict.EXECUTED if executed else Verdict.NOT_EXECUTED,
            reason="asked the upstream",
            actor="ada",
            version=row.version,
            body=b"a person's word" if executed else None,
        )
        try:
            async with asyncio.timeout(BOUND):
                await looking
        except DecisionRefused:
            for out in news:
                out.resolved = False
        except (Refusal, TimeoutError):  # the store failed: the decision may have landed all the same
            pass

    def _is_known(self, key: str) -> bool:
        return bool(key) and any(
            out.executes for sent in self.upstream.outs.values() for out in sent if out.key == key
        )

    async def resolve_all(self, semel: Semel) -> None:
        for row in [row for row in self.world.calls.values() if row.state is State.IN_DOUBT]:
            await self._look_and_resolve(row, semel)

    async def settle_all(self) -> None:
        """What only a person can end: a doubt; a question; an attempt that leaves the record, because a lost
        mark made one call of two."""
        semel = self.steady
        desk = LocalRunDesk(
            store=semel.store, clock=semel.clock, tenant=TENANT, retention=None, export=no_export
        )
        for program in self.programs:
            with suppress(NotFound):  # nobody has come so far
                await desk.allow(program.run, by="ada", reason="looked at it")
        for row in list(self.world.calls.values()):
            if row.state is State.IN_DOUBT:
                await self._look_and_resolve(row, semel)
            elif row.state is State.AWAITING_APPROVAL:
                await self._decide(row, semel, permit=True)

    async def forget_failures(self, program: Program) -> None:
        """One that an attempt went past is given again until a person forgets it; then the call is another,
        so is what is seen of it, and a person has meant it once more."""
        semel = self.steady
        for row in [row for row in self.world.calls.values() if row.run == program.run]:
            in_run = row.in_run
            if in_run is None or not in_run.receipts or row.state is not State.RELEASED:
                continue
            await operator.forget(
                semel.store, semel.clock, row.id, reason="it is back", actor="ada", version=None
            )
            program.forgotten.update(
                {step for step in program.steps if program.family(step) == in_run.family}
            )
            program.seen.clear()
            program.refused.clear()


async def no_export(seen: Seen) -> AsyncIterator[bytes]:
    """Nobody exports anything here."""
    nothing: tuple[bytes, ...] = ()
    for line in nothing:
        yield line
