"""Identical calls at the same time: one send, everybody gets its answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy.asking import Live
from proxy.core.intent import State
from proxy.errors import IdentityCollision, InDoubt, InProgress, KeyConflict
from proxy.stream import CaptureLimits
from proxy.upstream.base import Answered, Lost
from tests.exchange.stage import EFFECT, Got, Process, Talk, answers, ask, quietly, read, until
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")


@in_virtual_time
async def test_identical_calls_in_one_process_share_one_send() -> None:
    """The first is executed, the others join and get the same bytes, from the first on."""
    semel = Process(None, answers(201, b"made", after=1.0))
    got = await asyncio.gather(*(semel.call(ask()) for _ in range(10)))
    assert got == [Got("executed", 201, b"made")] + [Got("joined", 201, b"made")] * 9
    assert semel.upstream.started == 1
    assert await semel.call(ask()) == Got("replayed", 201, b"made")
    assert await semel.store.replays(ask().identity.key) == 1


@in_virtual_time
async def test_one_who_joins_late_gets_the_parts_from_the_first_byte() -> None:
    """Parts are handed on as they come, to each from the beginning; the end only when it is durable."""
    talk = Talk()
    semel = Process(None, talk)
    first = await_live(semel)
    talk.head()
    talk.part(b"one ")
    live = await first
    early = asyncio.create_task(read(live))
    talk.part(b"two ")
    await until(lambda: live.reader.offset == 8)
    late = semel.start(ask())
    talk.end(Answered(200))
    assert await early == Got("executed", 200, b"one two ")
    assert await late == Got("joined", 200, b"one two ")


def await_live(semel: Process) -> asyncio.Task[Live]:
    async def start() -> Live:
        reply = await semel.exchange.ask(ask())
        assert isinstance(reply, Live)
        return reply

    return asyncio.get_running_loop().create_task(start())


@in_virtual_time
async def test_different_calls_do_not_wait_for_each_other() -> None:
    """Two names, two sends."""
    semel = Process(None, answers(body=b"a", after=5.0), answers(body=b"b", after=1.0))
    got = await asyncio.gather(semel.call(ask(n=1)), semel.call(ask(n=2)))
    assert [g.body for g in got] == [b"a", b"b"]


@in_virtual_time
async def test_two_processes_race_for_one_call_and_one_sends() -> None:
    """Both find nothing, both claim, the store lets one win; the other waits for the row and replays it."""
    for first in (0, 1):
        world = World()
        pair = [Process(world, answers(body=b"from %d" % n, after=1.0)) for n in (0, 1)]
        tasks = [pair[n].start(ask()) for n in (first, 1 - first)]
        got = await asyncio.gather(*tasks)
        assert pair[0].upstream.started + pair[1].upstream.started == 1
        assert {g.body for g in got} == {b"from %d" % first}
        assert sorted(g.kind for g in got) == ["executed", "replayed"]
        assert pair[0].row(ask()).state is State.DONE


@in_virtual_time
async def test_the_loser_of_a_race_takes_its_joiners_along() -> None:
    """Ten callers in each of two processes: one send, twenty answers."""
    world = World()
    pair = [Process(world, answers(body=b"x", after=1.0)) for _ in range(2)]
    got = await asyncio.gather(*(semel.call(ask()) for _ in range(10) for semel in pair))
    assert pair[0].upstream.started + pair[1].upstream.started == 1
    assert {(g.status, g.body, g.whole) for g in got} == {(200, b"x", True)}


@in_virtual_time
async def test_a_released_answer_is_for_those_who_joined_and_the_next_call_is_sent() -> None:
    """429 goes to everybody who waited; nothing was executed, so the next ask is live, with a new fence."""
    semel = Process(None, answers(429, b"slow down", after=1.0), answers(201, b"made"))
    got = await asyncio.gather(*(semel.call(ask()) for _ in range(3)))
    assert {(g.status, g.body) for g in got} == {(429, b"slow down")}
    assert semel.row(ask()).state is State.RELEASED
    assert await semel.call(ask()) == Got("executed", 201, b"made")
    assert semel.row(ask()).fence == 2
    assert semel.row(ask()).sends == 2


@in_virtual_time
async def test_a_waiter_that_outlives_wait_gets_in_progress_and_never_the_upstream() -> None:
    """In the same process and in another one."""
    world, talk = World(), Talk()
    here, there = Process(world, talk), Process(world)
    rule = replace(EFFECT, wait=5.0)
    first = here.start(ask(rule))
    await talk.sent.wait()
    for semel in (here, there):
        began = semel.clock.monotonic()
        with pytest.raises(InProgress):
            await semel.call(ask(rule))
        assert semel.clock.monotonic() - began == pytest.approx(5.0)
    assert there.upstream.started == 0
    talk.answer(body=b"x")
    assert (await first).body == b"x"
    assert (await there.call(ask(rule))).kind == "replayed"


@in_virtual_time
async def test_what_is_held_is_held_for_everybody() -> None:
    """A call with effects that got lost: all who waited get in-doubt, and so does the next, unsent."""
    talk = Talk()
    semel = Process(None, talk)
    tasks = [semel.start(ask()) for _ in range(3)]
    await talk.sent.wait()
    talk.end(Lost("reset by peer"))
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [InDoubt] * 3
    with pytest.raises(InDoubt) as held:
        await semel.call(ask())
    assert "reset by peer" in held.value.detail
    assert semel.upstream.started == 1


@in_virtual_time
async def test_a_client_key_in_flight_with_other_arguments_is_a_conflict_and_without_one_a_collision() -> (
    None
):
    """The fingerprint is compared before anybody joins, as it is before anything is replayed."""
    talk = Talk()
    semel = Process(None, talk)
    first = semel.start(ask(named_by=b"n"))
    await talk.sent.wait()
    for _ in ("in flight", "recorded"):
        with pytest.raises(KeyConflict):
            await semel.call(ask(named_by=b"n", arguments=b"[1]"))
        with pytest.raises(IdentityCollision):
            await semel.call(ask(named_by=b"other", arguments=b"[1]"))
        with pytest.raises(IdentityCollision):
            await semel.call(ask())
        talk.answer()
        await first


@in_virtual_time
async def test_an_answer_too_long_to_keep_passes_whole_and_is_then_unavailable() -> None:
    """The first caller gets every byte; a joiner cannot have the start any more; nothing is sent again."""
    talk, limits = Talk(), CaptureLimits(kept=1000, memory=1000)
    semel = Process(None, talk, limits=limits)
    first = semel.start(ask())
    await talk.sent.wait()
    talk.head()
    for _ in range(30):
        talk.part(b"x" * 100)
    await until(lambda: semel.flights.by_key[ask().identity.key].capture.received == 3000)
    with pytest.raises(InProgress):
        await semel.call(ask())
    talk.end(Answered(200))
    assert await first == Got("executed", 200, b"x" * 3000)
    with pytest.raises(Exception, match="could not be kept"):
        await semel.call(ask())
    assert semel.upstream.started == 1


@in_virtual_time
async def test_a_long_answer_that_nobody_may_see_does_not_wait_for_readers() -> None:
    """A 500 longer than is kept: its caller gets in-doubt when it is complete; reading it never stalls."""
    talk, limits = Talk(), CaptureLimits(kept=1000, memory=1000)
    semel = Process(None, talk, limits=limits)
    first = semel.start(ask())
    await talk.sent.wait()
    talk.head(500)
    for _ in range(40):
        talk.part(b"x" * 100_000)
    talk.end(Answered(500))
    with pytest.raises(InDoubt):
        await first


@in_virtual_time
async def test_a_reader_that_goes_away_leaves_the_others_alone() -> None:
    """The first caller leaves in the middle; the call with effects runs on for the one who joined."""
    talk = Talk()
    semel = Process(None, talk)
    first, second = semel.start(ask()), semel.start(ask())
    await talk.sent.wait()
    await quietly(first)
    talk.answer(body=b"x")
    assert await second == Got("joined", 200, b"x")
    assert not talk.cancelled
