"""Section 2: `repeat: same` in a run is a guard; and what it makes of polling."""

from __future__ import annotations

import asyncio

import pytest

from proxy.core.policy import Rule
from tests.exchange.stage import answers
from tests.exchange.virtual_time import in_virtual_time
from tests.runs.stage import SAME, Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

GUARD = Rule(name="guard", safe=False, repeat=SAME)
GUARDED_READ = Rule(name="guard", safe=True, repeat=SAME)


@pytest.mark.parametrize("rule", [GUARD, GUARDED_READ], ids=["effects", "safe"])
@in_virtual_time
async def test_an_identical_second_call_is_the_same_call(rule: Rule) -> None:
    """In the same attempt, in the next, in parallel."""
    agent = Agent(RunProcess())
    kinds = [(await agent.ask("order", safe=bool(rule.safe), rule=rule)).kind for _ in range(3)]
    assert kinds == ["executed", "replayed", "replayed"]
    second = agent.next("a2")
    again = await asyncio.gather(*(second.ask("order", safe=bool(rule.safe), rule=rule) for _ in range(3)))
    assert {got.kind for got in again} == {"replayed"}
    assert agent.semel.origin.sent["order"] == 1


@in_virtual_time
async def test_a_released_one_is_made_again() -> None:
    """Nothing came of it."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("order", answers(429))
    assert (await agent.write("order", rule=GUARD)).status == 429
    assert (await agent.write("order", rule=GUARD)).status == 200
    assert (await agent.write("order", rule=GUARD)).kind == "replayed"
    assert len(agent.semel.rows()) == 1


@in_virtual_time
async def test_the_fifth_replay_within_a_minute_looks_like_polling() -> None:
    """Told once, with the call; the fourth is not."""
    agent = Agent(RunProcess())
    await agent.write("order", rule=GUARD)
    for _ in range(4):
        await asyncio.sleep(10)
        await agent.write("order", rule=GUARD)
    assert not agent.semel.notebook.told_of("looks-like-polling")
    await agent.write("order", rule=GUARD)
    (told,) = [fields for event, fields in agent.semel.notebook.notes if event == "looks-like-polling"]
    assert (told["run"], told["rule"], told["call"]) == ("r", "guard", agent.semel.rows()[0].id)


@in_virtual_time
async def test_five_replays_over_more_than_a_minute_do_not() -> None:
    """Nor five replays to several attempts, or of several calls."""
    agent = Agent(RunProcess())
    await agent.write("order", rule=GUARD)
    for _ in range(8):
        await asyncio.sleep(16)
        await agent.write("order", rule=GUARD)
    for n in range(4):
        await agent.write(f"order?{n}", rule=GUARD)
        await agent.write(f"order?{n}", rule=GUARD)
    await asyncio.sleep(60)
    for n in range(6):
        await agent.next(f"a{n + 2}").write("order", rule=GUARD)
    assert not agent.semel.notebook.told_of("looks-like-polling")
