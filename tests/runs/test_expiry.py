"""Section 2: runs expire whole, and their names stay known."""

from __future__ import annotations

import asyncio

import pytest

from proxy.core.intent import State
from proxy.core.run_record import RunState
from proxy.errors import InDoubt, RunExpired
from tests.exchange.stage import lost
from tests.exchange.virtual_time import in_virtual_time
from tests.runs import scenes
from tests.runs.stage import TENANT, Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

DAY = 86400.0


async def collect(semel: RunProcess) -> int:
    now = semel.clock.now()
    return (await semel.store.collect(now, runs_before=now - DAY)).calls


@in_virtual_time
async def test_a_run_expires_after_its_last_activity_and_its_name_is_refused() -> None:
    """To old attempts and new ones, from every proxy; nothing is sent."""
    semel = RunProcess(retention=DAY)
    agent = Agent(semel)
    await agent.read("look")
    await agent.write("send")
    await asyncio.sleep(DAY + 1)
    assert await collect(semel) == 2
    assert semel.rows() == []
    for each in (agent, agent.next("a2"), Agent(RunProcess(semel.world, semel.origin, retention=DAY), "a3")):
        with pytest.raises(RunExpired) as caught:
            await each.write("send")
        assert caught.value.members["run"] == "r"
    assert semel.origin.sent == {"look": 1, "send": 1}


@in_virtual_time
async def test_it_is_over_when_its_time_is_though_nothing_was_collected() -> None:
    """Neither a late collector nor a late agent brings it back, and being refused is no activity."""
    semel = RunProcess(retention=DAY)
    agent = Agent(semel)
    await agent.write("send")
    await asyncio.sleep(DAY - 1)
    assert (await agent.next("a2").write("send")).kind == "replayed"
    await asyncio.sleep(DAY)
    for _ in range(2):
        for each in (agent, agent.next("a3"), agent.next("")):
            with pytest.raises(RunExpired):
                await each.write("send")
    other = Agent(RunProcess(semel.world, semel.origin, retention=DAY), "a4")
    with pytest.raises(RunExpired):
        await other.write("other")
    run = await semel.store.get_run(TENANT, "r")
    assert run is not None
    assert run.attempt_names == ("a1", "a2")
    await asyncio.sleep(1)
    assert await collect(semel) == 1


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])
@in_virtual_time
async def test_replays_are_activity(safe: bool) -> None:
    """A run that is only asked again stays alive, and so do all of its rows."""
    semel = RunProcess(retention=DAY)
    agent = Agent(semel)
    for name in ("call", "other"):
        await agent.ask(name, safe=safe)
    for n in range(5):
        await asyncio.sleep(DAY * 0.9)
        assert await collect(semel) == 0
        assert (await agent.next(f"b{n}").ask("call", safe=safe)).kind == "replayed"
    assert (await agent.next("last").ask("other", safe=safe)).kind == "replayed"


@in_virtual_time
async def test_it_goes_whole() -> None:
    """Old rows do not go before the others, whatever their age."""
    semel = RunProcess(retention=DAY)
    agent = Agent(semel)
    for n in range(6):
        await agent.read(f"look?{n}")
        await asyncio.sleep(DAY * 0.6)
        assert await collect(semel) == 0
    await asyncio.sleep(DAY)
    assert await collect(semel) == 6


@in_virtual_time
async def test_what_is_in_doubt_stays_when_its_run_expires() -> None:
    """`pending` and `in_doubt` never expire; the name is refused all the same."""
    semel = RunProcess(retention=DAY)
    agent = Agent(semel)
    await agent.read("look")
    semel.origin.plays("send", lost())
    with pytest.raises(InDoubt):
        await agent.write("send")
    await asyncio.sleep(DAY + 1)
    assert await collect(semel) == 1
    assert [call.state for call in semel.rows()] == [State.IN_DOUBT]
    run = await semel.store.get_run(TENANT, "r")
    assert run is not None
    assert run.state is RunState.EXPIRED
    with pytest.raises(RunExpired):
        await agent.write("send")


@in_virtual_time
async def test_what_is_settled_after_its_run_expired_is_collected_too() -> None:
    """A person looked late: the row does not stay for ever."""
    semel = RunProcess(retention=DAY)
    semel.origin.plays("send", lost())
    with pytest.raises(InDoubt):
        await Agent(semel).write("send")
    await asyncio.sleep(DAY + 1)
    await collect(semel)
    await scenes.resolve(semel, scenes.row(semel, "send"), body=b"found")
    await asyncio.sleep(DAY + 1)
    assert await collect(semel) == 1
    assert semel.rows() == []


@in_virtual_time
async def test_another_run_of_another_name_is_not_touched() -> None:
    """Nor is the same name of another tenant, nor anything outside runs."""
    semel = RunProcess(retention=DAY)
    await Agent(semel, run="old").write("send")
    await asyncio.sleep(DAY + 1)
    await Agent(semel, run="young").write("send")
    assert await collect(semel) == 1
    assert (await Agent(semel, "a2", run="young").write("send")).kind == "replayed"


@in_virtual_time
async def test_a_run_that_somebody_expired_is_refused_though_its_time_is_not_over_here() -> None:
    """Another proxy keeps runs for a shorter time, or its clock is ahead: the rows are gone."""
    semel = RunProcess()
    agent = Agent(semel)
    await agent.write("send")
    assert (await semel.store.collect(semel.clock.now(), runs_before=semel.clock.now() + 1)).calls == 1
    for each in (agent, agent.next("a2"), Agent(RunProcess(semel.world, semel.origin), "a3")):
        with pytest.raises(RunExpired):
            await each.write("send")
    assert semel.origin.sent["send"] == 1


@in_virtual_time
async def test_a_run_that_is_cleared_while_it_is_asked_in_begins_nothing_more() -> None:
    """The books are told after collecting; and the store would not take a claim."""
    semel = RunProcess(retention=DAY)
    agent = Agent(semel)
    await agent.write("send")
    ask = await agent.asked("more", safe=False)
    await asyncio.sleep(DAY + 1)
    await collect(semel)
    semel.books.changed_beside()
    with pytest.raises(RunExpired):
        await semel.runs.ask(ask)
    assert semel.origin.sent == {"send": 1}
