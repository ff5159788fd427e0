"""Section 2, the frontier: what a later attempt is given again, and where it goes live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proxy.core.intent import State
from proxy.core.policy import Mode, Rule
from proxy.errors import InDoubt, Refusal, UpstreamTimeout, UpstreamUnreachable
from proxy.upstream.base import Lost
from tests.exchange.stage import Step, Talk, answers, lost, not_sent, until
from tests.exchange.virtual_time import in_virtual_time
from tests.runs import scenes
from tests.runs.stage import Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

UNREACHABLE = (lambda: (not_sent(), not_sent()), UpstreamUnreachable)
TIMEOUT = (lambda: (lost(timed_out=True), lost(timed_out=True)), UpstreamTimeout)
DOUBT = (lambda: (lost(),), InDoubt)
PROBLEMS = pytest.mark.parametrize(
    ("safe", "steps", "problem"),
    [(False, *UNREACHABLE), (True, *UNREACHABLE), (True, *TIMEOUT), (False, *DOUBT)],
    ids=["unreachable-effects", "unreachable-safe", "timeout-safe", "in-doubt-effects"],
)
Steps = Callable[[], tuple[Step, ...]]


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])
@in_virtual_time
async def test_provider_a_failed_b_was_used_so_the_second_attempt_sees_a_fail_again(safe: bool) -> None:
    """Or both are used. A would work by now."""
    semel = RunProcess()
    agent = Agent(semel)
    semel.origin.plays("a", answers(429, b"no"))
    assert (await agent.ask("a", safe=safe)).status == 429
    assert (await agent.write("b")).status == 200
    await semel.die()
    second = Agent(RunProcess(semel.world, semel.origin), "a2")
    again = await second.ask("a", safe=safe)
    assert (again.kind, again.status, again.body) == ("replayed", 429, b"no")
    assert (await second.write("b")).kind == "replayed"
    assert semel.origin.sent == {"a": 1, "b": 1}


@in_virtual_time
async def test_a_404_then_a_create() -> None:
    """The second attempt must find it missing too; after the create it looks at the present."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("thing", answers(404))
    for attempt in ("a1", "a2", "a3"):
        again = agent.next(attempt)
        assert (await again.read("thing")).status == 404
        assert (await again.write("create")).body == b"create #1"
        assert (await again.read("thing")).body == b"thing #2"
    assert agent.semel.origin.sent == {"thing": 2, "create": 1}


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])
@in_virtual_time
async def test_what_is_not_final_beyond_the_last_effect_goes_live(safe: bool) -> None:
    """Nothing depends on it yet."""
    agent = Agent(RunProcess())
    await agent.write("b")
    agent.semel.origin.plays("a", answers(429))
    assert (await agent.ask("a", safe=safe)).status == 429
    second = agent.next("a2")
    assert (await second.write("b")).kind == "replayed"
    got = await second.ask("a", safe=safe)
    assert (got.kind, got.status) == ("executed", 200)
    assert scenes.row(agent.semel, "a").fence == 2


@in_virtual_time
async def test_what_is_final_is_given_again_beyond_the_last_effect_too() -> None:
    """A read after the last effect is an answer all the same."""
    agent = Agent(RunProcess())
    await agent.write("b")
    await agent.read("a")
    assert (await agent.next("a2").read("a")).kind == "replayed"


@in_virtual_time
async def test_failures_between_two_effects_are_given_again_in_order() -> None:
    """Each as often as it came, and the tries end as they did."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("a", answers(503), answers(500), answers(200, b"at last"))
    for attempt in ("a1", "a2"):
        again = agent.next(attempt)
        await again.write("first")
        assert [(await again.read("a")).status for _ in range(3)] == [503, 500, 200]
        await again.write("last")
    assert agent.semel.origin.sent == {"first": 1, "a": 3, "last": 1}


@in_virtual_time
async def test_a_loop_of_retries_on_evidence_ends_as_it_did() -> None:
    """One occurrence, three tries: the second attempt's client retries as often and gives up as before."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("a", *(answers(429) for _ in range(3)))
    for attempt in ("a1", "a2"):
        again = agent.next(attempt)
        assert [(await again.write("a", retry_count=n)).status for n in range(3)] == [429] * 3
        await again.write("b")
    assert agent.semel.origin.sent == {"a": 3, "b": 1}


@PROBLEMS
@in_virtual_time
async def test_a_problem_given_to_an_attempt_is_received(
    safe: bool, steps: Steps, problem: type[Refusal]
) -> None:
    """While an effect made after it stands, a later attempt gets the same problem and nothing is sent."""
    semel = RunProcess()
    agent = Agent(semel)
    semel.origin.plays("a", *steps())
    with pytest.raises(problem):
        await agent.ask("a", safe=safe)
    await agent.write("b")
    sent = semel.origin.sent["a"]
    await semel.die()
    second = Agent(RunProcess(semel.world, semel.origin), "a2")
    for _ in range(3):
        with pytest.raises(problem):
            await second.ask("a", safe=safe)
    assert (await second.write("b")).kind == "replayed"
    assert semel.origin.sent["a"] == sent


@PROBLEMS
@in_virtual_time
async def test_a_problem_with_no_effect_after_it_goes_live_or_is_as_it_stands(
    safe: bool, steps: Steps, problem: type[Refusal]
) -> None:
    """What was not sent, or is safe, is made now; a doubt is a doubt."""
    agent = Agent(RunProcess())
    await agent.write("b")
    agent.semel.origin.plays("a", *steps())
    with pytest.raises(problem):
        await agent.ask("a", safe=safe)
    second = agent.next("a2")
    await second.write("b")
    if problem is InDoubt:
        with pytest.raises(InDoubt):
            await second.ask("a", safe=safe)
    else:
        assert (await second.ask("a", safe=safe)).kind == "executed"


@in_virtual_time
async def test_a_doubt_that_is_done_by_now_gives_its_answer() -> None:
    """The answer came late: the attempts after that get it."""
    semel = RunProcess()
    agent, talk = Agent(semel), Talk()
    semel.origin.plays("a", talk)
    caller = agent.start("a", safe=False)
    await talk.sent.wait()
    semel.store.declare_dead()  # paused: others take it for dead
    other = RunProcess(semel.world, semel.origin)
    with pytest.raises(InDoubt):
        await agent.on(other).write("a")
    await agent.on(other).write("b")
    talk.answer(body=b"late")
    await until(lambda: scenes.row(semel, "a").state is State.DONE)
    await asyncio.wait({caller})
    assert (await agent.on(other).next("a2").write("a")).body == b"late"
    assert semel.origin.sent["a"] == 1


@pytest.mark.parametrize("body", [b"found", None], ids=["executed", "not executed"])
@in_virtual_time
async def test_a_doubt_that_a_person_resolved_is_not_given_again(body: bytes | None) -> None:
    """Executed: its answer. Not executed: it is made now, though an effect came after it."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("a", lost())
    with pytest.raises(InDoubt):
        await agent.write("a")
    await agent.write("b")
    await scenes.resolve(agent.semel, scenes.row(agent.semel, "a"), body=body)
    got = await agent.next("a2").write("a")
    assert got.body == (body or b"a #2")
    assert agent.semel.origin.sent["a"] == (1 if body else 2)


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])
@in_virtual_time
async def test_a_problem_that_a_person_forgot_goes_live(safe: bool) -> None:
    """`calls forget` on it."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("a", not_sent(), not_sent())
    with pytest.raises(UpstreamUnreachable):
        await agent.ask("a", safe=safe)
    await agent.write("b")
    await scenes.forget(agent.semel, scenes.row(agent.semel, "a"))
    got = await agent.next("a2").ask("a", safe=safe)
    assert got.kind == "executed"
    assert [call.occurrence for call in agent.semel.rows()] == [1, 1]


@in_virtual_time
async def test_a_doubt_seals_only_what_was_made_after_it_was_given() -> None:
    """A parallel call that was claimed before the doubt was told does not depend on it."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("a", talk)
    caller = agent.start("a", safe=False)
    await talk.sent.wait()
    await agent.write("b")
    talk.end(Lost("the connection broke", None, False))
    with pytest.raises(InDoubt):
        await caller
    await scenes.resolve(agent.semel, scenes.row(agent.semel, "a"), body=None)
    assert (await agent.next("a2").write("a")).kind == "executed"


@pytest.mark.parametrize("evidence", ["token", "count", "none"])
@pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])
@in_virtual_time
async def test_a_released_answer_with_an_effect_after_it_is_never_claimed_again(
    safe: bool, evidence: str
) -> None:
    """Its retry is the next occurrence, on whatever evidence; the second attempt sees both, in order."""
    tokens = frozenset({"k"} if evidence == "token" else ())
    count = 1 if evidence == "count" else 0
    agent = Agent(RunProcess())
    agent.semel.origin.plays("a", answers(429, b"no"))
    for attempt in ("a1", "a2"):
        again = agent.next(attempt)
        assert (await again.ask("a", safe=safe, tokens=tokens)).body == b"no"
        await again.write("b")
        assert (await again.ask("a", safe=safe, tokens=tokens, retry_count=count)).body == b"a #2"
    rows = [scenes.row(agent.semel, "a", n) for n in (1, 2)]
    assert [(call.state, call.fence) for call in rows] == [(State.RELEASED, 1), (State.DONE, 1)]
    assert agent.semel.origin.sent == {"a": 2, "b": 1}


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])
@in_virtual_time
async def test_forget_lets_a_released_answer_go_live(safe: bool) -> None:
    """The only way: the number stays, the call is made anew."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("a", answers(429, b"no"))
    await agent.ask("a", safe=safe)
    await agent.write("b")
    await scenes.forget(agent.semel, scenes.row(agent.semel, "a"))
    second = agent.next("a2")
    assert (await second.ask("a", safe=safe)).body == b"a #2"
    assert (await second.write("b")).kind == "replayed"
    assert [(c.occurrence, c.state) for c in agent.semel.rows()] == [(1, State.DONE)] * 2


@in_virtual_time
async def test_a_forgotten_effect_seals_nothing_any_more() -> None:
    """It no longer stands: what came before it goes live."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("a", answers(429))
    await agent.read("a")
    await agent.write("b")
    await scenes.forget(agent.semel, scenes.row(agent.semel, "b"))
    assert (await agent.next("a2").read("a")).status == 200


@in_virtual_time
async def test_cache_hits_are_part_of_the_record() -> None:
    """The cache has something newer by now; the second attempt gets what the first one had."""
    rule = Rule(name="cached", mode=Mode.CACHE, ttl=60.0)
    agent = Agent(RunProcess())
    assert (await agent.read("price", rule=rule)).body == b"price #1"
    assert (await agent.read("price", rule=rule)).body == b"price #1"
    await agent.write("buy")
    await asyncio.sleep(3600)
    assert (await agent.next("other").on(agent.semel).read("price", rule=rule)).body == b"price #1"
    elsewhere = Agent(agent.semel, "a1", run="another")
    assert (await elsewhere.read("price", rule=rule)).body == b"price #2"
    second = agent.next("a2")
    assert [(await second.read("price", rule=rule)).body for _ in range(2)] == [b"price #1"] * 2


@in_virtual_time
async def test_a_receipt_is_written_no_later_than_the_runs_next_claim() -> None:
    """The owner died before the doubt was told; whoever tells it writes so before anything is claimed."""
    semel = RunProcess()
    agent, talk = Agent(semel), Talk()
    semel.origin.plays("a", talk)
    caller = agent.start("a", safe=False)
    await talk.sent.wait()
    await semel.die()
    await asyncio.wait({caller})
    other = agent.on(RunProcess(semel.world, semel.origin))
    with pytest.raises(InDoubt):
        await other.write("a")
    call = scenes.row(semel, "a")
    assert call.in_run is not None
    assert [(r.attempt, r.problem) for r in call.in_run.receipts] == [("a1", "in-doubt")]
    await other.write("b")
    third = other.next("a2").on(RunProcess(semel.world, semel.origin))
    with pytest.raises(InDoubt):
        await third.write("a")
    assert semel.origin.sent["a"] == 1


@in_virtual_time
async def test_reads_that_were_made_after_it_seal_nothing() -> None:
    """Only an effect may have been caused by what came before it."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("a", answers(429))
    await agent.read("a")
    await agent.read("b")
    assert (await agent.next("a2").read("a")).status == 200


@in_virtual_time
async def test_a_failure_that_took_several_tries_is_given_as_often() -> None:
    """The first attempt had to ask twice before it went on; so does a loop of tries in the second."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("a", not_sent(), not_sent(), answers(429))
    with pytest.raises(UpstreamUnreachable):
        await agent.write("a")
    assert (await agent.write("a")).status == 429
    await agent.write("b")
    second = agent.next("a2")
    assert [(await second.write("a")).status for _ in range(2)] == [429, 429]
    assert (await second.write("b")).kind == "replayed"
    assert agent.semel.origin.sent == {"a": 1, "b": 1}
