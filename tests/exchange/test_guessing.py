"""When call after call was new, the next is claimed without looking: right most of the time, never wrong."""

from __future__ import annotations

import pytest

from proxy import ledger
from proxy.core.intent import Call
from proxy.errors import InDoubt, StoreUnavailable
from tests.exchange.stage import EFFECT, Process, answers, ask, lost, not_sent
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")

ENOUGH = 3


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "NEW_IN_A_ROW", ENOUGH)


class Counted(Process):
    """Counts how often the store is asked for a row before anything is claimed."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.reads = 0
        real = self.store.get

        async def get(key: bytes, known: Call | None = None) -> Call | None:
            self.reads += 1
            return await real(key, known)

        self.store.get = get  # type: ignore[method-assign]

    async def meet_new_ones(self) -> None:
        for number in range(ENOUGH):
            assert (await self.call(ask(n=100 + number))).kind == "executed"
        assert self.reads == ENOUGH
        self.reads = 0


def semel(*steps: object) -> Counted:
    return Counted(None, *(answers() for _ in range(ENOUGH)), *steps)


@in_virtual_time
async def test_after_many_new_calls_the_next_is_claimed_without_looking() -> None:
    """And its answer is recorded as ever."""
    process = semel(answers())
    await process.meet_new_ones()
    assert (await process.call(ask())).kind == "executed"
    assert process.reads == 0
    assert (await process.call(ask())).kind == "replayed"
    assert process.upstream.went_out == ENOUGH + 1


@in_virtual_time
async def test_a_wrong_guess_is_a_replay_and_the_next_call_is_looked_for() -> None:
    """The call was recorded long ago, by a process that is gone: one claim in vain, no send."""
    first = Process(None, answers())
    assert (await first.call(ask())).kind == "executed"
    process = Counted(first.world, *(answers() for _ in range(ENOUGH)), answers())
    await process.meet_new_ones()
    assert (await process.call(ask())).kind == "replayed"
    assert process.reads == 1
    assert (await process.call(ask(n=2))).kind == "executed"
    assert process.reads == 2
    assert process.upstream.went_out == ENOUGH + 1


@in_virtual_time
async def test_a_wrong_guess_uses_up_no_patience() -> None:
    """Nothing came of the call before: it is claimed again at once, also by a caller who would not wait."""
    impatient = EFFECT.__class__(name="send", safe=False, ttl=3600.0, wait=0.0)
    first = Process(None, not_sent(), not_sent())
    with pytest.raises(Exception, match="connection refused"):
        await first.call(ask(impatient))
    process = Counted(first.world, *(answers() for _ in range(ENOUGH)), answers())
    await process.meet_new_ones()
    assert (await process.call(ask(impatient))).kind == "executed"


@in_virtual_time
async def test_a_call_in_doubt_is_held_whatever_was_guessed() -> None:
    """The claim loses against the row, and the row says what it is."""
    first = Process(None, lost())
    with pytest.raises(InDoubt):
        await first.call(ask())
    process = Counted(first.world, *(answers() for _ in range(ENOUGH)))
    await process.meet_new_ones()
    with pytest.raises(InDoubt):
        await process.call(ask())
    assert process.upstream.went_out == ENOUGH


@in_virtual_time
async def test_a_store_that_cannot_be_written_is_read_again() -> None:
    """One call may be refused for the guess; after that what is recorded is replayed."""
    first = Process(None, answers(), answers())
    for number in (1, 2):
        assert (await first.call(ask(n=number))).kind == "executed"
    process = Counted(first.world, *(answers() for _ in range(ENOUGH)))
    await process.meet_new_ones()

    async def full(call: Call) -> None:
        raise StoreUnavailable("the disk is full")

    process.store.before_swap = full
    with pytest.raises(StoreUnavailable):
        await process.call(ask(n=1))
    assert (await process.call(ask(n=2))).kind == "replayed"
    assert process.upstream.went_out == ENOUGH


@in_virtual_time
async def test_while_shutting_down_nothing_is_guessed() -> None:
    """What is recorded is still replayed."""
    first = Process(None, answers())
    assert (await first.call(ask())).kind == "executed"
    process = Counted(first.world, *(answers() for _ in range(ENOUGH)))
    await process.meet_new_ones()
    await process.flights.drain(1.0)
    assert (await process.call(ask())).kind == "replayed"
