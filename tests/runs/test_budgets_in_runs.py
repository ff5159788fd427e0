"""Budgets in a run: an account of its own; what is refused is no step of the run, and goes through later as
the very occurrence that it was."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest

from proxy.core.budget import Account
from proxy.core.clauses import Allowance, Budget, Cost, Rate
from proxy.core.intent import State
from proxy.core.policy import Mode, Rule, Scope
from proxy.errors import BudgetExceeded, UpstreamUnreachable
from tests.exchange.stage import Talk, not_sent
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import in_virtual_time
from tests.runs.stage import TENANT, Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

HOUR = 3600.0


def limited(calls: int = 2, *, safe: bool = False) -> Rule:
    return Rule(name="pay", safe=safe, budget=Budget(calls=Rate(calls, HOUR)))


PRICED = replace(limited(), budget=Budget(usd=Allowance(Decimal("0.20"))), cost=Cost(usd=Decimal("0.10")))


async def held(semel: RunProcess, run: str = "r") -> dict[str, int]:
    spent = await semel.store.spent(Account(TENANT, run, "mail", "pay"))
    return {each.meter: each.amount for each in spent}


@in_virtual_time
async def test_a_run_has_its_own_account_and_its_past_is_free() -> None:
    """Two runs, two budgets; a later attempt gets everything again and takes nothing."""
    semel, rule = RunProcess(), limited(2)
    one, other = Agent(semel), Agent(semel, run="s")
    for agent in (one, other):
        for name in ("a", "b"):
            assert (await agent.write(name, rule=rule)).kind == "executed"
        with pytest.raises(BudgetExceeded, match=f"the run {agent.run!r}"):
            await agent.write("c", rule=rule)
    again = one.next("a2")
    for name in ("a", "b"):
        assert (await again.write(name, rule=rule)).kind == "replayed"
    with pytest.raises(BudgetExceeded):
        await again.write("c", rule=rule)
    assert (await held(semel), await held(semel, "s")) == ({"calls": 2}, {"calls": 2})
    assert await held(semel, "") == {}


@in_virtual_time
async def test_what_is_refused_is_no_step_and_goes_through_later_as_the_same_occurrence() -> None:
    """No row, no exchange, no place in the order; asked again in time it is the next step and the first of
    its kind, and then it is replayed to a later attempt."""
    semel, rule = RunProcess(), limited(1)
    agent = Agent(semel)
    await agent.write("a", rule=rule)
    for _ in range(3):
        with pytest.raises(BudgetExceeded) as told:
            await agent.write("b", rule=rule)
        assert len(semel.rows()) == 1
    changes = await semel.store.run_changes(TENANT, "r", "a1", 0)
    assert changes is not None
    assert (len(changes.exchanges), changes.run.last_seq) == (1, 1)
    assert told.value.retry_after is not None
    await asyncio.sleep(told.value.retry_after)
    assert (await agent.write("b", rule=rule)).body == b"b #1"
    row = semel.rows()[1]
    assert (row.seq, row.occurrence, row.state) == (2, 1, State.DONE)
    again = Agent(semel, "a2")
    assert [(await again.write(name, rule=rule)).body for name in "ab"] == [b"a #1", b"b #1"]
    assert semel.origin.sent.total() == 2


@in_virtual_time
async def test_a_repeat_that_is_refused_stays_the_second_one() -> None:
    """Of identical calls, too: the number is given back and taken again."""
    semel, rule = RunProcess(), limited(1)
    agent = Agent(semel)
    await agent.write("a", rule=rule)
    with pytest.raises(BudgetExceeded):
        await agent.write("a", rule=rule)
    await asyncio.sleep(HOUR + 60)
    assert (await agent.write("a", rule=rule)).body == b"a #2"
    assert sorted(row.occurrence for row in semel.rows()) == [1, 2]


@in_virtual_time
async def test_a_runs_money_does_not_come_back() -> None:
    """Two dimes of two: no time helps, and it is said what does."""
    semel = RunProcess()
    agent = Agent(semel)
    for name in "ab":
        await agent.write(name, rule=PRICED)
    for _ in range(2):
        with pytest.raises(
            BudgetExceeded, match=r"0\.20 of 0\.20 USD in all are used.*does not come back: raise"
        ) as told:
            await agent.write("c", rule=PRICED)
        assert told.value.lasts
        assert "until" not in told.value.members
        await asyncio.sleep(10 * 86400)
    raised = replace(PRICED, budget=Budget(usd=Allowance(Decimal("0.30"))))
    assert (await agent.write("c", rule=raised)).kind == "executed"


@in_virtual_time
async def test_what_was_not_sent_is_given_back_in_a_run_too() -> None:
    """And is taken again when it is sent."""
    semel = RunProcess()
    semel.origin.plays("a", not_sent(), not_sent())
    agent = Agent(semel)
    with pytest.raises(UpstreamUnreachable):
        await agent.write("a", rule=PRICED)
    assert await held(semel) == {"usd": 0}
    assert (await agent.write("a", rule=PRICED)).kind == "executed"
    assert await held(semel) == {"usd": 100_000}


@in_virtual_time
@pytest.mark.parametrize(
    "rule",
    [
        replace(limited(1), mode=Mode.CACHE, safe=True, ttl=60.0),
        replace(limited(1), scope=Scope.TENANT, ttl=HOUR),
    ],
    ids=["cache", "tenant"],
)
async def test_a_call_that_is_shared_is_paid_by_the_run_that_sends_it(rule: Rule) -> None:
    """Once, and not for the run's own row. Another run that is given the same pays nothing."""
    semel = RunProcess()
    one, other, safe = Agent(semel), Agent(semel, run="s"), rule.mode is Mode.CACHE
    assert (await one.ask("a", safe=safe, rule=rule)).kind == "executed"
    assert (await other.ask("a", safe=safe, rule=rule)).kind == "replayed"
    assert (await held(semel), await held(semel, "s"), await held(semel, "")) == ({"calls": 1}, {}, {})
    with pytest.raises(BudgetExceeded, match="the run 'r'"):
        await one.ask("b", safe=safe, rule=rule)
    assert (await other.ask("b", safe=safe, rule=rule)).kind == "executed"
    assert (await one.ask("b", safe=safe, rule=rule)).body == b"b #1", "it is there now, and free"
    assert semel.origin.sent.total() == 2


@in_virtual_time
async def test_many_at_once_in_one_run_over_two_processes_never_pass_it() -> None:
    """Whatever process they ask."""
    world, rule = World(), limited(3)
    first = RunProcess(world)
    second = RunProcess(world, first.origin)

    async def outcome(agent: Agent, n: int) -> str:
        try:
            return (await agent.write(f"call-{n}", rule=rule)).kind
        except BudgetExceeded:
            return "refused"

    agents = [Agent(first), Agent(second)]
    kinds = await asyncio.gather(*(outcome(agents[n % 2], n) for n in range(30)))
    assert (kinds.count("executed"), kinds.count("refused")) == (3, 27)
    assert first.origin.sent.total() == 3
    assert len(first.rows()) == 3


@in_virtual_time
async def test_who_joins_in_a_run_pays_nothing() -> None:
    """Overlapping identical calls with effects are one."""
    semel, rule, talk = RunProcess(), limited(1), Talk()
    semel.origin.plays("a", talk)
    agent = Agent(semel)
    asked = [agent.start("a", safe=False, rule=rule) for _ in range(4)]
    await talk.sent.wait()
    talk.answer()
    assert sorted([(await one).kind for one in asked]) == ["executed", "joined", "joined", "joined"]
    assert await held(semel) == {"calls": 1}
