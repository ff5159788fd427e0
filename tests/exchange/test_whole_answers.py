"""An answer that is here in one piece: nobody sees it before it is durable; who comes meanwhile gets it too.

What else holds of answers holds of these: the other tests of the exchange are run both ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proxy.core.intent import Call, State
from proxy.errors import InDoubt
from proxy.flight import Flight
from proxy.stream import CaptureLimits
from proxy.upstream.base import Answered, Headers, NotSent, Outgoing, Result, Sink, WholeSink
from tests.exchange import stage
from tests.exchange.stage import SAFE, Got, Process, Step, Talk, ask, quietly, until
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")

JSON = ((b"Content-Type", b"application/json"),)
EVENTS = ((b"Content-Type", b"text/event-stream"),)


@pytest.fixture(autouse=True)
def _in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "IN_ONE_PIECE", True)


class Settling:
    """Holds what would settle a call until it is let go."""

    def __init__(self, semel: Process) -> None:
        self.reached, self.let_go = asyncio.Event(), asyncio.Event()
        semel.store.before_swap = self._before

    async def _before(self, call: Call) -> None:
        if call.state is not State.PENDING:
            self.reached.set()
            await self.let_go.wait()


@in_virtual_time
async def test_nobody_sees_it_before_it_is_durable() -> None:
    """It is all here, and the store takes its time."""
    semel = Process(None, stage.answers(201, b"made"))
    settling = Settling(semel)
    caller = semel.start(ask())
    await settling.reached.wait()
    await asyncio.sleep(5.0)
    assert _flight(semel).whole is not None
    assert not caller.done()
    assert semel.row(ask()).state is State.PENDING
    settling.let_go.set()
    assert await caller == Got("executed", 201, b"made")
    assert semel.row(ask()).state is State.DONE
    assert await semel.call(ask()) == Got("replayed", 201, b"made")


@in_virtual_time
async def test_who_joins_while_it_is_written_gets_it_when_it_is_durable() -> None:
    """The first caller too: it is told by the parts then, and the end waits for the record."""
    semel = Process(None, stage.answers(201, b"made"))
    settling = Settling(semel)
    first = semel.start(ask())
    await settling.reached.wait()
    others = [semel.start(ask()) for _ in range(3)]
    await until(lambda: _flight(semel).callers == 4)
    await asyncio.sleep(5.0)
    assert not any(task.done() for task in (first, *others))
    settling.let_go.set()
    assert await first == Got("executed", 201, b"made")
    assert await asyncio.gather(*others) == [Got("joined", 201, b"made")] * 3
    assert semel.upstream.started == 1


@in_virtual_time
async def test_who_joins_before_it_came_makes_it_come_in_parts() -> None:
    talk = Talk()
    semel = Process(None, talk)
    first = semel.start(ask())
    await talk.sent.wait()
    other = semel.start(ask())
    await until(lambda: _flight(semel).callers == 2)
    flight = _flight(semel)
    talk.answer(201, b"made")
    assert await first == Got("executed", 201, b"made")
    assert await other == Got("joined", 201, b"made")
    assert flight.whole is None


@in_virtual_time
async def test_a_caller_who_leaves_while_it_is_written_finds_it_later() -> None:
    semel = Process(None, stage.answers(201, b"made"))
    settling = Settling(semel)
    first = semel.start(ask())
    await settling.reached.wait()
    await quietly(first)
    settling.let_go.set()
    await until(lambda: semel.flights.in_flight == 0)
    assert await semel.call(ask()) == Got("replayed", 201, b"made")
    assert semel.upstream.started == 1


@in_virtual_time
async def test_one_who_joined_gets_it_when_the_first_has_left() -> None:
    semel = Process(None, stage.answers(201, b"made"))
    settling = Settling(semel)
    first = semel.start(ask())
    await settling.reached.wait()
    other = semel.start(ask())
    await until(lambda: _flight(semel).callers == 2)
    await quietly(first)
    settling.let_go.set()
    assert await other == Got("joined", 201, b"made")


@in_virtual_time
async def test_what_does_not_say_whether_it_took_effect_is_in_doubt() -> None:
    semel = Process(None, stage.answers(500, b"oh"))
    with pytest.raises(InDoubt):
        await semel.call(ask())
    assert semel.row(ask()).state is State.IN_DOUBT


@in_virtual_time
async def test_what_is_not_kept_is_given_all_the_same() -> None:
    """Refused by the upstream: nothing happened, the next one is sent."""
    semel = Process(None, stage.answers(429, b"slow down"), stage.answers(201, b"made"))
    assert await semel.call(ask()) == Got("executed", 429, b"slow down")
    assert semel.row(ask()).state is State.RELEASED
    assert await semel.call(ask()) == Got("executed", 201, b"made")


@in_virtual_time
async def test_nobody_gets_the_end_of_what_never_became_durable() -> None:
    """Until the time for it is over; then the connection is cut."""
    semel = Process(None, stage.answers(201, b"made"))
    settling = Settling(semel)
    first = semel.start(ask(total=30.0))
    await settling.reached.wait()
    semel.store.unavailable = True
    settling.let_go.set()
    assert not (await first).whole
    semel.store.unavailable = False
    await until(lambda: semel.flights.in_flight == 0)
    assert await semel.call(ask()) == Got("replayed", 201, b"made")


@in_virtual_time
async def test_a_process_that_ends_lets_it_be_written() -> None:
    semel = Process(None, stage.answers(201, b"made"))
    settling = Settling(semel)
    first = semel.start(ask())
    await settling.reached.wait()
    ending = asyncio.create_task(semel.flights.drain(60.0))
    await until(lambda: semel.flights.stopping)
    settling.let_go.set()
    assert await first == Got("executed", 201, b"made")
    assert await ending == 0


@in_virtual_time
async def test_a_process_that_dies_while_it_is_written_leaves_the_call_in_doubt() -> None:
    """The answer was here and nobody has seen it: the next one may not send."""
    world = World()
    semel = Process(world, stage.answers(201, b"made"))
    settling = Settling(semel)
    first = semel.start(ask())
    await settling.reached.wait()
    await semel.die()
    await quietly(first)
    after = Process(world)
    with pytest.raises(InDoubt):
        await after.call(ask())
    assert after.upstream.started == 0


def offers(headers: Headers, body: bytes, seen: list[bool]) -> Step:
    """Asks the sink, and notes what it said."""

    async def step(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        if not may_send():
            return NotSent("not the owner any more")
        taken = isinstance(sink, WholeSink) and sink.wants(headers, len(body))
        seen.append(taken)
        if taken:
            assert isinstance(sink, WholeSink)
            sink.take(200, headers, body)
        else:
            sink.head(200, headers)
            await sink.data(body)
        return Answered(200)

    return step


@in_virtual_time
@pytest.mark.parametrize(
    ("headers", "size", "kept", "taken"),
    [
        (JSON, 1024, 1 << 20, True),
        (JSON, 0, 1 << 20, True),
        (JSON, 1025, 1 << 20, False),  # longer than what is kept in the row
        (JSON, 100, 99, False),  # longer than what is kept at all
        (EVENTS, 100, 1 << 20, False),  # whoever reads events wants each when it comes
    ],
)
async def test_what_is_taken_in_one_piece(headers: Headers, size: int, kept: int, taken: bool) -> None:
    seen: list[bool] = []
    body = b"x" * size
    semel = Process(None, offers(headers, body, seen), limits=CaptureLimits(kept=kept))
    got = await semel.call(ask())
    assert (got.status, got.body) == (200, body)
    assert seen == [taken]
    if size <= kept:
        assert await semel.call(ask()) == Got("replayed", 200, body)


@in_virtual_time
async def test_a_safe_call_that_was_answered_whole_is_recorded_as_any_other() -> None:
    semel = Process(None, stage.answers(200, b"found"))
    assert await semel.call(ask(SAFE)) == Got("executed", 200, b"found")
    assert await semel.call(ask(SAFE)) == Got("replayed", 200, b"found")


def _flight(semel: Process) -> Flight:
    (flight,) = semel.flights.by_key.values()
    return flight
