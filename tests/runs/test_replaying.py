"""The second attempt meets its past in order, and only new work goes out."""

from __future__ import annotations

import asyncio

import pytest

from proxy.runs import books
from tests.runs.stage import Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")


async def test_everything_comes_back_in_order_and_only_new_work_goes_out() -> None:
    """Reads, polls and writes of the first attempt are replayed to the second; the next step is live."""
    semel = RunProcess()
    first = Agent(semel, "a1")
    seen = [
        await first.read("model"),
        await first.read("poll"),
        await first.read("poll"),
        await first.write("charge"),
        await first.write("mail"),
        await first.write("mail"),
    ]
    assert [got.kind for got in seen] == ["executed"] * 6
    second = first.next("a2")
    again = [
        await second.read("model"),
        await second.read("poll"),
        await second.read("poll"),
        await second.write("charge"),
        await second.write("mail"),
        await second.write("mail"),
    ]
    assert [got.kind for got in again] == ["replayed"] * 6
    assert [got.body for got in again] == [got.body for got in seen]
    assert (await second.read("poll")).kind == "executed"
    assert semel.origin.sent == {"model": 1, "poll": 3, "charge": 1, "mail": 2}


async def test_after_the_proxy_died_another_goes_on_with_the_run() -> None:
    """The record is the store's, not the process's."""
    semel = RunProcess()
    first = Agent(semel, "a1")
    seen = [await first.read("model"), await first.write("charge")]
    await semel.die()
    other = RunProcess(semel.world, semel.origin)
    second = Agent(other, "a2")
    again = [await second.read("model"), await second.write("charge")]
    assert [got.body for got in again] == [got.body for got in seen]
    assert semel.origin.sent == {"model": 1, "charge": 1}


async def test_parallel_samples_are_two_calls_and_parallel_identical_writes_one() -> None:
    """In both attempts."""
    semel = RunProcess()
    first = Agent(semel, "a1")
    samples = await asyncio.gather(first.read("sample"), first.read("sample"))
    assert {got.body for got in samples} == {b"sample #1", b"sample #2"}
    writes = await asyncio.gather(first.write("mail"), first.write("mail"))
    assert {got.kind for got in writes} == {"executed", "joined"}
    assert {got.body for got in writes} == {b"mail #1"}
    second = first.next("a2")
    samples = await asyncio.gather(second.read("sample"), second.read("sample"))
    assert {got.body for got in samples} == {b"sample #1", b"sample #2"}
    writes = await asyncio.gather(second.write("mail"), second.write("mail"))
    assert [got.body for got in writes] == [b"mail #1", b"mail #1"]
    assert semel.origin.sent == {"sample": 2, "mail": 1}
    # One after the other they are two again, as in the first attempt after both were answered.
    assert (await second.write("mail")).body == b"mail #2"


async def test_runs_that_nobody_asks_in_are_put_away_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is for those at work; the record has the rest."""
    monkeypatch.setattr(books, "STEPS_AT_HAND", 4)
    semel = RunProcess()
    seen = {}
    for n in range(6):
        agent = Agent(semel, run=f"r{n}")
        seen[n] = [(await agent.write("charge")).body, (await agent.read("model")).body]
    assert len(semel.books._books) < 6
    for n in range(6):
        again = Agent(semel, "a2", run=f"r{n}")
        assert [(await again.write("charge")).body, (await again.read("model")).body] == seen[n]
    assert semel.origin.sent == {"charge": 6, "model": 6}
