"""Section 2, rule 3: how often an occurrence serves one attempt, and what must be durable for it."""

from __future__ import annotations

import asyncio

import pytest

from proxy.core.intent import Call, State
from proxy.core.run_record import Serving
from proxy.errors import StoreUnavailable
from tests.exchange.stage import Talk, answers, until
from tests.exchange.virtual_time import in_virtual_time
from tests.runs import scenes
from tests.runs.stage import Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

KEY = frozenset({"key"})
EITHER = pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])


@EITHER
@in_virtual_time
async def test_an_occurrence_has_one_use_for_each_attempt(safe: bool) -> None:
    """The n-th identical call is the n-th recorded one; each new attempt counts from one."""
    agent = Agent(RunProcess())
    wanted = [b"call #1", b"call #2", b"call #3"]
    for attempt in ("a1", "a2", "a3"):
        assert [(await agent.next(attempt).ask("call", safe=safe)).body for _ in range(3)] == wanted
    assert agent.semel.origin.sent["call"] == 3


@in_virtual_time
async def test_a_join_is_one_more_use() -> None:
    """The second attempt may ask as often, one after the other; the next one is new."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("mail", answers(200, b"once", after=1.0))
    await asyncio.gather(agent.write("mail"), agent.write("mail"))
    assert scenes.uses(agent.semel, "mail") == 2
    second = agent.next("a2")
    assert [(await second.write("mail")).kind for _ in range(3)] == ["replayed", "replayed", "executed"]


@EITHER
@in_virtual_time
async def test_a_retry_after_full_delivery_is_one_more_use(safe: bool) -> None:
    """An agent that asked twice for one call asks twice again, perhaps with other keys."""
    agent = Agent(RunProcess())
    for _ in range(2):
        await agent.ask("call", safe=safe, tokens=KEY)
    assert scenes.uses(agent.semel, "call") == 2
    second = agent.next("a2")
    kinds = [(await second.ask("call", safe=safe)).kind for _ in range(3)]
    assert kinds == ["replayed", "replayed", "executed"]


@EITHER
@in_virtual_time
async def test_a_retry_of_what_was_not_delivered_is_no_more_use(safe: bool) -> None:
    """It was owed."""
    agent = Agent(RunProcess())
    await agent.ask("call", safe=safe, taken=False)
    await agent.ask("call", safe=safe)
    assert scenes.uses(agent.semel, "call") == 1
    second = agent.next("a2")
    assert [(await second.ask("call", safe=safe)).kind for _ in range(2)] == ["replayed", "executed"]


@in_virtual_time
async def test_a_claim_resets_the_uses_to_one() -> None:
    """What was joined was released; the call that is made again is one."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("mail", answers(429, after=1.0), answers(200, b"sent"))
    await asyncio.gather(agent.write("mail"), agent.write("mail"))
    assert scenes.uses(agent.semel, "mail") == 2
    assert (await agent.write("mail", retry_count=1)).body == b"sent"
    assert scenes.uses(agent.semel, "mail") == 1
    second = agent.next("a2")
    assert [(await second.write("mail")).kind for _ in range(2)] == ["replayed", "executed"]


@in_virtual_time
async def test_a_join_is_durable_before_its_caller_is_answered() -> None:
    """The use cannot be written: that caller gets nothing but `store-unavailable`, the first its answer."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("mail", talk)
    first = agent.start("mail", safe=False)
    await talk.sent.wait()

    async def fail(call: Call) -> None:
        if call.in_run is not None and call.in_run.uses > 1:
            raise StoreUnavailable("taken away")

    agent.semel.store.before_swap = fail
    second = agent.start("mail", safe=False)
    with pytest.raises(StoreUnavailable):
        await second
    assert not first.done()
    talk.answer(body=b"once")
    assert (await first).body == b"once"
    assert scenes.uses(agent.semel, "mail") == 1


@EITHER
@in_virtual_time
async def test_a_retry_after_full_delivery_is_durable_before_its_caller_is_answered(safe: bool) -> None:
    """The same for a replay; and nothing is sent instead."""
    agent = Agent(RunProcess())
    await agent.ask("call", safe=safe, tokens=KEY)

    async def fail(call: Call) -> None:
        raise StoreUnavailable("taken away")

    agent.semel.store.before_swap = fail
    with pytest.raises(StoreUnavailable):
        await agent.ask("call", safe=safe, tokens=KEY)
    agent.semel.store.before_swap = None
    assert (await agent.ask("call", safe=safe, tokens=KEY)).kind == "replayed"
    assert agent.semel.origin.sent["call"] == 1


@in_virtual_time
async def test_while_the_use_is_being_written_nothing_is_answered() -> None:
    """The swap hangs: so does the caller."""
    agent = Agent(RunProcess())
    await agent.write("mail", tokens=KEY)
    gate = asyncio.Event()

    async def hang(call: Call) -> None:
        await gate.wait()

    agent.semel.store.before_swap = hang
    again = agent.start("mail", safe=False, tokens=KEY)
    await asyncio.sleep(30)
    assert not again.done()
    gate.set()
    assert (await again).kind == "replayed"


@in_virtual_time
async def test_a_claim_over_a_row_that_others_used_meanwhile_is_judged_afresh() -> None:
    """Between choice and claim another caller joins or claims: one send, no lost use."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("mail", answers(429), answers(200, b"sent", after=1.0))
    await agent.write("mail")
    kinds = [
        got.kind for got in await asyncio.gather(*(agent.write("mail", retry_count=1) for _ in range(4)))
    ]
    assert kinds.count("executed") == 1
    assert agent.semel.origin.sent["mail"] == 2
    assert scenes.row(agent.semel, "mail").state is State.DONE


@EITHER
@in_virtual_time
async def test_an_exchange_under_way_uses_an_occurrence_up(safe: bool) -> None:
    """It is being handed on: a parallel sample is the next one, an overlapping write the same."""
    agent = Agent(RunProcess())
    for _ in range(2):
        await agent.ask("call", safe=safe)
    second = agent.next("a2")
    reply = await scenes.begun(second, "call", safe=safe)
    assert (await second.ask("call", safe=safe)).body == b"call #2"
    assert reply.delivery is not None
    reply.delivery.complete()
    assert agent.semel.origin.sent["call"] == 2


@in_virtual_time
async def test_a_write_that_overlaps_the_handing_on_of_the_last_one_is_taken_for_it() -> None:
    """The one exception of principle one: overlapping identical calls with effects are one."""
    agent = Agent(RunProcess())
    reply = await scenes.begun(agent, "mail", safe=False)
    await until(lambda: scenes.row(agent.semel, "mail").state is State.DONE)
    assert (await agent.write("mail")).body == b"mail #1"
    assert reply.delivery is not None
    reply.delivery.complete()
    assert agent.semel.origin.sent["mail"] == 1


# ---- lazy marks ----


def loses_marks(semel: RunProcess) -> None:
    """Every lazy mark of this process is lost, as by a power cut just before it is written."""

    def drop(served: Serving) -> None: ...

    semel.store.mark_served = drop  # type: ignore[method-assign]


@EITHER
@in_virtual_time
async def test_lost_marks_cause_replays_and_never_sends(safe: bool) -> None:
    """The proxy that lost them died; the attempt goes on behind another one, and is given again what it has
    had: more than it asked for, but nothing goes out twice."""
    semel = RunProcess()
    loses_marks(semel)
    agent = Agent(semel)
    for _ in range(2):
        await agent.ask("call", safe=safe)
    await semel.die()
    other = agent.on(RunProcess(semel.world, semel.origin))
    assert [(await other.ask("call", safe=safe)).kind for _ in range(2)] == ["replayed", "replayed"]
    assert semel.origin.sent["call"] == 2
    assert (await other.ask("call", safe=safe)).kind == "executed"


@EITHER
@in_virtual_time
async def test_lost_marks_of_replays_cause_replays_and_never_sends(safe: bool) -> None:
    """Not even the start of a replay is known."""
    semel = RunProcess()
    await Agent(semel).ask("call", safe=safe)
    loses_marks(semel)
    second = Agent(semel, "a2")
    assert (await second.ask("call", safe=safe)).kind == "replayed"
    await semel.die()
    other = second.on(RunProcess(semel.world, semel.origin))
    assert (await other.ask("call", safe=safe)).kind == "replayed"
    assert semel.origin.sent["call"] == 1


@in_virtual_time
async def test_lost_marks_of_a_living_proxy_cause_no_send_with_effects() -> None:
    """It can never be known whether that caller got it: the other proxy waits a little, then replays."""
    semel = RunProcess()
    loses_marks(semel)
    agent = Agent(semel)
    await agent.write("mail")
    other = agent.on(RunProcess(semel.world, semel.origin))
    for _ in range(3):
        assert (await other.write("mail")).body == b"mail #1"
    assert semel.origin.sent["mail"] == 1
