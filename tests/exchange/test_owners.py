"""Owners that die, owners that are only thought dead, and answers that come late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proxy.core.intent import Event, State
from proxy.errors import InDoubt, InProgress, UpstreamUnreachable
from proxy.exchange import OWNER_CHECK
from proxy.recovery import sweep_once
from proxy.store.base import Swap
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, Sink
from tests.exchange.stage import EFFECT, SAFE, Got, Process, Talk, answers, ask, quietly, until
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")


@in_virtual_time
async def test_a_dead_owners_call_with_effects_is_in_doubt_at_once_for_whoever_asks() -> None:
    """No waiting for a sweep, no second send."""
    world, talk = World(), Talk()
    here, there = Process(world, talk), Process(world)
    first = here.start(ask())
    await talk.sent.wait()
    await here.die()
    with pytest.raises(InDoubt, match="died"):
        await there.call(ask())
    assert there.clock.monotonic() < 1.0
    assert there.upstream.started == 0
    assert there.events(ask())[-1].actor == f"recovery:{there.store.owner}"
    await quietly(first)


@in_virtual_time
async def test_a_dead_owners_safe_call_is_made_again_at_once() -> None:
    """Repeating it does no harm."""
    world, talk = World(), Talk()
    here, there = Process(world, talk), Process(world, answers(body=b"again"))
    first = here.start(ask(SAFE))
    await talk.sent.wait()
    await here.die()
    assert await there.call(ask(SAFE)) == Got("executed", 200, b"again")
    await quietly(first)


@in_virtual_time
async def test_a_waiter_notices_by_itself_that_the_owner_has_died() -> None:
    """No sweep comes by: it looks again now and then, long before its patience is over."""
    world, talk = World(), Talk()
    here, there = Process(world, talk), Process(world)
    first = here.start(ask())
    await talk.sent.wait()
    waiter = there.start(ask())
    await asyncio.sleep(OWNER_CHECK * 1.5)
    await here.die()
    began = asyncio.get_running_loop().time()
    with pytest.raises(InDoubt):
        await waiter
    assert asyncio.get_running_loop().time() - began <= OWNER_CHECK
    await quietly(first)


@in_virtual_time
async def test_a_waiter_is_told_when_the_owner_dies_and_the_sweep_settles_its_call() -> None:
    """It waited for a living owner; the swept row wakes it."""
    world, talk = World(), Talk()
    here, there, third = Process(world, talk), Process(world), Process(world)
    first = here.start(ask())
    await talk.sent.wait()
    waiter = there.start(ask())
    await asyncio.sleep(OWNER_CHECK * 1.5)
    await here.die()
    assert await sweep_once(third.store, third.ledger, third.notebook) == 1
    assert await sweep_once(third.store, third.ledger, third.notebook) == 0
    with pytest.raises(InDoubt):
        await waiter
    await quietly(first)


@in_virtual_time
async def test_two_processes_that_recover_the_same_call_agree() -> None:
    """One settles it, the other finds it settled; both say in-doubt, the history has one line."""
    world, talk = World(), Talk()
    here, *others = [Process(world, talk), Process(world), Process(world)]
    first = here.start(ask())
    await talk.sent.wait()
    await here.die()
    results = await asyncio.gather(*(p.call(ask()) for p in others), return_exceptions=True)
    assert [type(result) for result in results] == [InDoubt, InDoubt]
    assert [entry.event for entry in here.events(ask())] == [Event.CLAIM, Event.LOST]
    await quietly(first)


@in_virtual_time
async def test_a_late_answer_with_the_current_fence_settles_what_is_in_doubt() -> None:
    """Paused, declared dead, recovered into doubt; then its answer comes: done, for it and for all."""
    world, talk = World(), Talk()
    paused, other = Process(world, talk), Process(world)
    first = paused.start(ask())
    await talk.sent.wait()
    paused.store.declare_dead()
    with pytest.raises(InDoubt):
        await other.call(ask())
    talk.answer(201, b"late but true")
    assert await first == Got("executed", 201, b"late but true")
    assert await other.call(ask()) == Got("replayed", 201, b"late but true")
    assert [e.event for e in other.events(ask())] == [Event.CLAIM, Event.LOST, Event.ANSWERED]


@in_virtual_time
async def test_a_late_answer_with_the_current_fence_settles_what_is_released() -> None:
    """A safe call was released and not asked again yet."""
    world, talk = World(), Talk()
    paused, other = Process(world, talk), Process(world)
    first = paused.start(ask(SAFE))
    await talk.sent.wait()
    paused.store.declare_dead()
    assert await sweep_once(other.store, other.ledger, other.notebook) == 1
    assert other.state(ask(SAFE)) is State.RELEASED
    talk.answer(200, b"late")
    assert (await first).body == b"late"
    assert await other.call(ask(SAFE)) == Got("replayed", 200, b"late")


@in_virtual_time
async def test_a_late_answer_with_an_old_fence_is_evidence_and_nobody_gets_it() -> None:
    """Meanwhile another owner has claimed and settled the call: its answer is the one that counts."""
    world, talk = World(), Talk()
    paused, other = Process(world, talk), Process(world, answers(200, b"the record"))
    first = paused.start(ask(SAFE))
    await talk.sent.wait()
    paused.store.declare_dead()
    assert await other.call(ask(SAFE)) == Got("executed", 200, b"the record")
    talk.answer(200, b"never recorded")
    assert await first == Got("replayed", 200, b"the record")
    last = other.events(ask(SAFE))[-1]
    assert (last.event, last.before, last.after, last.fence) == ("evidence", State.DONE, State.DONE, 1)
    assert "answered 200" in last.why
    assert paused.notebook.told_of("late-outcome")


@in_virtual_time
async def test_a_part_of_an_answer_with_an_old_fence_is_cut_off() -> None:
    """It had been handed on before the call changed hands: the end is never given."""
    world, talk = World(), Talk()
    paused, other = Process(world, talk), Process(world, answers(200, b"the record"))
    first = paused.start(ask(SAFE))
    await talk.sent.wait()
    talk.head()
    talk.part(b"never ")
    await until(lambda: paused.flights.by_key[ask().identity.key].capture.handed_on)
    paused.store.declare_dead()
    assert (await other.call(ask(SAFE))).body == b"the record"
    talk.part(b"recorded")
    talk.end(Answered(200))
    got = await first
    assert not got.whole


@in_virtual_time
@pytest.mark.parametrize("late", [Lost("reset"), NotSent("stopped")], ids=["lost", "not sent"])
async def test_what_is_less_than_an_answer_does_not_move_a_doubt(late: Result) -> None:
    """Recovery has put it in doubt; only an answer, a probe or a person ends that. The rest is evidence."""
    world, talk = World(), Talk()
    paused, other = Process(world, talk, talk), Process(world)
    first = paused.start(ask())
    await talk.sent.wait()
    paused.store.declare_dead()
    with pytest.raises(InDoubt):
        await other.call(ask())
    talk.end(late)
    with pytest.raises(InDoubt):
        await first
    assert other.state(ask()) is State.IN_DOUBT
    assert other.events(ask())[-1].event == "evidence"


@in_virtual_time
async def test_an_owner_that_wakes_before_its_first_byte_sends_nothing() -> None:
    """Paused between the claim and the send: it checks, and leaves the doubt of others as it is."""
    world = World()
    paused, other = Process(world, answers(), answers()), Process(world)
    woken = asyncio.Event()
    original = paused.store.swap

    async def swap_then_pause(*args: Any, **how: Any) -> Swap:
        swapped = await original(*args, **how)
        await woken.wait()
        return swapped

    paused.store.swap = swap_then_pause  # type: ignore[method-assign]
    first = paused.start(ask())
    await until(lambda: paused.state(ask()) is State.PENDING)
    paused.store.declare_dead()
    with pytest.raises(InDoubt):
        await other.call(ask())
    woken.set()
    with pytest.raises(InDoubt):
        await first
    assert paused.upstream.went_out == 0
    assert other.state(ask()) is State.IN_DOUBT


@in_virtual_time
async def test_a_lapsed_call_gets_a_new_fence_so_the_old_owner_cannot_settle_it() -> None:
    """Released, expired, claimed anew: the answer to the first send is evidence for the second."""
    world, old, new = World(), Talk(), Talk()
    paused, other = Process(world, old), Process(world, new)
    first = paused.start(ask(SAFE))
    await old.sent.wait()
    paused.store.declare_dead()
    await sweep_once(other.store, other.ledger, other.notebook)
    await asyncio.sleep(EFFECT.ttl + 1)
    second = other.start(ask(SAFE))
    await new.sent.wait()
    old.answer(200, b"old")
    await until(lambda: other.events(ask(SAFE))[-1].event == "evidence")
    assert other.state(ask(SAFE)) is State.PENDING
    new.answer(200, b"new")
    assert (await second).body == b"new"
    with pytest.raises(InProgress):  # it has waited for longer than `wait`
        await first


@in_virtual_time
async def test_processes_that_take_each_other_for_dead_do_not_pass_a_call_to_and_fro_for_ever() -> None:
    """Neither may send, and each recovers what the other has claimed: after `wait` both callers are told."""
    world = World()

    async def connects(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        await asyncio.sleep(2.0)
        assert not may_send()
        return NotSent("not the owner any more")

    pair = [Process(world, *[connects] * 1000) for _ in range(2)]
    for semel in pair:
        semel.store.declare_dead()
    tasks = [pair[0].start(ask(SAFE))]
    await asyncio.sleep(1.0)
    tasks.append(pair[1].start(ask(SAFE)))
    async with asyncio.timeout(10 * SAFE.wait):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} <= {InProgress, UpstreamUnreachable}


@in_virtual_time
async def test_who_goes_on_under_another_name_does_not_send_what_it_claimed_under_the_old_one() -> None:
    """Taken for dead while it connects, and back with a new epoch: it may act, but not with that call; the
    same call made anew is its own again."""
    world = World()
    if not world.ground.renews:
        pytest.skip("an embedded owner keeps its name for as long as it lives")
    here, there = Process(world), Process(world)

    async def connects(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        here.store.declare_dead()
        here.store.renew()
        assert here.store.owns()
        assert not may_send()
        return NotSent("not the owner any more")

    here.upstream.steps = [connects, *[answers(body=b"again")] * 3]
    with pytest.raises(UpstreamUnreachable):
        await here.call(ask(SAFE))
    assert here.upstream.went_out == 0
    assert (await sweep_once(there.store, there.ledger, there.notebook)) == 0  # it was released by itself
    assert await here.call(ask(SAFE)) == Got("executed", 200, b"again")
    assert here.upstream.went_out == 1
