"""What a dead process left behind: its pending calls, settled by the same table as everything else; and
questions to people that are past their time.

Nothing that goes wrong with one sweep, or with one row, ends the sweeping."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from proxy.clock import Clock
from proxy.core.intent import Call
from proxy.errors import StoreUnavailable
from proxy.ledger import Ledger
from proxy.observe import Observer
from proxy.store.base import Store

# Callers who meet a dead owner's call recover it themselves; this is for those that nobody asks for.
SWEEP_EVERY = 5.0
# A process that dies under load leaves thousands, and the next is ready when they are settled: one commit
# for each would take as many times as long as one for all that fit into it.
AT_ONCE = 256


async def sweep_once(store: Store, ledger: Ledger, observer: Observer, told: set[str] | None = None) -> int:
    """Settle every orphan: with effects in doubt, safe released. How many this process settled. A row that
    cannot be read stays as it is; what is in `told` is not told again."""
    orphans = await store.orphans()
    told = set() if told is None else told
    for call_id in orphans.unreadable.keys() - told:
        observer.noted("unreadable-row", call=call_id, error=orphans.unreadable[call_id])
        told.add(call_id)
    settled = 0
    for first in range(0, len(orphans.calls), AT_ONCE):
        settled += await _recover(ledger, orphans.calls[first : first + AT_ONCE])
    await ledger.lapse_questions()
    await ledger.known_doubts.look()
    return settled


async def _recover(ledger: Ledger, calls: Sequence[Call]) -> int:
    """Together, so that they share a commit. What goes wrong with one is raised when the others are done."""
    ended = await asyncio.gather(*map(ledger.recover, calls), return_exceptions=True)
    for error in ended:
        if isinstance(error, BaseException):
            raise error
    return sum(moved is not None for moved in ended)


async def sweep_forever(
    store: Store, ledger: Ledger, observer: Observer, clock: Clock, told: set[str] | None = None
) -> None:
    told = set() if told is None else told
    while True:
        await clock.sleep(SWEEP_EVERY)
        try:
            await sweep_once(store, ledger, observer, told)
            await store.clock_mark(clock.now())  # so that a clock that is set back is noticed
        except StoreUnavailable as error:
            observer.noted("store-trouble", doing="sweep", error=error.detail)
        except Exception as error:  # a defect of ours: said each time, and the next sweep may be better
            observer.noted("sweep-failed", error=f"{type(error).__name__}: {error}")
