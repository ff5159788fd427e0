"""A store that fails before, during and after a claim, and during a settlement."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.core.intent import Call, Event, State
from proxy.core.policy import Rule
from proxy.errors import InDoubt, InProgress, StoreUnavailable
from tests.exchange.stage import CACHE, EFFECT, SAFE, Got, Process, Talk, answers, ask, lost, until
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")


def fails_while(broken: list[bool]) -> Callable[[Call], Awaitable[None]]:
    async def before_swap(call: Call) -> None:
        if broken[0]:
            raise StoreUnavailable("the disk is full")

    return before_swap


# ---- before the send ----


@in_virtual_time
async def test_with_the_store_down_a_call_with_effects_is_refused_and_nothing_is_sent() -> None:
    """503; when the store is back the call goes through as if nothing had been. (A claim that may stand is
    taken back first, which takes a moment.)"""
    semel = Process(None, answers())
    semel.store.unavailable = True
    with pytest.raises(StoreUnavailable):
        await semel.call(ask())
    assert semel.upstream.started == 0
    semel.store.unavailable = False
    async with asyncio.timeout(1.0):
        while semel.flights.in_flight:
            await asyncio.sleep(0.01)
    assert (await semel.call(ask())).kind == "executed"


@in_virtual_time
@pytest.mark.parametrize("rule", [SAFE, CACHE], ids=["once", "cache"])
async def test_with_the_store_down_a_safe_call_is_forwarded_without_a_record(rule: Rule) -> None:
    """Outside runs a safe call needs no record."""
    semel = Process(None)
    semel.store.unavailable = True
    assert (await semel.call(ask(rule))).kind == "unrecorded"


@in_virtual_time
async def test_a_safe_call_is_forwarded_when_the_store_fails_between_reading_and_claiming() -> None:
    """The row could be read; the claim could not be written."""
    semel, broken = Process(None, answers()), [True]
    semel.store.before_swap = fails_while(broken)
    assert (await semel.call(ask(SAFE))).kind == "unrecorded"
    broken[0] = False
    await until(lambda: semel.flights.in_flight == 0)
    assert (await semel.call(ask(SAFE))).kind == "executed"


@in_virtual_time
async def test_a_safe_call_is_forwarded_when_the_store_fails_while_it_waits_or_fetches() -> None:
    """Whether another owner lives, or where the answer lies, cannot be asked: the call needs neither."""
    world, talk = World(), Talk()
    here, there = Process(world, talk), Process(world)
    first = here.start(ask(SAFE))
    await talk.sent.wait()

    async def down(owner: str) -> bool:
        raise StoreUnavailable("the store is not available")

    there.store.owner_is_dead = down  # type: ignore[method-assign]
    assert (await there.call(ask(SAFE))).kind == "unrecorded"
    talk.answer()
    await first


@in_virtual_time
async def test_a_call_with_effects_is_refused_when_the_claim_cannot_be_written() -> None:
    """Nothing was sent; all who joined are told the same; later it goes through."""
    semel, broken = Process(None, answers()), [True]
    semel.store.before_swap = fails_while(broken)
    results = await asyncio.gather(*(semel.call(ask()) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable] * 3
    assert semel.upstream.started == 0
    assert semel.state(ask()) is None
    broken[0] = False
    await until(lambda: semel.flights.in_flight == 0)
    assert (await semel.call(ask())).kind == "executed"


@in_virtual_time
@pytest.mark.parametrize("rule", [EFFECT, SAFE], ids=["effects", "safe"])
async def test_a_claim_whose_reply_is_lost_is_withdrawn_and_nothing_is_sent(rule: Rule) -> None:
    """The swap landed and raised: the row is pending by us, so it is taken back once the store answers."""
    semel, asked = Process(None, answers()), ask(rule)
    semel.store.fail_after_swaps = 1
    if rule.safe:
        assert (await semel.call(asked)).kind == "unrecorded"
    else:
        with pytest.raises(StoreUnavailable):
            await semel.call(asked)
    await until(lambda: semel.flights.in_flight == 0)
    assert semel.upstream.started == 0
    assert semel.state(asked) is State.RELEASED
    assert semel.events(asked)[-1].event == Event.NOT_SENT
    assert (await semel.call(asked)).kind == "executed"
    assert not semel.notebook.told_of("defect")


@in_virtual_time
async def test_a_withdrawal_waits_for_the_store_and_may_itself_lose_its_reply() -> None:
    """Down for a minute after the claim, then the withdrawal's own reply is lost: released, no defect."""
    semel = Process(None, answers())
    semel.store.fail_after_swaps, semel.store.down_with_lost_reply = 1, True
    with pytest.raises(StoreUnavailable):
        await semel.call(ask())
    assert semel.state(ask()) is State.PENDING
    await asyncio.sleep(60)
    with pytest.raises(StoreUnavailable):
        await semel.call(ask())
    assert semel.flights.in_flight == 1
    semel.store.fail_after_swaps, semel.store.down_with_lost_reply = 1, False
    semel.store.unavailable = False
    await until(lambda: semel.flights.in_flight == 0)
    assert semel.state(ask()) is State.RELEASED
    assert not semel.notebook.told_of("defect")
    assert (await semel.call(ask())).kind == "executed"


@in_virtual_time
async def test_a_withdrawal_leaves_alone_what_somebody_else_has_by_now() -> None:
    """Declared dead meanwhile, recovered into doubt: the withdrawal changes nothing and is no defect."""
    world = World()
    here, there = Process(world, answers()), Process(world)
    here.store.fail_after_swaps, here.store.down_with_lost_reply = 1, True
    with pytest.raises(StoreUnavailable):
        await here.call(ask())
    here.store.declare_dead()
    with pytest.raises(InDoubt):
        await there.call(ask())
    here.store.unavailable = False
    await until(lambda: here.flights.in_flight == 0)
    assert here.state(ask()) is State.IN_DOUBT
    assert not here.notebook.told_of("defect")
    assert here.upstream.started == 0


# ---- after the send ----


@in_virtual_time
async def test_the_end_is_withheld_until_the_settlement_is_durable() -> None:
    """The store fails for half a minute: callers wait for the end and get it when it is recorded."""
    semel = Process(None, answers(body=b"the answer"))
    broken = [False]
    semel.store.before_swap = fails_while(broken)
    talk = Talk()
    semel.upstream.steps = [talk]
    tasks = [semel.start(ask()) for _ in range(3)]
    await talk.sent.wait()
    broken[0] = True
    talk.answer(body=b"the answer")
    await asyncio.sleep(30)
    assert not any(task.done() for task in tasks)
    assert semel.state(ask()) is State.PENDING
    broken[0] = False
    got = await asyncio.gather(*tasks)
    assert {(g.status, g.body, g.whole) for g in got} == {(200, b"the answer", True)}
    assert semel.state(ask()) is State.DONE


@in_virtual_time
async def test_beyond_the_total_timeout_callers_are_cut_off_and_the_call_is_settled_later() -> None:
    """Never an answer that is not recorded; and a record in the end."""
    semel, talk, broken = Process(None), Talk(), [False]
    semel.upstream.steps = [talk]
    semel.store.before_swap = fails_while(broken)
    first = semel.start(ask(total=30.0))
    await talk.sent.wait()
    broken[0] = True
    talk.answer(body=b"the answer")
    assert await first == Got("executed", whole=False)
    assert semel.clock.monotonic() >= 30.0
    with pytest.raises(InProgress):
        await semel.call(ask())
    broken[0] = False
    await until(lambda: semel.flights.in_flight == 0)
    assert await semel.call(ask()) == Got("replayed", 200, b"the answer")
    assert semel.upstream.started == 1


@in_virtual_time
@pytest.mark.parametrize("times", [1, 3])
async def test_a_settlement_whose_reply_is_lost_is_recognised_as_our_own(times: int) -> None:
    """It landed: the second try finds its own row, and the caller gets the answer, once."""
    semel, talk = Process(None), Talk()
    semel.upstream.steps = [talk]
    first = semel.start(ask())
    await talk.sent.wait()
    semel.store.fail_after_swaps = times
    talk.answer(body=b"x")
    assert await first == Got("executed", 200, b"x")
    assert [entry.event for entry in semel.events(ask())] == [Event.CLAIM, Event.ANSWERED]
    assert (await semel.call(ask())).kind == "replayed"


@in_virtual_time
async def test_a_settlement_lost_and_then_down_beyond_the_timeout_is_cut_off_and_found_recorded() -> None:
    """Ambiguous and then away: callers are cut off though the row is done; the retry replays it."""
    semel, talk = Process(None), Talk()
    semel.upstream.steps = [talk]
    first = semel.start(ask(total=5.0))
    await talk.sent.wait()
    semel.store.fail_after_swaps, semel.store.down_with_lost_reply = 1, True
    talk.answer(body=b"x")
    assert not (await first).whole
    assert semel.state(ask()) is State.DONE
    semel.store.unavailable = False
    await until(lambda: semel.flights.in_flight == 0)
    assert await semel.call(ask()) == Got("replayed", 200, b"x")


@in_virtual_time
@pytest.mark.parametrize("ambiguous", [False, True])
async def test_a_doubt_is_written_down_as_patiently_as_an_answer(ambiguous: bool) -> None:
    """A lost send while the store is away: callers hear of it when it is recorded."""
    semel, broken = Process(None, lost(after=1.0)), [False]
    semel.store.before_swap = fails_while(broken)
    first = semel.start(ask())
    await until(lambda: semel.state(ask()) is State.PENDING)
    if ambiguous:
        semel.store.fail_after_swaps = 1
    else:
        broken[0] = True
    await asyncio.sleep(30)
    broken[0] = False
    with pytest.raises(InDoubt):
        await first
    assert [entry.event for entry in semel.events(ask())] == [Event.CLAIM, Event.LOST]


@in_virtual_time
async def test_an_answer_released_but_not_recorded_is_not_given() -> None:
    """429 while the store is away: the end is withheld too, or the next ask could not be trusted."""
    semel, talk, broken = Process(None), Talk(), [False]
    semel.upstream.steps = [talk]
    semel.store.before_swap = fails_while(broken)
    first = semel.start(ask())
    await talk.sent.wait()
    broken[0] = True
    talk.answer(429, b"slow down")
    await asyncio.sleep(60)
    assert not first.done()
    broken[0] = False
    assert (await first).body == b"slow down"
    assert semel.state(ask()) is State.RELEASED
