"""Section 2: a fork refers to its parent's rows."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy.core.intent import State
from proxy.core.run_record import RunEntry, RunState
from proxy.errors import Diverged, InDoubt, RunExpired
from tests.exchange.stage import answers, lost
from tests.exchange.virtual_time import in_virtual_time
from tests.runs import scenes
from tests.runs.stage import MONTH, TENANT, Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")


async def parent_of_six(semel: RunProcess) -> Agent:
    """Steps 1 to 6: read, write, read | read, write, read. Forks are made at 3."""
    agent = Agent(semel)
    for n in (1, 4):
        await agent.read(f"look?{n}")
        await agent.write(f"send?{n + 1}")
        await agent.read(f"look?{n + 2}")
    return replace_run(agent, "f")


def replace_run(agent: Agent, run: str, attempt: str = "f1") -> Agent:
    return Agent(agent.semel, attempt, run)


@in_virtual_time
async def test_all_answers_up_to_n_are_given_again_and_those_after_it_go_live() -> None:
    """Reads after N are made anew, in the fork's own record."""
    semel = RunProcess()
    fork = await parent_of_six(semel)
    await scenes.fork(semel, "f", at=3)
    assert [(await fork.read(f"look?{n}")).kind for n in (1, 3)] == ["replayed", "replayed"]
    assert (await fork.write("send?2")).kind == "replayed"
    assert [(await fork.read(f"look?{n}")).kind for n in (4, 6)] == ["executed", "executed"]
    assert scenes.row(semel, "look?4", run="f", origin="r").seq > 6


@in_virtual_time
async def test_the_parents_calls_with_effects_are_referred_to_always() -> None:
    """Also those after N: nothing that happened happens again."""
    semel = RunProcess()
    fork = await parent_of_six(semel)
    await scenes.fork(semel, "f", at=3)
    assert [(await fork.write(f"send?{n}")).kind for n in (2, 5)] == ["replayed", "replayed"]
    assert (await fork.write("send?5")).kind == "executed"
    assert semel.origin.sent["send?5"] == 2


@in_virtual_time
async def test_resend_opts_out_after_n() -> None:
    """What lies before N stays the past."""
    semel = RunProcess()
    fork = await parent_of_six(semel)
    await scenes.fork(semel, "f", at=3, resend=True)
    assert (await fork.write("send?2")).kind == "replayed"
    assert (await fork.write("send?5")).kind == "executed"
    assert (await fork.next("f2").write("send?5")).kind == "replayed"
    assert semel.origin.sent == {"look?1": 1, "send?2": 1, "look?3": 1, "look?4": 1, "send?5": 2, "look?6": 1}


@in_virtual_time
async def test_identical_calls_are_counted_over_both() -> None:
    """The fork's third poll is its own second, under a number that is free."""
    semel = RunProcess()
    agent = Agent(semel)
    for _ in range(4):
        await agent.read("poll")
    await scenes.fork(semel, "f", at=2)
    fork = replace_run(agent, "f")
    assert [(await fork.read("poll")).body for _ in range(4)] == [
        b"poll #1",
        b"poll #2",
        b"poll #5",
        b"poll #6",
    ]
    again = fork.next("f2")
    assert [(await again.read("poll")).body for _ in range(4)] == [
        b"poll #1",
        b"poll #2",
        b"poll #5",
        b"poll #6",
    ]


@in_virtual_time
async def test_parent_rows_after_n_never_cause_divergence() -> None:
    """The fork is there to go another way; what lies before N is still missed."""
    semel = RunProcess()
    fork = await parent_of_six(semel)
    await scenes.fork(semel, "f", at=3)
    with pytest.raises(Diverged):
        await fork.write("send?other")
    await fork.write("send?2")
    assert (await fork.write("send?other")).kind == "executed"
    assert semel.origin.sent["send?5"] == 1


@in_virtual_time
async def test_the_attempts_of_parent_and_fork_may_have_the_same_names() -> None:
    """Who asked in the parent says nothing about the fork."""
    semel = RunProcess()
    await parent_of_six(semel)
    await scenes.fork(semel, "f", at=3)
    fork = Agent(semel, "a1", "f")
    with pytest.raises(Diverged):
        await fork.write("send?other")
    assert (await fork.read("look?1")).kind == "replayed"
    assert (await fork.write("send?2")).kind == "replayed"
    assert (await fork.write("send?other")).kind == "executed"


@in_virtual_time
async def test_up_to_n_failures_are_answers_too() -> None:
    """The fork meets the past as it was, with or without an effect after it."""
    semel = RunProcess()
    agent = Agent(semel)
    semel.origin.plays("look", answers(503))
    await agent.read("look")
    await scenes.fork(semel, "f", at=1)
    assert (await replace_run(agent, "f").read("look")).status == 503
    assert (await agent.next("a2").read("look")).status == 200


@in_virtual_time
async def test_a_doubt_of_the_parent_is_held_in_the_fork_too() -> None:
    """Before N and after it: the effect may be out there."""
    semel = RunProcess()
    agent = Agent(semel)
    for name in ("one", "two"):
        semel.origin.plays(name, lost())
        with pytest.raises(InDoubt):
            await agent.write(name)
    await scenes.fork(semel, "f", at=1)
    for name in ("one", "two"):
        with pytest.raises(InDoubt):
            await replace_run(agent, "f").write(name)
        assert semel.origin.sent[name] == 1
    await scenes.resolve(semel, scenes.row(semel, "two"), body=b"found")
    assert (await replace_run(agent, "f", "f2").write("two")).body == b"found"


@in_virtual_time
async def test_the_parent_does_not_see_its_forks_calls() -> None:
    """It goes on as if there were none."""
    semel = RunProcess()
    fork = await parent_of_six(semel)
    await scenes.fork(semel, "f", at=3)
    await fork.read("look?new")
    await fork.write("charge?new")
    parent = Agent(semel, "a2")
    assert (await parent.read("look?new")).body == b"look?new #2"
    assert (await parent.write("charge?new")).body == b"charge?new #2"


@in_virtual_time
async def test_what_a_fork_uses_does_not_use_up_the_parents() -> None:
    """A retry in the fork is the fork's: the parent's next attempt still finds two mails, one each."""
    semel = RunProcess()
    agent = Agent(semel)
    for _ in range(2):
        await agent.write("mail")
    await scenes.fork(semel, "f", at=2)
    fork = replace_run(agent, "f")
    for _ in range(2):
        assert (await fork.write("mail", tokens=frozenset({"k"}))).body == b"mail #1"
    second = agent.next("a2")
    assert [(await second.write("mail")).body for _ in range(2)] == [b"mail #1", b"mail #2"]


@in_virtual_time
async def test_effects_that_the_parent_makes_later_were_not_made_after_the_forks_failures() -> None:
    """Two runs go on side by side: nothing in the fork's record came after its failure, so it goes live."""
    semel = RunProcess()
    agent = Agent(semel)
    await agent.read("look")
    await scenes.fork(semel, "f", at=1)
    fork = replace_run(agent, "f")
    semel.origin.plays("a", answers(429), answers(429))
    assert (await fork.write("a")).status == 429
    for n in range(3):
        await agent.write(f"parent?{n}")
    assert (await fork.write("a", retry_count=1)).kind == "executed"
    assert (await fork.next("f2").write("a")).status == 200


@in_virtual_time
async def test_a_nested_fork_refers_to_all_that_came_before() -> None:
    """Answers up to both points, effects of all of them."""
    semel = RunProcess()
    fork = await parent_of_six(semel)  # r: 1 to 6
    await scenes.fork(semel, "f", at=3)
    await fork.read("look?7")  # f: 7 to 9
    await fork.write("send?2")
    await fork.write("send?8")
    await fork.read("look?9")
    await scenes.fork(semel, "g", of="f", at=8)
    nested = Agent(semel, "g1", "g")
    assert [(await nested.read(f"look?{n}")).kind for n in (1, 3, 7)] == ["replayed"] * 3
    assert [(await nested.write(f"send?{n}")).kind for n in (2, 5, 8)] == ["replayed"] * 3
    assert [(await nested.read(f"look?{n}")).kind for n in (4, 6, 9)] == ["executed"] * 3
    run = await semel.store.get_run(TENANT, "g")
    assert run is not None
    assert run.origin == "r"


@in_virtual_time
async def test_a_nested_fork_before_the_first_one_sees_less_of_the_first() -> None:
    """The earlier of both points counts."""
    semel = RunProcess()
    await parent_of_six(semel)
    await scenes.fork(semel, "f", at=3)
    await scenes.fork(semel, "g", of="f", at=1)
    nested = Agent(semel, "g1", "g")
    assert (await nested.read("look?1")).kind == "replayed"
    assert (await nested.read("look?3")).kind == "executed"
    assert (await nested.write("send?2")).kind == "replayed"


@pytest.mark.parametrize("name", [f"a?{n}" for n in range(8)])
@in_virtual_time
async def test_of_two_ancestors_the_nearer_one_stands(name: str) -> None:
    """A call that the first run was refused, and the fork made: the nested fork gets the fork's answer."""
    semel = RunProcess()
    agent = Agent(semel)
    await agent.read("look")
    semel.origin.plays(name, answers(429))
    await agent.write(name)
    await scenes.fork(semel, "f", at=1)
    assert (await replace_run(agent, "f").write(name)).body == f"{name} #2".encode()
    await scenes.fork(semel, "g", of="f", at=3)
    got = await replace_run(agent, "g", "g1").write(name)
    assert (got.kind, got.body) == ("replayed", f"{name} #2".encode())


@in_virtual_time
async def test_rows_that_a_living_fork_refers_to_are_kept() -> None:
    """The parent's name is refused, its rows stay; when the fork's time is over too, both go."""
    semel = RunProcess()
    fork = await parent_of_six(semel)
    await scenes.fork(semel, "f", at=3)
    await asyncio.sleep(MONTH - 10)
    assert (await fork.read("look?1")).kind == "replayed"
    await asyncio.sleep(20)
    now = semel.clock.now()
    assert (await semel.store.collect(now, runs_before=now - MONTH)).calls == 0
    with pytest.raises(RunExpired):
        await Agent(semel, "a2").read("look?1")
    assert (await fork.next("f2").write("send?5")).kind == "replayed"
    await asyncio.sleep(MONTH + 1)
    now = semel.clock.now()
    assert (await semel.store.collect(now, runs_before=now - MONTH)).calls == 6
    with pytest.raises(RunExpired):
        await fork.read("look?1")


@in_virtual_time
async def test_a_released_effect_after_n_is_made_in_the_fork() -> None:
    """It did not happen, and nothing came after it."""
    semel = RunProcess()
    agent = Agent(semel)
    await agent.read("look")
    semel.origin.plays("a", answers(429))
    await agent.write("a")
    await scenes.fork(semel, "f", at=1)
    assert (await replace_run(agent, "f").write("a")).kind == "executed"
    assert scenes.row(semel, "a", run="r").state is State.RELEASED


@in_virtual_time
async def test_parent_rows_after_n_cause_no_divergence_though_the_attempts_have_the_same_names() -> None:
    """The fork's second attempt has an earlier one called as the parent's was."""
    semel = RunProcess()
    await parent_of_six(semel)
    await scenes.fork(semel, "f", at=0)
    await Agent(semel, "a1", "f").read("look?1")
    assert (await Agent(semel, "a2", "f").write("send?other")).kind == "executed"
    assert (await Agent(semel, "a2", "f").write("send?5")).kind == "replayed"


@pytest.mark.parametrize("retried", [False, True], ids=["plainly", "after a retry in the fork"])
@in_virtual_time
async def test_what_the_parent_was_refused_before_an_effect_is_refused_in_the_fork_too(retried: bool) -> None:
    """Provider A failed, B was used, after N: B is referred to always, so A must fail again."""
    semel = RunProcess()
    agent = Agent(semel)
    await agent.write("mail")
    semel.origin.plays("a", answers(429, b"no"))
    await agent.write("a")
    await agent.write("b")
    await scenes.fork(semel, "f", at=1)
    fork = replace_run(agent, "f")
    for _ in range(1 + retried):
        assert (await fork.write("mail", tokens=frozenset({"k"}))).kind == "replayed"
    assert (await fork.write("a")).body == b"no"
    assert (await fork.write("b")).kind == "replayed"
    assert semel.origin.sent == {"mail": 1, "a": 1, "b": 1}


@in_virtual_time
async def test_a_fork_whose_parent_is_gone_is_refused() -> None:
    """It should not happen: a parent is kept as long as a fork of it lives. But then nobody would know any
    more what was done, and everything would be done again."""
    semel = RunProcess()
    fork = await parent_of_six(semel)
    await scenes.fork(semel, "f", at=3)
    assert (await fork.write("send?2")).kind == "replayed"
    run = await semel.store.get_run(TENANT, "r")
    assert run is not None
    gone = replace(run, state=RunState.EXPIRED, version=run.version + 1)
    entry = RunEntry(semel.clock.now(), "operator:ada", "expired", "by mistake")
    assert await semel.store.swap_run(gone, entry, expected=run.version)
    semel.books.changed_beside()
    with pytest.raises(RunExpired, match="whose record is over"):
        await fork.write("send?5")
    assert semel.origin.sent["send?5"] == 1
