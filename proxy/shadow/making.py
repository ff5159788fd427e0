"""The shadow, put together: the same works as the real ones, on a record of its own, before no network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from proxy.clock import Clock
from proxy.observe import Observer
from proxy.shadow.judging import Shadow, sparing
from proxy.shadow.record import Record
from proxy.shadow.tape import Echo, NobodyAsked
from proxy.store.base import Store
from proxy.stream import CaptureLimits
from proxy.wiring import Works


def shadow_of(
    open_store: Callable[[], Awaitable[Store]],
    wire: Callable[..., Works],
    *,
    limits: CaptureLimits,
    observer: Observer,
    clock: Clock,
    collect_every: float,
    retention: float,
) -> Shadow:
    """`wire`: as the real works are, but for what is given here."""
    own = sparing(limits)
    record = Record(
        open_store=open_store,
        wire=partial(wire, limits=own, observer=observer, upstream=Echo(), asked=NobodyAsked()),
        observer=observer,
        clock=clock,
        collect_every=collect_every,
        retention=retention,
    )
    return Shadow(record=record, observer=observer, limits=own)
