"""What a dead process left behind: its pending calls, settled by the same table as everything else."""

from __future__ import annotations

from proxy.clock import Clock
from proxy.core.intent import State
from proxy.errors import StoreUnavailable
from proxy.ledger import Ledger
from proxy.observe import Observer
from proxy.store.base import Store

# Callers who meet a dead owner's call recover it themselves; this is for those that nobody asks for.
SWEEP_EVERY = 5.0


async def sweep_once(store: Store, ledger: Ledger, observer: Observer) -> int:
    """Settle every orphan: with effects in doubt, safe released. How many this process settled."""
    settled = 0
    for call in await store.orphans():
        moved = await ledger.recover(call)
        if moved is not None:
            settled += 1
            doubtful = moved.state is State.IN_DOUBT
            observer.noted(
                "recovered", call=call.id, state=str(moved.state), tool=call.tool, doubtful=doubtful
            )
    return settled


async def sweep_forever(store: Store, ledger: Ledger, observer: Observer, clock: Clock) -> None:
    while True:
        await clock.sleep(SWEEP_EVERY)
        try:
            await sweep_once(store, ledger, observer)
        except StoreUnavailable as error:
            observer.noted("store-trouble", doing="sweep", error=error.detail)
