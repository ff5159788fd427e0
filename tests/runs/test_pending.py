"""Section 2, rule 2: an identical call of this attempt that is still pending."""

from __future__ import annotations

import asyncio

import pytest

from tests.exchange.stage import Talk, answers, until
from tests.exchange.virtual_time import in_virtual_time
from tests.runs import scenes
from tests.runs.stage import Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

ADA, BOB = b"ada", b"bob"


@in_virtual_time
async def test_with_effects_and_the_same_credentials_it_joins() -> None:
    """One send; both get its answer; the join is counted before the second is answered."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("mail", talk)
    first = agent.start("mail", safe=False, credentials=ADA)
    await talk.sent.wait()
    second = agent.start("mail", safe=False, credentials=ADA)
    await until(lambda: scenes.uses(agent.semel, "mail") == 2)
    talk.answer(body=b"once")
    assert [(await task).kind for task in (first, second)] == ["executed", "joined"]
    assert agent.semel.origin.sent["mail"] == 1


@in_virtual_time
async def test_with_other_credentials_it_does_not_join() -> None:
    """Two people, two calls; the second attempt meets both again, in whatever order."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("mail", talk, answers(200, b"bob's"))
    first = agent.start("mail", safe=False, credentials=ADA)
    await talk.sent.wait()
    assert (await agent.write("mail", credentials=BOB)).body == b"bob's"
    talk.answer(body=b"ada's")
    assert (await first).body == b"ada's"
    again = await asyncio.gather(*(agent.next("a2").write("mail", credentials=who) for who in (ADA, BOB)))
    assert sorted(got.body for got in again) == [b"ada's", b"bob's"]
    assert agent.semel.origin.sent["mail"] == 2


@in_virtual_time
async def test_a_safe_one_does_not_join() -> None:
    """Parallel samples are meant; each is an occurrence, and the second attempt gets each once."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("sample", *(answers(200, b"%d" % n, after=1.0) for n in range(5)))
    samples = await asyncio.gather(*(agent.read("sample") for _ in range(5)))
    assert sorted(got.body for got in samples) == [b"0", b"1", b"2", b"3", b"4"]
    again = await asyncio.gather(*(agent.next("a2").read("sample") for _ in range(5)))
    assert sorted(got.body for got in again) == [b"0", b"1", b"2", b"3", b"4"]
    assert {got.kind for got in again} == {"replayed"}


@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "one after the other"])
@in_virtual_time
async def test_parallel_identical_writes_are_one_in_the_next_attempt_too(parallel: bool) -> None:
    """However its calls overlap this time: three asks, one send, and the fourth is new in both attempts."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("mail", answers(200, b"once", after=1.0))
    assert {got.body for got in await asyncio.gather(*(agent.write("mail") for _ in range(3)))} == {b"once"}
    second = agent.next("a2")
    if parallel:
        again = await asyncio.gather(*(second.write("mail") for _ in range(3)))
    else:
        again = [await second.write("mail") for _ in range(3)]
    assert [got.body for got in again] == [b"once"] * 3
    assert agent.semel.origin.sent["mail"] == 1
    assert (await second.write("mail")).kind == "executed"


@in_virtual_time
async def test_a_number_of_the_clients_own_tells_overlapping_calls_apart() -> None:
    """`Semel-Occurrence: 2` is a deliberate repeat, also while the first is on its way."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("mail", talk, answers(200, b"two"))
    first = agent.start("mail", safe=False)
    await talk.sent.wait()
    assert (await agent.write("mail", occurrence=2)).body == b"two"
    talk.answer(body=b"one")
    assert (await first).body == b"one"
    second = agent.next("a2")
    assert (await second.write("mail", occurrence=2)).body == b"two"
    assert (await second.write("mail")).body == b"one"
    assert agent.semel.origin.sent["mail"] == 2


@in_virtual_time
async def test_who_joins_gets_a_released_answer_too_and_never_claims() -> None:
    """Section 5: what the first caller gets, from the first byte."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("mail", talk)
    tasks = [agent.start("mail", safe=False)]
    await talk.sent.wait()
    tasks += [agent.start("mail", safe=False) for _ in range(2)]
    await until(lambda: scenes.uses(agent.semel, "mail") == 3)
    talk.answer(429, b"later")
    assert [(await task).status for task in tasks] == [429] * 3
    assert agent.semel.origin.sent["mail"] == 1


@in_virtual_time
async def test_a_pending_call_of_another_attempt_is_waited_for() -> None:
    """Two attempts alive at once: the second's first is the first's first, not a new one."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("mail", talk)
    first = agent.start("mail", safe=False)
    await talk.sent.wait()
    second = agent.next("a2").start("mail", safe=False, credentials=BOB)
    await until(lambda: agent.semel.flights.by_key[scenes.row(agent.semel, "mail").key].callers == 2)
    talk.answer(body=b"once")
    assert [(await task).body for task in (first, second)] == [b"once", b"once"]
    assert scenes.uses(agent.semel, "mail") == 1
