"""Doubt that can be settled, and calls that a person permits, inside runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy import operator
from proxy.core.clauses import Approval, OnDoubt, Probe, UpstreamKey
from proxy.core.intent import Call, State
from proxy.core.policy import Rule, Scope
from proxy.errors import AwaitingApproval, Denied, InDoubt
from tests.exchange.stage import Got, Talk, answers, lost, until
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import EPOCH, in_virtual_time
from tests.runs import scenes
from tests.runs.stage import Agent, ByCall, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

KEYED = Rule(name="pay", safe=False, upstream_key=UpstreamKey(header="x-key"), in_doubt=OnDoubt.RESEND)
PROBE = Probe(method="GET", target="/find?at={sent_at}", found="found", settle=0.0)
PROBED = Rule(name="mail", safe=False, in_doubt=OnDoubt.PROBE, probe=PROBE)
GUARDED = Rule(name="pay", safe=False, approval=Approval(wait=5.0, expires=3600.0))


async def died_sending(name: str, rule: Rule) -> tuple[World, ByCall]:
    """The first attempt's proxy dies while it sends."""
    world, origin = World(), ByCall()
    origin.steps[name] = [talk := Talk()]
    first = RunProcess(world, origin)
    caller = Agent(first).start(name, safe=False, rule=rule)
    await until(talk.sent.is_set)
    await first.die()
    await asyncio.gather(caller, return_exceptions=True)
    return world, origin


@in_virtual_time
async def test_the_next_attempt_resends_and_goes_on() -> None:
    """One row, one occurrence; a legitimate second call after it is a new one."""
    world, origin = await died_sending("pay", KEYED)
    again = Agent(RunProcess(world, origin), attempt="a2")
    assert (await again.write("pay", rule=KEYED)).kind == "executed"
    assert (await again.write("pay", rule=KEYED)).kind == "executed"
    assert [row.occurrence for row in world.calls.values()] == [1, 2]
    assert {row.state for row in world.calls.values()} == {State.DONE}
    third = again.next("a3")
    assert [(await third.write("pay", rule=KEYED)).kind for _ in range(2)] == ["replayed"] * 2


@in_virtual_time
async def test_a_loss_that_is_resent_at_once_is_one_use() -> None:
    """The agent never knew: its second identical call is meant."""
    origin = ByCall()
    origin.steps["pay"] = [lost(), answers(200, b"one"), answers(200, b"two")]
    agent = Agent(RunProcess(None, origin))
    assert await agent.write("pay", rule=KEYED) == Got("executed", 200, b"one")
    assert await agent.write("pay", rule=KEYED) == Got("executed", 200, b"two")
    again = agent.next("a2")
    assert [(await again.write("pay", rule=KEYED)).body for _ in range(2)] == [b"one", b"two"]


@in_virtual_time
async def test_a_doubt_that_was_given_and_acted_upon_is_given_again() -> None:
    """The agent went on knowing that it was in doubt: a later attempt must not find it done by a resend."""
    origin = ByCall()
    origin.steps["pay"] = [lost()] * 4
    agent = Agent(RunProcess(None, origin))
    with pytest.raises(InDoubt):
        await agent.write("pay", rule=KEYED)
    await agent.write("other")
    sent = origin.sent["pay"]
    with pytest.raises(InDoubt):
        await agent.next("a2").write("pay", rule=KEYED)
    assert origin.sent["pay"] == sent


@in_virtual_time
async def test_a_doubt_stays_given_when_a_resend_dies() -> None:
    """The first attempt knew it, an effect came after it, the proxy died in the resend: told again."""
    world, origin = World(), ByCall()
    origin.plays("pay", *[lost()] * 4, talk := Talk())
    first = RunProcess(world, origin)
    with pytest.raises(InDoubt):
        await Agent(first).write("pay", rule=KEYED)
    second = Agent(first, attempt="a2")
    resending = second.start("pay", safe=False, rule=KEYED)
    await until(talk.sent.is_set)
    await second.write("other")
    await first.die()
    await asyncio.gather(resending, return_exceptions=True)
    with pytest.raises(InDoubt):
        await Agent(RunProcess(world, origin), attempt="a3").write("pay", rule=KEYED)
    assert origin.sent["pay"] == 5


@in_virtual_time
async def test_a_fork_does_not_resend_its_parents_call() -> None:
    """It has no row of it: a send there would be a new call under a new key."""
    world, origin = await died_sending("pay", KEYED)
    semel = RunProcess(world, origin)
    await scenes.fork(semel, "f", at=1)
    sent = origin.sent["pay"]
    with pytest.raises(InDoubt, match="belongs to the run r"):
        await Agent(semel, attempt="x1", run="f").write("pay", rule=KEYED)
    assert origin.sent["pay"] == sent


@in_virtual_time
@pytest.mark.parametrize("found", [True, False])
async def test_a_probe_settles_it_for_the_run(found: bool) -> None:
    """Found: its answer. Absent after its time: the very occurrence is sent, whatever an earlier attempt was
    told, and though a parallel call has been made since."""
    origin = ByCall()
    origin.plays("mail", lost(after=5.0))
    agent = Agent(RunProcess(None, origin))
    asking = agent.start("mail", safe=False, rule=PROBED)
    await until(lambda: origin.sent["mail"] == 1)
    await agent.write("other")
    with pytest.raises(InDoubt):
        await asking
    await asyncio.sleep(700)
    origin.plays(f"find?at={int(EPOCH)}", answers(200, b'{"found": %s}' % (b"true" if found else b"false")))
    again = agent.next("a2")
    got = [await again.write("mail", rule=PROBED), await again.write("other")]
    assert [each.kind for each in got] == ["replayed" if found else "executed", "replayed"]
    assert origin.sent["mail"] == (1 if found else 2)
    assert [(await again.next("a3").write("mail", rule=PROBED)).kind] == ["replayed"]


@in_virtual_time
async def test_a_call_of_a_run_waits_and_is_the_same_occurrence_afterwards() -> None:
    """The process exits; the next attempt asks again, and it goes out once."""
    origin = ByCall()
    semel = RunProcess(None, origin)
    agent = Agent(semel)
    await agent.read("look")
    with pytest.raises(AwaitingApproval):
        await agent.write("pay", rule=GUARDED)
    (row,) = [row for row in semel.rows() if not row.safe]
    assert (row.state, row.occurrence, row.seq) == (State.AWAITING_APPROVAL, 1, 2)
    with pytest.raises(AwaitingApproval):
        await agent.write("pay", rule=GUARDED)
    await approve(semel, row)
    await asyncio.sleep(2 * 86400)
    again = agent.next("a2")
    assert (await again.read("look")).kind == "replayed"
    assert (await again.write("pay", rule=GUARDED)).kind == "executed"
    with pytest.raises(AwaitingApproval):  # a second one needs its own permission
        await again.write("pay", rule=GUARDED)
    assert (await again.next("a3").write("pay", rule=GUARDED)).kind == "replayed"
    assert origin.sent["pay"] == 1


@in_virtual_time
@pytest.mark.parametrize("asks", [1, 3])
@pytest.mark.parametrize("lapses", [False, True])
async def test_a_healthy_attempt_that_makes_it_twice_is_asked_twice(asks: int, lapses: bool) -> None:
    """The question itself serves nobody: a second identical call is a second one, not a replay."""
    origin = ByCall()
    semel = RunProcess(None, origin)
    agent = Agent(semel)
    for _ in range(asks):
        with pytest.raises(AwaitingApproval):
            await agent.write("pay", rule=GUARDED)
    if lapses:
        await asyncio.sleep(4000)
        with pytest.raises(AwaitingApproval):
            await agent.write("pay", rule=GUARDED)
    for n in (1, 2):
        await approve(semel, semel.rows()[-1])
        assert (await agent.write("pay", rule=GUARDED)).kind == "executed"
        assert origin.sent["pay"] == n
        with pytest.raises(AwaitingApproval):
            await agent.write("pay", rule=GUARDED)


@in_virtual_time
async def test_a_doubt_is_not_told_when_its_answer_has_come() -> None:
    """Between reading the doubt and writing that it was given, the late answer lands."""
    world, origin = World(), ByCall()
    origin.plays("pay", talk := Talk())
    first = RunProcess(world, origin)
    caller = Agent(first).start("pay", safe=False)
    await until(talk.sent.is_set)
    first.store.declare_dead()
    second = RunProcess(world, origin)

    async def lands(row: Call) -> None:
        if row.state is State.IN_DOUBT and row.in_run is not None and row.in_run.receipts:
            second.store.before_swap = None
            talk.answer(201, b"late")
            await until(lambda: any(call.state is State.DONE for call in world.calls.values()))

    second.store.before_swap = lands
    assert (await Agent(second, attempt="a2").write("pay")).body == b"late"
    await caller


@in_virtual_time
@pytest.mark.parametrize("collected", [False, True])
async def test_a_shared_call_that_has_lapsed_is_not_made_again(collected: bool) -> None:
    """The proxy died when the tenant's call was done and the run's was not; it comes back after the ttl."""
    shared = Rule(name="pay", safe=False, scope=Scope.TENANT, ttl=3600.0)
    world, origin, stuck = World(), ByCall(), asyncio.Event()
    first = RunProcess(world, origin)

    async def hangs(row: Call) -> None:
        if row.run and row.state is State.DONE:
            stuck.set()
            await asyncio.sleep(1e6)

    first.store.before_swap = hangs
    caller = Agent(first).start("pay", safe=False, rule=shared)
    await stuck.wait()
    await first.die()
    await asyncio.gather(caller, return_exceptions=True)
    await asyncio.sleep(2 * 86400)
    second = RunProcess(world, origin)
    if collected:
        await second.store.collect(second.clock.now())
    with pytest.raises(InDoubt, match="has lapsed"):
        await Agent(second, attempt="a2").write("pay", rule=shared)
    assert origin.sent["pay"] == 1


@in_virtual_time
async def test_who_waits_in_a_run_goes_on_when_it_is_permitted_or_refused() -> None:
    """Within the rule's patience."""
    for decide, ends in ((approve, "executed"), (deny, "denied")):
        semel = RunProcess()
        caller = Agent(semel).start("pay", safe=False, rule=GUARDED)
        await until(lambda: bool(semel.rows()))  # noqa: B023 (awaited at once)
        await decide(semel, semel.rows()[0])
        if ends == "executed":
            assert (await caller).kind == "executed"
        else:
            with pytest.raises(Denied, match="no"):
                await caller


@in_virtual_time
async def test_a_call_that_the_tenant_shares_waits_once_for_all_runs() -> None:
    """What is permitted is the shared call; the runs are filled from it."""
    shared = replace(GUARDED, scope=Scope.TENANT)
    origin = ByCall()
    semel = RunProcess(None, origin)
    for run in ("r", "s"):
        with pytest.raises(AwaitingApproval):
            await Agent(semel, run=run).write("pay", rule=shared)
    (row,) = [row for row in semel.rows() if row.state is State.AWAITING_APPROVAL]
    assert row.run == ""
    await approve(semel, row)
    got = [(await Agent(semel, run=run).write("pay", rule=shared)).whole for run in ("r", "s")]
    assert got == [True, True]
    assert origin.sent["pay"] == 1


async def approve(semel: RunProcess, row: Call) -> None:
    await operator.approve(semel.store, semel.clock, row.id, reason="yes", actor="ada", version=row.version)
    semel.books.changed_beside()


async def deny(semel: RunProcess, row: Call) -> None:
    await operator.deny(semel.store, semel.clock, row.id, reason="no", actor="ada", version=row.version)
    semel.books.changed_beside()
