"""Collecting: what is past its time goes by itself, in portions so small that no call waits for one.

A row past its time is as good as deleted already (core/intent.py), so collecting is housekeeping and never
urgent. What goes wrong with it is noted, and tried again the next time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from proxy.clock import Clock
from proxy.errors import StoreUnavailable
from proxy.observe import Observer
from proxy.store.base import Collected, Store

# Two hundred calls keep the embedded store's writer for five milliseconds. With the pause they take a fifth
# of its time, and go faster than a busy proxy can make new ones.
PORTION, PAUSE = 200, 0.02
# Whoever found a call in its last moment may still be about to open the blob of its answer.
GRACE = 60.0
# The first time comes soon after the start: a proxy that is restarted every half hour collects too.
SOON = 60.0


async def collecting(store: Store, clock: Clock, retention: float) -> AsyncIterator[Collected]:
    """Portion after portion until nothing is left; after each, what was removed so far. `retention`: of runs,
    from their last activity on."""
    now = clock.now() - GRACE
    calls = blobs = size = 0
    more = True
    while more:
        portion = await store.collect(now, limit=PORTION, runs_before=now - retention)
        calls, blobs, size = calls + portion.calls, blobs + portion.blobs, size + portion.bytes
        more = portion.more
        yield Collected(calls=calls, blobs=blobs, bytes=size, more=more)
        if more:
            await clock.sleep(PAUSE)


async def collectable(store: Store, clock: Clock, retention: float) -> Collected:
    """What `collecting` would remove now."""
    now = clock.now() - GRACE
    return await store.collect(now, dry_run=True, runs_before=now - retention)


async def collect_once(store: Store, observer: Observer, clock: Clock, retention: float) -> None:
    """Tells what was removed, also when it ends before its time."""
    total = None
    try:
        async for so_far in collecting(store, clock, retention):
            total = so_far
    finally:
        if total is not None and (total.calls or total.blobs):
            observer.noted("collected", calls=total.calls, blobs=total.blobs, bytes=total.bytes)


async def collect_forever(
    store: Store,
    observer: Observer,
    clock: Clock,
    *,
    every: float,
    retention: float,
    after: Callable[[], None] = lambda: None,
) -> None:
    """`after`: who keeps something of the store in mind must look again."""
    pause = min(every, SOON)
    while True:
        await clock.sleep(pause)
        pause = every
        try:
            await collect_once(store, observer, clock, retention)
            after()
        except StoreUnavailable as error:
            observer.noted("store-trouble", doing="collecting", error=error.detail)
        except Exception as error:  # a defect of ours: said each time, and the next time may be better
            observer.noted("collecting-failed", error=f"{type(error).__name__}: {error}")
