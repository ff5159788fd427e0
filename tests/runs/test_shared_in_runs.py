"""Section 2: scope tenant and `cache` in a run: the shared call is the one that is sent, the run keeps it."""

from __future__ import annotations

import asyncio

import pytest

from proxy.asking import Ask
from proxy.core.intent import State
from proxy.core.policy import Mode, Repeat, Rule, Scope
from proxy.errors import InDoubt, StoreUnavailable, UpstreamUnreachable
from proxy.runs.shared import SharedCall
from proxy.upstream.base import Lost
from tests.exchange.stage import Got, Prepared, Talk, answers, lost, not_sent, until
from tests.exchange.virtual_time import in_virtual_time
from tests.runs import scenes
from tests.runs.stage import Agent, RunProcess, identity_of

pytestmark = pytest.mark.usefixtures("any_stage")

SHARED = Rule(name="shared", safe=False, scope=Scope.TENANT, ttl=60.0)
CACHED = Rule(name="cached", mode=Mode.CACHE, ttl=60.0)


async def outside(semel: RunProcess, name: str, rule: Rule) -> Got:
    """The same call, made by somebody outside any run."""
    safe = rule.mode is Mode.CACHE
    sending = Prepared(rule=rule, safe=safe, body=b"{}", total=600.0, target=f"/{name}".encode())
    semel.send_to(semel.origin)
    return await semel.call(Ask(identity_of(f"tenant {name}"), rule, safe, False, sending))


@in_virtual_time
async def test_scope_tenant_implies_same() -> None:
    """Whatever `repeat` says: one send for all runs, all attempts and everybody outside."""
    assert SHARED.repeat is Repeat.ORDINAL
    semel = RunProcess()
    agent = Agent(semel)
    got = [await agent.write("set", rule=SHARED) for _ in range(2)]
    got.append(await agent.next("a2").write("set", rule=SHARED))
    got.append(await Agent(semel, run="other").write("set", rule=SHARED))
    got.append(await outside(semel, "set", SHARED))
    assert [each.body for each in got] == [b"set #1"] * 5
    assert [each.kind for each in got] == ["executed"] + ["replayed"] * 4
    assert semel.origin.sent["set"] == 1


@in_virtual_time
async def test_what_a_run_was_given_is_kept_whatever_the_ttl() -> None:
    """The shared one has lapsed and is made again by others; this run has its own."""
    semel = RunProcess()
    agent = Agent(semel)
    await outside(semel, "set", SHARED)
    assert (await agent.write("set", rule=SHARED)).body == b"set #1"
    await asyncio.sleep(3600)
    await semel.store.collect(semel.clock.now())
    assert (await outside(semel, "set", SHARED)).body == b"set #2"
    assert (await agent.write("set", rule=SHARED)).body == b"set #1"
    assert (await agent.next("a2").write("set", rule=SHARED)).body == b"set #1"


@in_virtual_time
async def test_each_ask_of_a_cache_rule_is_an_occurrence() -> None:
    """Filled from the shared cache while fresh, else live."""
    semel = RunProcess()
    agent = Agent(semel)
    assert (await agent.read("price", rule=CACHED)).kind == "executed"
    assert (await agent.read("price", rule=CACHED)).kind == "replayed"
    await asyncio.sleep(61)
    assert (await agent.read("price", rule=CACHED)).body == b"price #2"
    assert [call.occurrence for call in semel.rows() if call.run] == [1, 2, 3]
    second = agent.next("a2")
    bodies = [(await second.read("price", rule=CACHED)).body for _ in range(3)]
    assert bodies == [b"price #1", b"price #1", b"price #2"]
    assert semel.origin.sent["price"] == 2


@in_virtual_time
async def test_a_cache_is_shared_with_everybody_outside() -> None:
    """Filled by them, and for them."""
    semel = RunProcess()
    await outside(semel, "price", CACHED)
    assert (await Agent(semel).read("price", rule=CACHED)).body == b"price #1"
    await Agent(semel).read("rate", rule=CACHED)
    assert (await outside(semel, "rate", CACHED)).body == b"rate #1"
    assert semel.origin.sent == {"price": 1, "rate": 1}


@in_virtual_time
async def test_a_cached_answer_is_given_again_after_its_ttl_in_the_run() -> None:
    """Also beyond the last effect: it is final."""
    agent = Agent(RunProcess())
    await agent.read("price", rule=CACHED)
    await asyncio.sleep(3600)
    assert (await agent.next("a2").read("price", rule=CACHED)).body == b"price #1"


@in_virtual_time
async def test_runs_that_ask_at_once_share_one_send() -> None:
    """The shared call is joined."""
    semel = RunProcess()
    semel.origin.plays("set", answers(200, b"once", after=1.0))
    asks = (Agent(semel, run=f"run-{n}").write("set", rule=SHARED) for n in range(4))
    assert {got.body for got in await asyncio.gather(*asks)} == {b"once"}
    assert semel.origin.sent["set"] == 1


@in_virtual_time
async def test_a_doubt_is_the_shared_calls() -> None:
    """Held there, told in every run; a person settles one call, not one for each run."""
    semel = RunProcess()
    semel.origin.plays("set", lost())
    for run in ("r", "r", "other"):
        with pytest.raises(InDoubt):
            await Agent(semel, run=run).write("set", rule=SHARED)
    assert scenes.shared_row(semel, "set").state is State.IN_DOUBT
    assert {call.state for call in semel.rows() if call.run} == {State.RELEASED}
    await scenes.resolve(semel, scenes.shared_row(semel, "set"), body=b"found")
    for run in ("r", "other"):
        assert (await Agent(semel, run=run).write("set", rule=SHARED)).body == b"found"
    assert semel.origin.sent["set"] == 1


@pytest.mark.parametrize("body", [b"found", None], ids=["executed", "not executed"])
@in_virtual_time
async def test_a_shared_doubt_that_a_person_resolved_is_not_given_again_before_a_later_effect(
    body: bytes | None,
) -> None:
    """The frontier's exception holds for the shared call too: it is done, or resolved, by now."""
    semel = RunProcess()
    semel.origin.plays("set", lost())
    agent = Agent(semel)
    with pytest.raises(InDoubt):
        await agent.write("set", rule=SHARED)
    await agent.write("b")
    with pytest.raises(InDoubt):
        await agent.next("a2").write("set", rule=SHARED)
    await scenes.resolve(semel, scenes.shared_row(semel, "set"), body=body)
    got = await agent.next("a3").write("set", rule=SHARED)
    assert got.body == (body or b"set #2")


@in_virtual_time
async def test_a_shared_call_that_was_not_sent_is_released_in_the_run() -> None:
    """And goes live the next time."""
    semel = RunProcess()
    semel.origin.plays("set", not_sent(), not_sent())
    agent = Agent(semel)
    with pytest.raises(UpstreamUnreachable):
        await agent.write("set", rule=SHARED)
    assert (await agent.write("set", rule=SHARED)).kind == "executed"


@in_virtual_time
async def test_when_the_proxy_dies_the_shared_call_knows() -> None:
    """The run's row says nothing of its own: in doubt is the call that was sent."""
    semel, talk = RunProcess(), Talk()
    semel.origin.plays("set", talk)
    caller = Agent(semel).start("set", safe=False, rule=SHARED)
    await talk.sent.wait()
    await semel.die()
    await asyncio.wait({caller})
    other = RunProcess(semel.world, semel.origin)
    with pytest.raises(InDoubt):
        await Agent(other, "a2").write("set", rule=SHARED)
    assert scenes.shared_row(other, "set").state is State.IN_DOUBT
    await scenes.resolve(other, scenes.shared_row(other, "set"), body=b"found")
    assert (await Agent(other, "a2").write("set", rule=SHARED)).body == b"found"
    assert semel.origin.sent["set"] == 1


@pytest.mark.parametrize("fate", ["lost", "killed"])
@in_virtual_time
async def test_a_shared_doubt_holds_in_its_run_though_the_agents_token_was_refreshed(fate: str) -> None:
    """The shared call has another principal now, and so another name; for the run it is the same call, which
    may have been executed."""
    semel, talk = RunProcess(), Talk()
    semel.origin.plays("set", talk)
    caller = Agent(semel).start("set", safe=False, rule=SHARED)
    await talk.sent.wait()
    if fate == "lost":
        talk.end(Lost("the connection broke", None, False))
    else:
        await semel.die()
    await asyncio.wait({caller})
    assert caller.exception() is not None
    other = Agent(RunProcess(semel.world, semel.origin), "a2")
    ask = await other.asked("set", safe=False, rule=SHARED)
    assert ask.shared is not None
    refreshed = SharedCall(ask.shared.ask._replace(identity=identity_of("tenant set, by another token")))
    asked = other.semel.runs.ask(ask._replace(shared=refreshed))
    (outcome,) = await asyncio.gather(asked, return_exceptions=True)
    assert semel.origin.sent["set"] == 1, "it was sent twice"
    assert isinstance(outcome, InDoubt)


@in_virtual_time
async def test_a_store_that_fails_after_the_send_leaves_no_doubt_of_the_runs_own() -> None:
    """Section 6: the end is withheld, then aborted; the call is settled when the store is back, and then the
    run gets the answer that the shared call has."""
    semel, talk = RunProcess(), Talk()
    semel.origin.plays("set", talk)
    agent = Agent(semel)
    caller = agent.start("set", safe=False, rule=SHARED)
    await talk.sent.wait()
    semel.store.unavailable = True
    talk.answer(body=b"done")
    await asyncio.sleep(1300)  # longer than both wait for the store, one after the other
    assert caller.done()
    assert not (await caller).whole
    assert not semel.notebook.told_of("defect")
    semel.store.unavailable = False
    await until(lambda: not semel.flights.by_key)
    assert scenes.shared_row(semel, "set").state is State.DONE
    assert (await agent.write("set", rule=SHARED)).body == b"done"
    assert semel.origin.sent["set"] == 1


@pytest.mark.parametrize("rule", [SHARED, CACHED], ids=["tenant", "cache"])
@in_virtual_time
async def test_without_a_store_nothing_goes_out(rule: Rule) -> None:
    """Outside a run a cached read would pass; in a run nothing goes out without a record."""
    semel = RunProcess()
    agent = Agent(semel)
    await agent.read("something")
    semel.store.unavailable = True
    with pytest.raises(StoreUnavailable):
        await agent.ask("price", safe=rule is CACHED, rule=rule)
    assert semel.origin.sent["price"] == 0
