"""Sweeping goes on: past rows that cannot be read, past a store in trouble, past our own defects."""

from __future__ import annotations

import asyncio

import pytest

from proxy.core.intent import State
from proxy.errors import StoreUnavailable
from proxy.recovery import sweep_forever, sweep_once
from proxy.store.base import Orphans
from tests.exchange.stage import Process
from tests.exchange.virtual_time import in_virtual_time
from tests.stores import calls

pytestmark = pytest.mark.usefixtures("any_stage")

DEAD = "1-1-0000000000000000"


class Sweeping(Process):
    """One semel whose store answers the next looks for orphans as the test says."""

    def __init__(self, *looks: Orphans | Exception) -> None:
        super().__init__()
        self.looks = list(looks)
        real = self.store.orphans

        async def orphans() -> Orphans:
            match self.looks.pop(0) if self.looks else None:
                case None:
                    return await real()
                case Orphans() as found:
                    return found
                case error:
                    raise error

        self.store.orphans = orphans  # type: ignore[method-assign]


def events(process: Process) -> list[str]:
    return [event for event, _ in process.notebook.notes]


async def test_rows_that_cannot_be_read_are_told_once_and_the_others_settled() -> None:
    """The sweep every few seconds would otherwise fill the log with what nobody can mend in seconds."""
    call, entry = calls.claim(DEAD)
    found = Orphans(calls=[call], unreadable={"ab" * 16: "what is open never expires"})
    process = Sweeping(found, found)
    await process.store.swap(call, entry, expected=0)
    told: set[str] = set()
    assert await sweep_once(process.store, process.ledger, process.notebook, told) == 1
    assert process.world.calls[call.key].state is State.IN_DOUBT
    noted = ("unreadable-row", {"call": "ab" * 16, "error": "what is open never expires"})
    assert noted in process.notebook.notes
    assert await sweep_once(process.store, process.ledger, process.notebook, told) == 0
    assert events(process).count("unreadable-row") == 1


@in_virtual_time
async def test_no_failure_ends_the_sweeping() -> None:
    """A defect of ours, a store in trouble, a defect again: each is noted, and the next sweep settles."""
    process = Sweeping(RuntimeError("a defect"), StoreUnavailable("the disk is full"), KeyError("another"))
    call, entry = calls.claim(DEAD)
    await process.store.swap(call, entry, expected=0)
    sweeping = asyncio.create_task(
        sweep_forever(process.store, process.ledger, process.notebook, process.clock)
    )
    await asyncio.sleep(60.0)
    assert not sweeping.done()
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)
    assert events(process) == ["sweep-failed", "store-trouble", "sweep-failed", "recovered"]
    assert process.notebook.notes[0][1] == {"error": "RuntimeError: a defect"}
    assert process.world.calls[call.key].state is State.IN_DOUBT
