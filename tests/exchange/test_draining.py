"""Shutting down: let calls finish, stop and mark the rest, leave what cannot be marked to recovery."""

from __future__ import annotations

import asyncio

import pytest

from proxy.asking import Labels
from proxy.core.intent import Event, State
from proxy.core.policy import Rule
from proxy.errors import InDoubt, StoreUnavailable, UpstreamUnreachable
from proxy.recovery import sweep_once
from tests.exchange.stage import EFFECT, OUTGOING, SAFE, Got, Process, Talk, answers, ask, until
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")


@in_virtual_time
async def test_draining_lets_calls_finish() -> None:
    """Within its patience nothing is stopped, and callers get their answers."""
    semel = Process(None, answers(body=b"x", after=10.0), answers(body=b"y", after=20.0))
    tasks = [semel.start(ask(n=1)), semel.start(ask(n=2))]
    await until(lambda: semel.upstream.went_out == 2)
    assert await semel.flights.drain(30.0) == 0
    assert [(await task).body for task in tasks] == [b"x", b"y"]
    assert semel.clock.monotonic() < 21.0


@in_virtual_time
async def test_a_draining_process_takes_nothing_new_but_still_replays() -> None:
    """New sends are refused as "nothing was sent"; what is recorded needs none."""
    semel = Process(None, answers(body=b"x"))
    await semel.call(ask(n=1))
    await semel.flights.drain(0.0)
    assert (await semel.call(ask(n=1))).kind == "replayed"
    for rule in (EFFECT, SAFE):
        with pytest.raises(StoreUnavailable, match="shutting down"):
            await semel.call(ask(rule, n=2))
    assert semel.upstream.started == 1


@in_virtual_time
@pytest.mark.parametrize(
    ("rule", "state", "event"),
    [(EFFECT, State.IN_DOUBT, Event.LOST), (SAFE, State.RELEASED, Event.INCONCLUSIVE)],
    ids=["effects", "safe"],
)
async def test_what_does_not_finish_is_stopped_and_marked(rule: Rule, state: State, event: Event) -> None:
    """Bytes may be out: with effects in doubt, safe released; the caller is told, the count is right."""
    semel, talk = Process(None), Talk()
    semel.upstream.steps = [talk]
    first = semel.start(ask(rule))
    await talk.sent.wait()
    assert await semel.flights.drain(5.0) == 1
    with pytest.raises(InDoubt if rule is EFFECT else UpstreamUnreachable):
        await first
    assert talk.cancelled
    assert semel.state(ask(rule)) is state
    assert semel.events(ask(rule))[-1].event == event
    assert semel.flights.in_flight == 0


@in_virtual_time
async def test_what_is_stopped_before_its_first_byte_is_released() -> None:
    """Still connecting: nothing was sent, and that is proven."""

    async def connects_for_ever(*args: object) -> object:
        await asyncio.sleep(1e6)
        raise AssertionError("not reached")

    semel = Process(None, connects_for_ever)  # type: ignore[arg-type]
    first = semel.start(ask())
    await until(lambda: semel.upstream.started == 1)
    assert await semel.flights.drain(1.0) == 1
    with pytest.raises(UpstreamUnreachable):
        await first
    assert semel.state(ask()) is State.RELEASED


@in_virtual_time
async def test_with_the_store_away_draining_ends_and_recovery_does_the_rest() -> None:
    """The mark cannot be written: callers are cut off, the row stays pending, the next process sees to it."""
    semel, talk = Process(None), Talk()
    semel.upstream.steps = [talk]
    first = semel.start(ask())
    await talk.sent.wait()
    semel.store.unavailable = True
    assert await semel.flights.drain(1.0) == 1
    assert semel.clock.monotonic() < 30.0
    assert not (await first).whole
    assert semel.flights.in_flight == 0
    semel.store.kill()
    heir = Process(semel.world)
    assert await sweep_once(heir.store, heir.ledger, heir.notebook) == 1
    assert heir.state(ask()) is State.IN_DOUBT


@in_virtual_time
async def test_a_drain_that_becomes_hurried_still_marks() -> None:
    """The first, patient drain is cancelled; a second one without patience stops and marks."""
    semel, talk = Process(None), Talk()
    semel.upstream.steps = [talk]
    first = semel.start(ask())
    await talk.sent.wait()
    patient = asyncio.create_task(semel.flights.drain(1e6))
    await asyncio.sleep(1.0)
    patient.cancel()
    assert await semel.flights.drain(0.0) == 1
    with pytest.raises(InDoubt):
        await first


@in_virtual_time
async def test_what_is_only_passed_through_is_stopped_too() -> None:
    """An endless stream without a record does not hold up the end, and its reader is not left waiting."""
    semel, talk = Process(None), Talk()
    semel.upstream.steps = [talk]
    passing = asyncio.create_task(semel.exchange.forward(OUTGOING, Labels("mail", "default"), safe=True))
    await talk.sent.wait()
    assert await semel.flights.drain(1.0) == 1
    assert semel.clock.monotonic() < 2.0
    with pytest.raises(UpstreamUnreachable):
        await passing
    assert semel.flights.in_flight == 0


@in_virtual_time
async def test_an_answer_during_the_drain_is_recorded() -> None:
    """It comes while we wait: a normal end."""
    semel, talk = Process(None), Talk()
    semel.upstream.steps = [talk]
    first = semel.start(ask())
    await talk.sent.wait()
    draining = asyncio.create_task(semel.flights.drain(30.0))
    await asyncio.sleep(10.0)
    talk.answer(body=b"just in time")
    assert await draining == 0
    assert await first == Got("executed", 200, b"just in time")
    assert semel.state(ask()) is State.DONE
