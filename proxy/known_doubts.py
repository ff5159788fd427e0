"""Since when this process has known that a call is in doubt, by its own clock alone.

That a probe finds nothing counts only when what was sent has had its time. Times that others wrote down, and
clocks that are set, measure nothing: after a jump an absence would count while the request is still on its
way. What this process has itself known for so long has been in doubt for at least that long.
"""

from __future__ import annotations

from proxy.clock import Clock
from proxy.core.intent import Call, State
from proxy.store.base import Store

# So many are looked at in one sweep, the oldest first. Others count from when they are asked about.
MOST = 1000


class KnownDoubts:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._since: dict[tuple[bytes, int], float] = {}  # by key and fence: another send is another doubt

    def since(self, call: Call) -> float:
        """By the monotonic clock. From now on, if it is new here."""
        return self._since.setdefault((call.key, call.fence), self._clock.monotonic())

    async def look(self) -> None:
        """At what others have put in doubt, or was when this process began."""
        calls = await self._store.in_state(State.IN_DOUBT, limit=MOST)
        if len(calls) < MOST:  # these are all: what is not among them is settled
            present = {(call.key, call.fence) for call in calls}
            self._since = {name: at for name, at in self._since.items() if name in present}
        for call in calls:
            self.since(call)
