"""Who lives, by beats: the watcher's rule and the owner's, on clocks of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import StoreUnavailable
from proxy.store.heartbeats import BREAK, MARGIN, Beat, Heart, Pulse, Watch

DEAD_AFTER = 15.0


def looked(watch: Watch, *looks: tuple[float, int]) -> Watch:
    """At this time it had this beat."""
    for at, count in looks:
        watch.look([Beat("x", count)], at)
    return watch


def test_a_beat_that_does_not_change_for_so_long_is_a_silence() -> None:
    """By the watcher's clock, from the moment it saw that beat first; a change starts it anew."""
    watch = looked(Watch(DEAD_AFTER), (0, 1), (5, 1), (10, 1), (14.9, 1))
    assert watch.silent(14.9) == []
    watch.look([Beat("x", 1)], 15.0)
    assert watch.silent(15.0) == [Beat("x", 1)]
    watch.look([Beat("x", 2)], 16.0)
    assert watch.silent(16.0) == []


def test_only_what_was_looked_at_counts() -> None:
    """Time that passed since the last look says nothing about the owner."""
    watch = looked(Watch(DEAD_AFTER), (0, 1), (10, 1))
    assert watch.silent(20.0) == []


def test_after_a_break_in_looking_nobody_is_blamed() -> None:
    """A store that was away, or a watcher that slept: everybody has the whole time again."""
    watch = looked(Watch(DEAD_AFTER), (0, 1), (5, 1), (5 + BREAK * DEAD_AFTER + 0.1, 1))
    assert watch.silent(17.0) == []
    looked(watch, (25, 1), (31, 1))
    assert watch.silent(31.0) == []
    looked(watch, (31.5, 1))
    assert watch.silent(31.5) == [Beat("x", 1)]


def test_a_watcher_waits_as_long_as_the_owner_may_act() -> None:
    """Where the two were given different times, the longer one counts."""
    watch = Watch(DEAD_AFTER)
    for at in range(0, 41, 5):
        watch.look([Beat("x", 1, patience=40.0), Beat("y", 1, patience=5.0)], at)
        assert [beat.epoch for beat in watch.silent(at)] == ["y"] * (at >= 15) if at < 40 else ["x", "y"]


@given(
    beats=st.lists(st.floats(0.1, 12), max_size=20),
    looks=st.lists(st.floats(0.1, 14), min_size=1, max_size=60),
    lag=st.floats(0, 3),
)
def test_nobody_is_silent_while_it_may_act(beats: list[float], looks: list[float], lag: float) -> None:
    """Whatever the beats and the looks: while the owner's own pulse is fresh, no watcher finds it silent."""
    now = 0.0
    pulse, watch = Pulse(DEAD_AFTER, lambda: now), Watch(DEAD_AFTER)
    begun, at = [0.0], 0.0
    for pause in beats:
        at += pause
        begun.append(at)
    for pause in looks:
        now += pause
        landed = [when for when in begun if when + lag <= now]  # begun, and in the store a little later
        for when in landed:
            pulse.landed(when)
        watch.look([Beat("x", len(landed))], now)
        assert not (pulse.fresh() and watch.silent(now))


def test_a_pulse_is_fresh_for_less_than_the_others_wait() -> None:
    """Counted from the moment the beat was begun, not from its answer."""
    now = 100.0
    pulse = Pulse(DEAD_AFTER, lambda: now)
    assert not pulse.fresh()
    pulse.landed(100.0)
    now = 100.0 + DEAD_AFTER * (1 - MARGIN) - 0.01
    assert pulse.fresh()
    now += 0.02
    assert not pulse.fresh()
    pulse.landed(90.0)  # an old answer that came late
    assert not pulse.fresh()


class Register:
    """Beats in a dictionary; `away` takes the store away."""

    def __init__(self) -> None:
        self.owners: dict[str, Beat] = {}
        self.away = False

    def _check(self) -> None:
        if self.away:
            raise StoreUnavailable("away")

    async def enroll(self, epoch: str, patience: float) -> None:
        self._check()
        self.owners[epoch] = Beat(epoch, 1, patience=patience)

    async def beat(self, epoch: str) -> list[Beat]:
        self._check()
        own = self.owners.get(epoch)
        if own is not None and not own.dead:
            self.owners[epoch] = Beat(epoch, own.count + 1, patience=own.patience)
        return list(self.owners.values())

    async def all(self) -> list[Beat]:
        self._check()
        return list(self.owners.values())

    async def bury(self, beat: Beat) -> bool:
        self._check()
        present = self.owners.get(beat.epoch)
        if present is None or not (present.dead or present.count == beat.count):
            return False
        self.owners[beat.epoch] = Beat(beat.epoch, present.count, True, present.patience)
        return True

    async def leave(self, epoch: str) -> None:
        self._check()
        self.owners.pop(epoch, None)


async def started(register: Register, clock: Callable[[], float]) -> Heart:
    heart = Heart(
        register, heartbeat=1000.0, dead_after=DEAD_AFTER, clock=clock
    )  # beats when the test says so
    await heart.start()
    return heart


async def test_the_buried_go_on_under_another_name() -> None:
    """And only then: a beat that came before the burial wins over it."""
    now = 0.0
    register = Register()
    one, two = await started(register, lambda: now), await started(register, lambda: now)
    try:
        for _ in range(3):
            assert await two.dead_among([one.epoch]) == []
            now += 5.0
        stale = Beat(one.epoch, 1)
        assert not one.pulse.fresh()
        await one.beat()
        assert one.pulse.fresh()
        assert not await register.bury(stale)
        first = one.epoch
        for _ in range(4):
            now += 5.0
            await two.dead_among([first])
        assert await two.dead_among([first]) == [first]
        assert not one.pulse.fresh()
        await one.beat()
        assert one.pulse.fresh()
        assert one.epoch != first
        assert await two.dead_among([first, one.epoch]) == [first]
    finally:
        await one.stop()
        await two.stop()
    assert list(register.owners) == [first]


async def test_many_who_ask_share_a_look_and_a_stranger_is_looked_for() -> None:
    """A round trip for each would keep the beats waiting; but who enrolled a moment ago is never dead."""
    register = Register()
    looks = 0
    see = register.all

    async def counted() -> list[Beat]:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0)
        return await see()

    register.all = counted  # type: ignore[method-assign]
    one, two = await started(register, lambda: 0.0), await started(register, lambda: 0.0)
    try:
        answers = await asyncio.gather(*(two.dead_among([one.epoch]) for _ in range(100)))
        assert answers == [[]] * 100
        assert looks <= 2
        three = await started(register, lambda: 0.0)
        assert await two.dead_among([three.epoch]) == []
        await three.stop()
    finally:
        await one.stop()
        await two.stop()


async def test_who_cannot_enroll_anew_does_not_act() -> None:
    """Buried, and the store goes away at that moment: no until it is back."""
    now = 0.0
    register = Register()
    heart = await started(register, lambda: now)
    try:
        first = heart.epoch
        register.owners[first] = Beat(first, 1, dead=True)
        enroll = register.enroll

        async def fails(epoch: str, patience: float) -> None:
            raise StoreUnavailable("away")

        register.enroll = fails  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await heart.beat()
        assert not heart.pulse.fresh()
        register.enroll = enroll  # type: ignore[method-assign]
        await heart.beat()
        assert heart.pulse.fresh()
        assert heart.epoch != first
    finally:
        await heart.stop()


async def test_who_leaves_is_dead_at_once_and_says_no_more() -> None:
    """Stopped, its pulse is gone; with the store away it still stops."""
    register = Register()
    one, two = await started(register, lambda: 0.0), await started(register, lambda: 0.0)
    await one.stop()
    assert not one.pulse.fresh()
    assert await two.dead_among([one.epoch, "never heard of"]) == [one.epoch, "never heard of"]
    register.away = True
    async with asyncio.timeout(5):
        await two.stop()
    assert not two.pulse.fresh()
