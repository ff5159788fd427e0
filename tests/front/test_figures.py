"""The page at /metrics is bounded in what it costs and in how long it takes, whoever asks, how often."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from proxy.errors import StoreUnavailable
from proxy.front import figures
from proxy.front.figures import FiguresPage
from proxy.metrics import MetricsObserver
from proxy.store.base import Census, Store
from tests.exchange.virtual_time import VirtualClock, in_virtual_time

EMPTY = Census(by_state={}, oldest_doubt_at=None, oldest_question_at=None, bytes_used=7, parts={}, owners=1)
TOLD = b"semel_store_bytes 7.0"


class SlowStore:
    """`takes` seconds to tell of itself, or does not at all."""

    name = "slow"

    def __init__(self, takes: float = 0.0) -> None:
        self.takes = takes
        self.asked = 0
        self.away = False

    async def census(self) -> Census:
        self.asked += 1
        await asyncio.sleep(self.takes)
        if self.away:
            raise StoreUnavailable("away")
        return EMPTY


class Ponderous(MetricsObserver):
    """Takes a second to write a page, of a clock that only this sets forward."""

    def __init__(self, clock: SetForward) -> None:
        super().__init__()
        self.pages = 0
        self._clock = clock

    def render(self, *args: object) -> bytes:
        self.pages += 1
        self._clock.ahead += 1.0
        return super().render(*args)  # type: ignore[arg-type]


class SetForward(VirtualClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def page_of(store: SlowStore, metrics: MetricsObserver, clock: VirtualClock) -> FiguresPage:
    return FiguresPage(store=cast("Store", store), metrics=metrics, siblings=None, clock=clock)


@in_virtual_time
async def test_a_store_that_hangs_is_left_out_and_not_asked_twice() -> None:
    """Else the scrape times out, and semel looks dead where only its store is."""
    store, clock = SlowStore(takes=1000.0), VirtualClock()
    page = page_of(store, MetricsObserver(), clock)
    for _ in range(3):
        assert TOLD not in await page()
    assert (store.asked, clock.monotonic()) == (1, figures.PATIENCE)
    await asyncio.sleep(1000.0)
    store.takes = 0.0
    assert TOLD in await page()  # asked anew: what it said late is old
    assert store.asked == 2


@in_virtual_time
async def test_a_store_that_is_away_is_left_out_until_it_is_back() -> None:
    """Each page asks it."""
    store = SlowStore()
    page = page_of(store, MetricsObserver(), VirtualClock())
    shown = []
    for store.away in (False, True, False):
        shown.append(TOLD in await page())
    assert shown == [True, False, True]


@in_virtual_time
async def test_all_who_ask_at_once_are_shown_one_page() -> None:
    """However many they are. Who comes when it was begun waits for the next: it may not tell of what this
    one has seen."""
    clock = SetForward()
    metrics, store = Ponderous(clock), SlowStore(takes=1.0)
    page = page_of(store, metrics, clock)
    first = [asyncio.create_task(page()) for _ in range(50)]
    await asyncio.sleep(0.5)
    second = [asyncio.create_task(page()) for _ in range(50)]
    assert len(set(await asyncio.gather(*first))) == 1
    assert metrics.pages == 1
    await asyncio.gather(*second)
    assert metrics.pages == 2


@in_virtual_time
async def test_calls_have_most_of_the_time_between_two_pages() -> None:
    """A page that takes a second is written every tenth second, however often it is asked for."""
    clock = SetForward()
    metrics = Ponderous(clock)
    page = page_of(SlowStore(), metrics, clock)
    for _ in range(10):
        await page()
    assert clock.monotonic() == pytest.approx(1.0 + 9 * (figures.PAUSE + 1))
    await asyncio.sleep(figures.PAUSE)
    before = clock.monotonic()
    await page()
    assert clock.monotonic() == pytest.approx(before + 1.0)  # who asks now and then does not wait


@in_virtual_time
async def test_who_gives_up_takes_the_page_from_nobody() -> None:
    """A connection that ends cancels its own waiting alone."""
    page = page_of(SlowStore(takes=1.0), MetricsObserver(), VirtualClock())
    impatient, patient = asyncio.create_task(page()), asyncio.create_task(page())
    await asyncio.sleep(0.5)
    impatient.cancel()
    assert TOLD in await patient
