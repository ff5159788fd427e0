"""Two proxies on one store, one attempt spread over both; and two attempts alive at once."""

from __future__ import annotations

import asyncio

import pytest

from proxy.core.occurrence import MARK_LAG
from proxy.errors import UpstreamUnreachable
from proxy.recovery import sweep_once
from proxy.upstream.base import Lost
from tests.exchange.stage import Talk, answers, not_sent, until
from tests.exchange.virtual_time import in_virtual_time
from tests.runs import scenes
from tests.runs.scenes import Marks
from tests.runs.stage import Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

EITHER = pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])


def two(attempt: str = "a1") -> tuple[Agent, Agent]:
    """One attempt behind two proxies."""
    one = RunProcess()
    other = RunProcess(one.world, one.origin)
    return Agent(one, attempt), Agent(other, attempt)


def now() -> float:
    return asyncio.get_running_loop().time()


@EITHER
@in_virtual_time
async def test_one_attempt_counts_over_both(safe: bool) -> None:
    """Whichever proxy it asks, the n-th identical call is the n-th."""
    left, right = two()
    bodies = [(await each.ask("call", safe=safe)).body for each in (left, right, right, left)]
    assert bodies == [b"call #1", b"call #2", b"call #3", b"call #4"]
    again = [(await each.next("a2").ask("call", safe=safe)).body for each in (right, left, left, right)]
    assert again == bodies
    assert left.semel.origin.sent["call"] == 4


@in_virtual_time
async def test_overlapping_writes_are_one_over_both() -> None:
    """The other proxy watches the row and counts the join first."""
    left, right = two()
    talk = Talk()
    left.semel.origin.plays("mail", talk)
    first = left.start("mail", safe=False)
    await talk.sent.wait()
    second = right.start("mail", safe=False)
    await until(lambda: scenes.uses(left.semel, "mail") == 2)
    talk.answer(body=b"once")
    assert [(await task).body for task in (first, second)] == [b"once", b"once"]
    assert left.semel.origin.sent["mail"] == 1


@in_virtual_time
async def test_who_watches_from_afar_gets_a_released_answer_too() -> None:
    """It never claims in the other's place."""
    left, right = two()
    talk = Talk()
    left.semel.origin.plays("mail", talk)
    first = left.start("mail", safe=False)
    await talk.sent.wait()
    second = right.start("mail", safe=False)
    await until(lambda: scenes.uses(left.semel, "mail") == 2)
    talk.answer(429, b"later")
    assert [(await task).status for task in (first, second)] == [429, 429]
    assert left.semel.origin.sent["mail"] == 1


@in_virtual_time
async def test_parallel_samples_over_both_are_occurrences_of_their_own() -> None:
    """Also when both proxies take the same number at once: one of them takes the next."""
    left, right = two()
    left.semel.origin.plays("sample", *(answers(200, b"%d" % n, after=1.0) for n in range(6)))
    got = await asyncio.gather(*(each.read("sample") for each in (left, right) * 3))
    assert sorted(each.body for each in got) == [b"%d" % n for n in range(6)]
    again = await asyncio.gather(*(each.next("a2").read("sample") for each in (left, right) * 3))
    assert sorted(each.body for each in again) == [b"%d" % n for n in range(6)]


@in_virtual_time
async def test_identical_writes_that_both_claim_at_once_are_one() -> None:
    """The claim decides: whoever loses it joins the winner."""
    left, right = two()
    left.semel.origin.plays("mail", answers(200, b"once", after=1.0))
    got = await asyncio.gather(*(each.write("mail") for each in (left, right) * 3))
    assert {each.body for each in got} == {b"once"}
    assert left.semel.origin.sent["mail"] == 1


@EITHER
@in_virtual_time
async def test_a_mark_that_arrives_late_is_waited_for_before_a_send_with_effects(safe: bool) -> None:
    """The other proxy has handed on in full, and says so half a second later."""
    left, right = two()
    marks = Marks.kept_back(left.semel)
    await left.ask("call", safe=safe)
    second = right.start("call", safe=safe)
    await asyncio.sleep(0.5)
    assert second.done() is safe  # a sample need not wait
    marks.deliver()
    assert (await second).body == b"call #2"
    assert now() < MARK_LAG


@in_virtual_time
async def test_a_late_mark_that_says_abandoned_makes_it_a_retry() -> None:
    """The caller left the first proxy and asked the second at once."""
    left, right = two()
    marks = Marks.kept_back(left.semel)
    await left.write("mail", taken=False)
    second = right.start("mail", safe=False)
    await asyncio.sleep(0.5)
    marks.deliver()
    assert (await second).body == b"mail #1"
    assert left.semel.origin.sent["mail"] == 1
    assert scenes.uses(left.semel, "mail") == 1


@in_virtual_time
async def test_without_the_mark_the_record_answers_in_the_end() -> None:
    """It is taken for overlapping: a replay, never a send."""
    left, right = two()
    Marks.kept_back(left.semel)
    await left.write("mail")
    assert (await right.write("mail")).body == b"mail #1"
    assert MARK_LAG <= now() < MARK_LAG + 0.5
    assert left.semel.origin.sent["mail"] == 1


@in_virtual_time
async def test_a_retry_by_count_waits_for_the_mark_of_the_other_proxy() -> None:
    """Whether the first was abandoned or taken decides which occurrence it is."""
    left, right = two()
    await left.read("call")
    marks = Marks.kept_back(left.semel)
    await left.read("call", taken=False)
    again = right.start("call", safe=True, retry_count=1)
    await asyncio.sleep(0.2)
    assert not again.done()
    marks.deliver()
    assert (await again).body == b"call #2"
    assert left.semel.origin.sent["call"] == 2


@in_virtual_time
async def test_a_read_that_failed_and_is_tried_at_the_other_proxy_is_the_same_call() -> None:
    """That it failed is marked late too. Were the second try another call, the failure would stand before it
    for ever: a later attempt that tries until it succeeds would be told of the failure again and again."""
    left, right = two()
    left.semel.origin.plays("look", not_sent(), not_sent())
    marks = Marks.kept_back(left.semel)
    with pytest.raises(UpstreamUnreachable):
        await left.read("look")
    second = right.start("look", safe=True)
    await asyncio.sleep(0.5)
    marks.deliver()
    seen = (await second).body
    await right.write("mail")
    again = right.next("a2")
    assert (await again.read("look")).body == seen
    assert [call.occurrence for call in left.semel.rows() if call.safe] == [1]


@in_virtual_time
async def test_a_problem_that_is_not_written_down_is_not_given() -> None:
    """A proxy stood still, was taken for dead, and its read was released. What it would tell when it wakes is
    nowhere, and a later attempt would take another way: it asks anew. Found by the simulation (seed 1014)."""
    left, right = two()
    semel, talk = left.semel, Talk()
    if not semel.world.ground.renews:
        pytest.skip("an embedded owner keeps its name for as long as it lives")
    semel.origin.plays("look", talk, not_sent())
    first = left.start("look", safe=True)
    await talk.sent.wait()
    semel.store.declare_dead()
    assert await sweep_once(right.semel.store, right.semel.ledger, right.semel.notebook) == 1
    semel.store.renew()
    talk.end(Lost("no answer"))
    seen = (await first).body
    assert (await right.write("mail")).body == b"mail #1"
    assert (await right.next("a2").read("look")).body == seen
    assert semel.origin.sent["look"] == 2


@in_virtual_time
async def test_two_attempts_alive_at_once_each_count_from_one() -> None:
    """The old agent was not dead after all: what either does is in the record, and nothing is sent twice."""
    left, right = two()
    right = right.next("a2")
    script = ["mail?1", "mail?2", "charge", "mail?3"]

    async def play(agent: Agent) -> list[bytes]:
        bodies = []
        for name in script:
            bodies.append((await agent.write(name)).body)
            bodies.append((await agent.read(f"look?{name}")).body)
            await asyncio.sleep(0.1)
        return bodies

    first, second = await asyncio.gather(play(left), play(right))
    assert first == second
    assert set(left.semel.origin.sent.values()) == {1}


@in_virtual_time
async def test_a_retry_at_the_other_proxy_after_the_first_died_joins_nothing_and_sends_nothing() -> None:
    """The dead proxy's answer was durable; its caller asks the other one."""
    left, right = two()
    await scenes.begun(left, "mail", safe=False)
    await until(lambda: scenes.row(left.semel, "mail").answer is not None)
    await left.semel.die()
    assert (await right.write("mail")).body == b"mail #1"
    assert (await right.write("mail")).body == b"mail #2"


@in_virtual_time
async def test_only_deliveries_of_the_present_answer_use_it_up() -> None:
    """The first attempt was refused, the second one made it: the first still has that answer to come."""
    left, right = two()
    left.semel.origin.plays("mail", answers(429))
    assert (await left.write("mail")).status == 429
    assert (await right.next("a2").write("mail")).body == b"mail #2"
    assert (await left.write("mail")).body == b"mail #2"
    assert left.semel.origin.sent["mail"] == 2
