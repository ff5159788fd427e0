"""Section 2: without an attempt safe calls go live, effects are `same`, divergence is not seen."""

from __future__ import annotations

import asyncio

import pytest

from proxy.errors import InDoubt
from tests.exchange.stage import answers, lost
from tests.exchange.virtual_time import in_virtual_time
from tests.runs.stage import Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")


@in_virtual_time
async def test_safe_calls_go_live() -> None:
    """Each time, from this proxy and the next: the past cannot be told from the present."""
    semel = RunProcess()
    agent = Agent(semel, "")
    assert [(await agent.read("poll")).body for _ in range(3)] == [b"poll #1", b"poll #2", b"poll #3"]
    other = agent.on(RunProcess(semel.world, semel.origin))
    assert (await other.read("poll")).kind == "executed"
    samples = await asyncio.gather(*(other.read("poll") for _ in range(3)))
    assert {got.kind for got in samples} == {"executed"}


@in_virtual_time
async def test_calls_with_effects_behave_as_same() -> None:
    """One after the other, in parallel, and behind another proxy."""
    semel = RunProcess()
    agent = Agent(semel, "")
    assert (await agent.write("mail")).kind == "executed"
    assert (await agent.write("mail")).kind == "replayed"
    await asyncio.gather(*(agent.write("mail") for _ in range(3)))
    other = agent.on(RunProcess(semel.world, semel.origin))
    assert (await other.write("mail")).kind == "replayed"
    assert semel.origin.sent["mail"] == 1


@in_virtual_time
async def test_parallel_calls_with_effects_are_one() -> None:
    """As outside a run."""
    agent = Agent(RunProcess(), "")
    agent.semel.origin.plays("mail", answers(200, b"once", after=1.0))
    assert {got.body for got in await asyncio.gather(*(agent.write("mail") for _ in range(4)))} == {b"once"}
    assert agent.semel.origin.sent["mail"] == 1


@in_virtual_time
async def test_a_released_call_is_claimed_again_and_a_doubt_is_held() -> None:
    """As outside a run."""
    agent = Agent(RunProcess(), "")
    agent.semel.origin.plays("mail", answers(429))
    assert (await agent.write("mail")).status == 429
    assert (await agent.write("mail")).status == 200
    agent.semel.origin.plays("charge", lost())
    for _ in range(2):
        with pytest.raises(InDoubt):
            await agent.write("charge")
    assert agent.semel.origin.sent == {"mail": 2, "charge": 1}


@in_virtual_time
async def test_a_number_of_the_clients_own_makes_it_another_call() -> None:
    """A deliberate repeat says so."""
    agent = Agent(RunProcess(), "")
    assert (await agent.write("mail")).body == b"mail #1"
    assert (await agent.write("mail", occurrence=2)).body == b"mail #2"
    assert (await agent.write("mail", occurrence=2)).kind == "replayed"


@in_virtual_time
async def test_divergence_is_not_seen() -> None:
    """A reworded mail goes out."""
    semel = RunProcess()
    await Agent(semel, "a1").write("mail?text=hello")
    assert (await Agent(semel, "").write("mail?text=hi")).kind == "executed"
    assert not semel.notebook.told_of("diverged")
