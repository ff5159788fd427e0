"""Section 2, divergence: sets are compared, never order; nothing is claimed; each ask is judged afresh."""

from __future__ import annotations

import asyncio

import pytest

from proxy.core.divergence import OnDivergence
from proxy.core.policy import Rule
from proxy.errors import Diverged, InDoubt
from tests.exchange.stage import Talk, answers, lost
from tests.exchange.virtual_time import in_virtual_time
from tests.runs import scenes
from tests.runs.stage import SAME, TENANT, Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")


def now() -> float:
    return asyncio.get_running_loop().time()


async def events(semel: RunProcess) -> list[str]:
    return [entry.event for entry in await semel.store.run_history(TENANT, "r")]


@in_virtual_time
async def test_a_reworded_mail_is_held() -> None:
    """The recorded one was sent and nobody asks for it: it may be the same intention in other words."""
    agent = Agent(RunProcess())
    await agent.write("mail?text=hello")
    second = agent.next("a2")
    began = now()
    with pytest.raises(Diverged) as caught:
        await second.write("mail?text=hi")
    assert now() - began == pytest.approx(2.0, abs=0.2)
    assert caught.value.members["run"] == "r"
    assert scenes.row(agent.semel, "mail?text=hello").id in caught.value.detail
    assert agent.semel.origin.sent == {"mail?text=hello": 1}
    assert "diverged" in await events(agent.semel)
    assert agent.semel.notebook.told_of("diverged")


@in_virtual_time
async def test_diverged_claims_nothing_and_the_next_ask_is_judged_afresh() -> None:
    """No row of it; once the record has been asked, the same call goes out."""
    agent = Agent(RunProcess())
    await agent.write("mail?1")
    second = agent.next("a2")
    for _ in range(2):
        with pytest.raises(Diverged):
            await second.write("mail?2")
    assert len(agent.semel.rows()) == 1
    assert (await second.write("mail?1")).kind == "replayed"
    assert (await second.write("mail?2")).kind == "executed"
    third = agent.next("a3")
    assert [(await third.write(f"mail?{n}")).kind for n in (2, 1)] == ["replayed", "replayed"]


@in_virtual_time
async def test_a_call_of_another_rule_is_not_held() -> None:
    """The mail is unasked; a charge is something else."""
    agent = Agent(RunProcess())
    await agent.write("mail?1")
    began = now()
    assert (await agent.next("a2").write("charge?2")).kind == "executed"
    assert now() == began


@in_virtual_time
async def test_safe_calls_never_diverge_and_are_never_missed() -> None:
    """Neither a new read nor an unasked one."""
    agent = Agent(RunProcess())
    rule = Rule(name="both")
    await agent.read("look?1", rule=rule)
    assert (await agent.next("a2").write("mail?1", rule=rule)).kind == "executed"
    assert (await agent.next("a3").read("look?2", rule=rule)).kind == "executed"


@in_virtual_time
async def test_the_order_does_not_matter() -> None:
    """The second attempt asks for the same mails the other way round."""
    agent = Agent(RunProcess())
    for n in range(4):
        await agent.write(f"mail?{n}")
    second, began = agent.next("a2"), now()
    assert [(await second.write(f"mail?{n}")).kind for n in reversed(range(4))] == ["replayed"] * 4
    assert now() == began


@in_virtual_time
async def test_parallel_branches_in_another_order_meet_within_the_grace() -> None:
    """The new call of one branch comes before the recorded one of the other: it waits, then goes out."""
    agent = Agent(RunProcess())
    await agent.write("mail?left")
    second = agent.next("a2")
    right = second.start("mail?right", safe=False)
    await asyncio.sleep(1.9)
    assert not right.done()
    left = await second.write("mail?left")
    assert left.kind == "replayed"
    assert (await right).kind == "executed"
    assert agent.semel.origin.sent == {"mail?left": 1, "mail?right": 1}


@in_virtual_time
async def test_the_grace_ends_as_soon_as_the_record_has_been_asked() -> None:
    """No call waits longer than it must, and asking counts, not being answered."""
    agent = Agent(RunProcess())
    await agent.write("mail?left")
    second = agent.next("a2")
    right = second.start("mail?right", safe=False)
    await asyncio.sleep(0.5)
    await scenes.begun(second, "mail?left", safe=False)
    await right
    assert now() < 1.0


@in_virtual_time
async def test_a_record_that_is_asked_after_the_grace_comes_too_late_for_that_ask() -> None:
    """Held at two seconds; the ask after that is free."""
    agent = Agent(RunProcess())
    await agent.write("mail?left")
    second = agent.next("a2")
    right = second.start("mail?right", safe=False)
    await asyncio.sleep(2.5)
    await second.write("mail?left")
    with pytest.raises(Diverged):
        await right
    assert (await second.write("mail?right")).kind == "executed"


@in_virtual_time
async def test_the_first_attempt_never_diverges() -> None:
    """Only a later one can leave what an earlier one did."""
    agent = Agent(RunProcess())
    for n in range(3):
        assert (await agent.write(f"mail?{n}")).kind == "executed"
    assert now() == 0.0


@in_virtual_time
async def test_what_this_attempt_did_itself_is_asked() -> None:
    """After the record is used up it goes on as the first one did."""
    agent = Agent(RunProcess())
    await agent.write("mail?0")
    second = agent.next("a2")
    for n in range(3):
        await second.write(f"mail?{n}")
    assert agent.semel.origin.sent == {"mail?0": 1, "mail?1": 1, "mail?2": 1}


@in_virtual_time
async def test_a_call_in_doubt_or_pending_is_missed_too() -> None:
    """It may have been executed."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("mail?1", lost())
    with pytest.raises(InDoubt):
        await agent.write("mail?1")
    with pytest.raises(Diverged):
        await agent.next("a2").write("mail?2")
    agent.semel.origin.plays("charge?1", talk)
    caller = agent.start("charge?1", safe=False)
    await talk.sent.wait()
    with pytest.raises(Diverged):
        await agent.next("a2").write("charge?2")
    talk.answer()
    await caller


@in_virtual_time
async def test_a_released_or_forgotten_call_is_not_missed() -> None:
    """It was not executed, or a person said that it does not count."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("mail?1", answers(429))
    await agent.write("mail?1")
    await agent.write("charge?1")
    await scenes.forget(agent.semel, scenes.row(agent.semel, "charge?1"))
    second = agent.next("a2")
    assert (await second.write("mail?2")).kind == "executed"
    assert (await second.write("charge?2")).kind == "executed"


@in_virtual_time
async def test_on_divergence_allow_lets_it_pass_and_notes_it() -> None:
    """After the same wait; the run's history says so."""
    agent = Agent(RunProcess(on_divergence=OnDivergence.ALLOW))
    await agent.write("mail?1")
    assert (await agent.next("a2").write("mail?2")).kind == "executed"
    history = await agent.semel.store.run_history(TENANT, "r")
    (told,) = [entry.why for entry in history if entry.event == "diverged"]
    assert told.startswith("allowed: ")
    assert "send (step 1)" in told


@in_virtual_time
async def test_retired_calls_do_not_hold_but_are_still_replayed() -> None:
    """`runs allow` retires what is unasked now, and opens nothing else."""
    agent = Agent(RunProcess())
    await agent.write("mail?1")
    second = agent.next("a2")
    with pytest.raises(Diverged):
        await second.write("mail?2")
    await scenes.retire(agent.semel, scenes.row(agent.semel, "mail?1"))
    assert (await second.write("mail?2")).kind == "executed"
    # What came since is not retired.
    third = agent.next("a3")
    with pytest.raises(Diverged):
        await third.write("mail?3")
    assert (await third.write("mail?1")).kind == "replayed"
    assert agent.semel.origin.sent == {"mail?1": 1, "mail?2": 1}


@in_virtual_time
async def test_one_more_of_what_is_recorded_is_new_too() -> None:
    """The second identical mail is not in the record, and another of its rule is unasked."""
    agent = Agent(RunProcess())
    await agent.write("mail?1")
    await agent.write("mail?2")
    second = agent.next("a2")
    assert (await second.write("mail?1")).kind == "replayed"
    with pytest.raises(Diverged):
        await second.write("mail?1")
    assert agent.semel.origin.sent["mail?1"] == 1


@in_virtual_time
async def test_a_call_that_is_held_does_not_hide_behind_same() -> None:
    """`repeat: same` makes no difference to what is not in the record."""
    agent, rule = Agent(RunProcess()), Rule(name="guard", safe=False, repeat=SAME)
    await agent.write("mail?1", rule=rule)
    with pytest.raises(Diverged):
        await agent.next("a2").write("mail?2", rule=rule)


@in_virtual_time
async def test_being_asked_by_another_attempt_does_not_count() -> None:
    """Each attempt is compared for itself."""
    agent = Agent(RunProcess())
    await agent.write("mail?1")
    await agent.next("a2").write("mail?1")
    with pytest.raises(Diverged):
        await agent.next("a3").write("mail?2")


@in_virtual_time
async def test_divergence_is_seen_by_another_proxy_too() -> None:
    """What was asked is in the store, not in the process."""
    semel = RunProcess()
    await Agent(semel).write("mail?1")
    await Agent(semel).write("mail?2")
    await Agent(semel, "a2").write("mail?1")
    other = Agent(RunProcess(semel.world, semel.origin), "a2")
    with pytest.raises(Diverged):
        await other.write("mail?3")
    await Agent(semel, "a2").write("mail?2")
    assert (await other.write("mail?3")).kind == "executed"
