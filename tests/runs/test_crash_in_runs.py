"""Sections 2, 3 and 6 in a run: no store, a lost reply, an owner that dies at each point."""

from __future__ import annotations

import asyncio

import pytest

from proxy import faults
from proxy.core.intent import Call, State
from proxy.errors import InDoubt, StoreUnavailable
from proxy.faults import Point
from tests.exchange.stage import Talk, until
from tests.exchange.virtual_time import in_virtual_time
from tests.runs import scenes
from tests.runs.stage import Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

EITHER = pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])
WHO = pytest.mark.parametrize("attempt", ["a1", "a2"], ids=["same attempt", "next attempt"])


@EITHER
@pytest.mark.parametrize("known", [True, False], ids=["known run", "new run"])
@in_virtual_time
async def test_without_a_store_everything_is_refused_and_nothing_sent(safe: bool, known: bool) -> None:
    """In a run a safe call is refused too: it would be missing in the record."""
    semel = RunProcess()
    agent = Agent(semel)
    if known:
        await agent.ask("call", safe=safe)
    semel.store.unavailable = True
    for name in ("call", "new"):
        with pytest.raises(StoreUnavailable):
            await agent.ask(name, safe=safe)
    semel.store.unavailable = False
    assert (await agent.ask("call", safe=safe)).body == (b"call #2" if known else b"call #1")


@EITHER
@in_virtual_time
async def test_a_claim_that_cannot_be_written_sends_nothing(safe: bool) -> None:
    """Read, but not written: refused; the number is free again."""
    semel = RunProcess()
    agent = Agent(semel)

    async def fail(call: Call) -> None:
        raise StoreUnavailable("the disk is full")

    semel.store.before_swap = fail
    with pytest.raises(StoreUnavailable):
        await agent.ask("call", safe=safe)
    assert not semel.origin.sent
    semel.store.before_swap = None
    assert (await agent.ask("call", safe=safe)).body == b"call #1"
    assert [call.occurrence for call in semel.rows()] == [1]


@EITHER
@WHO
@in_virtual_time
async def test_a_claim_whose_reply_is_lost_sends_nothing_and_is_taken_back(safe: bool, attempt: str) -> None:
    """It stands in the store; nothing was sent for it, so the next ask makes it."""
    semel = RunProcess()
    agent = Agent(semel)
    await agent.ask("before", safe=safe)
    semel.store.fail_after_swaps = 1
    with pytest.raises(StoreUnavailable):
        await agent.ask("call", safe=safe)
    assert semel.origin.sent["call"] == 0
    await until(lambda: scenes.row(semel, "call").state is State.RELEASED)
    got = await agent.next(attempt).ask("call", safe=safe)
    assert (got.kind, got.body) == ("executed", b"call #1")
    assert scenes.row(semel, "call").fence == 2
    assert (await agent.next("a3").ask("call", safe=safe)).kind == "replayed"


@in_virtual_time
async def test_a_use_whose_reply_is_lost_sends_nothing() -> None:
    """It may be counted once too often: that is a replay more, never a send."""
    semel = RunProcess()
    agent = Agent(semel)
    await agent.write("mail", tokens=frozenset({"k"}))
    semel.store.fail_after_swaps = 1
    with pytest.raises(StoreUnavailable):
        await agent.write("mail", tokens=frozenset({"k"}))
    assert (await agent.write("mail", tokens=frozenset({"k"}))).kind == "replayed"
    assert semel.origin.sent["mail"] == 1


class Killed(BaseException):
    """The process ended here."""


async def killed_at(point: Point, agent: Agent, *, safe: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy dies, as by SIGKILL, when it reaches `point`; its caller is left alone."""
    semel = agent.semel

    def reach(reached: Point) -> None:
        if reached is point:
            semel.store.kill()
            raise Killed

    monkeypatch.setattr(faults, "reach", reach)
    caller = agent.start("call", safe=safe)
    await until(lambda: semel.store.killed)
    monkeypatch.undo()
    await asyncio.sleep(0)
    await semel.die()
    await asyncio.wait({caller}, timeout=1.0)
    await scenes.gone(caller)


# Point, and what became of a call with effects.
DEATHS = {
    Point.BEFORE_CLAIM: "live",
    Point.CLAIMED: "doubt",
    Point.ANSWER_HEAD: "doubt",
    Point.ANSWER_COMPLETE: "doubt",
    Point.SETTLED: "replay",
}


@EITHER
@WHO
@pytest.mark.parametrize("point", DEATHS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_owner_dies(point: Point, attempt: str, safe: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Effects: in doubt after the intent, replayed after the result. Safe: again live until there is one."""

    @in_virtual_time
    async def story() -> None:
        semel = RunProcess()
        agent = Agent(semel)
        await killed_at(point, agent, safe=safe, monkeypatch=monkeypatch)
        sent = semel.origin.sent["call"]
        other = Agent(RunProcess(semel.world, semel.origin), attempt)
        fate = DEATHS[point]
        if fate == "doubt" and not safe:
            for _ in range(2):
                with pytest.raises(InDoubt):
                    await other.ask("call", safe=safe)
            assert semel.origin.sent["call"] == sent
        else:
            got = await other.ask("call", safe=safe)
            assert got.kind == ("replayed" if fate == "replay" else "executed")
            assert semel.origin.sent["call"] == sent + (fate != "replay")
        assert len(semel.rows()) == 1

    story()


@EITHER
@in_virtual_time
async def test_the_owner_dies_while_others_wait(safe: bool) -> None:
    """A waiter behind another proxy: a safe call is made by it, an effect is in doubt."""
    semel, talk = RunProcess(), Talk()
    semel.origin.plays("call", talk)
    caller = Agent(semel).start("call", safe=safe)
    await talk.sent.wait()
    other = Agent(RunProcess(semel.world, semel.origin), "a2")
    waiter = other.start("call", safe=safe)
    await asyncio.sleep(1.0)
    assert not waiter.done()
    await semel.die()
    await scenes.gone(caller)
    if safe:
        assert (await waiter).kind == "executed"
    else:
        with pytest.raises(InDoubt):
            await waiter
    assert semel.origin.sent["call"] == 1 + safe


@in_virtual_time
async def test_an_agent_that_dies_stops_no_call_with_effects() -> None:
    """It is finished and kept; the next attempt gets it."""
    semel, talk = RunProcess(), Talk()
    semel.origin.plays("mail", talk)
    caller = Agent(semel).start("mail", safe=False)
    await talk.sent.wait()
    await scenes.gone(caller)
    second = Agent(semel, "a2").start("mail", safe=False)
    await asyncio.sleep(1.0)
    talk.answer(body=b"once")
    assert (await second).body == b"once"
    assert semel.origin.sent["mail"] == 1
