"""Sweeping goes on: past rows that cannot be read, past a store in trouble, past our own defects."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.core.intent import Call, State
from proxy.errors import StoreUnavailable
from proxy.ledger import Ledger
from proxy.recovery import AT_ONCE, sweep_forever, sweep_once
from proxy.store.base import Orphans
from proxy.store.codec import Codec
from proxy.store.embedded import EmbeddedStore
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


async def test_many_orphans_share_commits(tmp_path: Path) -> None:
    """Whoever starts after a crash under load is ready when they are settled: not after a commit for each."""
    commits: list[int] = []
    store = await EmbeddedStore.open(tmp_path, batched=commits.append)
    try:
        process = Process()
        ledger = Ledger(
            store=store, codec=Codec(), clock=process.clock, observer=process.notebook, inline_body=1024
        )
        many = 2 * AT_ONCE + 10
        claims = [calls.claim(DEAD, key=number.to_bytes(16)) for number in range(1, many + 1)]
        await asyncio.gather(*(store.swap(call, entry, expected=0) for call, entry in claims))
        commits.clear()
        assert await sweep_once(store, ledger, process.notebook) == many
        assert len(commits) <= 10
        found = await store.get_many([call.key for call, _ in claims])
        assert {call.state for call in found} == {State.IN_DOUBT}
    finally:
        await store.close()


async def test_one_that_cannot_be_settled_keeps_no_other_from_it() -> None:
    """And it is said."""
    claims = [calls.claim(DEAD, key=number.to_bytes(16)) for number in range(1, 6)]
    process = Sweeping()
    for call, entry in claims:
        await process.store.swap(call, entry, expected=0)
    recover = process.ledger.recover

    async def failing(call: Call) -> Call | None:
        if call.key == claims[1][0].key:
            raise StoreUnavailable("this one")
        return await recover(call)

    process.ledger.recover = failing  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="this one"):
        await sweep_once(process.store, process.ledger, process.notebook)
    states = [process.world.calls[call.key].state for call, _ in claims]
    assert states.count(State.IN_DOUBT) == 4
