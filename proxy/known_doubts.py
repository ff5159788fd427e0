"""Since when this process has known that a call is in doubt, by its own clock alone.

That a probe finds nothing counts only when what was sent has had its time. Times that others wrote down, and
clocks that are set, measure nothing: after a jump an absence would count while the request is still on its
way. What this process has itself known for so long has been in doubt for at least that long. What it has
forgotten, or has not seen, counts from when it sees it: that is later, and never too early.
"""

from __future__ import annotations

from itertools import islice

from proxy.clock import Clock
from proxy.core.intent import Call, State
from proxy.store.base import Query, Store

# So many are looked at in one sweep, the newest first: older ones were seen when they were new.
SEEN_AT_ONCE = 200
# And so many are remembered.
MOST = 10_000


class KnownDoubts:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        # By key, birth and fence: another send is another doubt, and so is that of a row that was made anew.
        self._since: dict[tuple[bytes, float, int], float] = {}

    def since(self, call: Call) -> float:
        """By the monotonic clock. From now on, if it is new here."""
        at = self._since.setdefault(_name(call), self._clock.monotonic())
        if len(self._since) > MOST:
            for name in list(islice(self._since, MOST // 10)):
                del self._since[name]
        return at

    async def look(self) -> None:
        """At what others have put in doubt, or was when this process began. What cannot be read is left
        out."""
        page = await self._store.find(Query(state=State.IN_DOUBT, limit=SEEN_AT_ONCE))
        if page.next is None:  # these are all: what is not among them is settled
            present = set(map(_name, page.calls))
            self._since = {name: at for name, at in self._since.items() if name in present}
        for call in page.calls:
            self.since(call)


def _name(call: Call) -> tuple[bytes, float, int]:
    return call.key, call.born, call.fence
