"""What stands in the record and needs a person, and whether somebody was told of it."""

from __future__ import annotations

from proxy.clock import Clock
from proxy.core.intent import Entry, State
from proxy.notifying.event import OF_STATE, Event, of_call
from proxy.notifying.schema import Kind
from proxy.store.base import Query, Store

# The history's word for it; its line says which notification it was.
NOTIFIED = "notified"
# So many are looked at in one go, newest first.
PAGE = 100


async def was_told(store: Store, event: Event) -> bool:
    return any(line.event == NOTIFIED and event.id in line.why for line in await store.history(event.key))


async def is_over(store: Store, event: Event) -> bool:
    """Whether nobody need be told any more: it was decided, or another process has told it."""
    call = await store.get(event.key)
    if call is None or (call.state, call.fence) != (event.state, event.fence):
        return True
    return await was_told(store, event)


async def note_told(store: Store, clock: Clock, event: Event, to: str) -> None:
    entry = Entry(
        at=clock.now(),
        actor=f"proxy:{store.owner}",
        event=NOTIFIED,
        before=event.state,
        after=event.state,
        why=f"told {to} ({event.id})",
        fence=event.fence,
    )
    await store.note(event.key, entry)


class Walk:
    """One walk over all calls that stand, a page at a time."""

    def __init__(self, store: Store, kinds: tuple[Kind, ...]) -> None:
        self._store = store
        self._states: list[State] = [state for state, kind in OF_STATE.items() if kind in kinds]
        self._after: int | None = None

    @property
    def is_done(self) -> bool:
        return not self._states

    async def page(self) -> list[Event]:
        """Told ones among them."""
        if self.is_done:
            return []
        state = self._states[0]
        found = await self._store.find(Query(state=state, limit=PAGE, after=self._after))
        self._after = found.next
        if found.next is None:
            self._states.pop(0)
        return [of_call(call) for call in found.calls if call.state is state]
