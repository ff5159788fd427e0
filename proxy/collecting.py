"""Collecting: what is past its time goes by itself, in portions so small that no call waits for one.

A row past its time is as good as deleted already (core/intent.py), so collecting is housekeeping and never
urgent. What goes wrong with it is noted, and tried again the next time. Nor is it done by a clock that was
just set forward: set back again, it finds everything still there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from proxy.clock import Clock
from proxy.errors import StoreUnavailable
from proxy.observe import COLLECTED, Observer
from proxy.store.base import Collected, Store

# Two hundred calls keep the embedded store's writer for five milliseconds. With the pause they take a fifth
# of its time, and go faster than a busy proxy can make new ones.
PORTION, PAUSE = 200, 0.02
# Whoever found a call in its last moment may still be about to open the blob of its answer.
GRACE = 60.0
# A clock that has gained so much on the time that passed was set; one that is merely corrected gains less.
SET_FORWARD = 60.0
# The first time comes soon after the start: a proxy that is restarted every half hour collects too.
SOON = 60.0
WAITS = "nothing is collected this time: if the clock is wrong, set it right before the next"


async def collecting(store: Store, clock: Clock, retention: float) -> AsyncIterator[Collected]:
    """Portion after portion until nothing is left; after each, what was removed so far. `retention`: of runs,
    from their last activity on."""
    now = clock.now() - GRACE
    total = Collected(calls=0, blobs=0, bytes=0, more=True)
    while total.more:
        total = total.with_portion(await store.collect(now, limit=PORTION, runs_before=now - retention))
        yield total
        if total.more:
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
        if total is not None and total:
            figures = {"calls": total.calls, "runs": total.runs, "blobs": total.blobs, "bytes": total.bytes}
            observer.noted(COLLECTED, **figures)


async def collect_forever(
    store: Store,
    observer: Observer,
    clock: Clock,
    *,
    every: float,
    retention: float,
    after: Callable[[], None] = lambda: None,
) -> None:
    """`after`: who keeps something of the store in mind must look again, also if only a part was done."""
    pause = min(every, SOON)
    ahead = clock.now() - clock.monotonic()
    while True:
        await clock.sleep(pause)
        pause = every
        before, ahead = ahead, clock.now() - clock.monotonic()
        if ahead - before > SET_FORWARD:  # or the machine slept: then it is done the next time
            observer.noted("clock-set-forward", seconds=round(ahead - before), detail=WAITS)
            continue
        try:
            await collect_once(store, observer, clock, retention)
        except StoreUnavailable as error:
            observer.noted("store-trouble", doing="collecting", error=error.detail)
        except Exception as error:  # a defect of ours: said each time, and the next time may be better
            observer.noted("collecting-failed", error=f"{type(error).__name__}: {error}")
        finally:
            after()
