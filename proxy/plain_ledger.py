"""The ledger's hand on the store where nobody awaits it: claim and settlement of a plain call.

Plain: outside runs, of no budget, by nobody's permission, under no key of the upstream's, and new. The rows
are those that ledger.py would write, made by the same functions; whatever goes wrong is left to it.
"""

from __future__ import annotations

from proxy.answers import Answers
from proxy.clock import Clock
from proxy.core import decide as core
from proxy.core.intent import Call, State
from proxy.drafting import Drafts
from proxy.intended import Intent
from proxy.observe import Observer
from proxy.store.base import Store, Swap, Told
from proxy.stream import Whole


class PlainLedger:
    def __init__(
        self, *, store: Store, drafts: Drafts, answers: Answers, clock: Clock, observer: Observer
    ) -> None:
        self._store = store
        self._drafts = drafts
        self._answers = answers
        self._clock = clock
        self._took = observer.store_again("swap")
        self._owner = self._actor = ""

    def takes(self, intent: Intent) -> bool:
        """Whether its claim needs nothing but a row."""
        rule = intent.rule
        return (
            not intent.safe
            and intent.place is None
            and intent.key is None
            and not intent.bound_to
            and rule.budget is None
            and rule.cost is None
            and not self._drafts.is_long(intent)
        )

    def claim_soon(self, intent: Intent, told: Told) -> Call:
        """As it will be claimed, if it is."""
        fresh = self._drafts.fresh(intent, "")
        call, entry, expected = core.claim(fresh, None, actor=self._said_by(), now=fresh.created_at)
        self._store.swap_soon(call, entry, expected=expected, told=told)
        return call

    def settle_soon(self, call: Call, settlement: core.Settlement, kept: Whole | None, told: Told) -> Call:
        """As it will stand, if it is still as it was claimed. Never in doubt: that has more to it."""
        now = self._clock.now()
        answer = None if kept is None else self._answers.in_row(call, kept, now)
        settled, entry = core.settle(call, settlement, actor=self._said_by(), now=now, answer=answer)
        assert settled.state is not State.IN_DOUBT
        self._store.swap_soon(settled, entry, expected=call.version, told=told)
        return settled

    def swapped(self, swap: Swap, began: float) -> bool:
        """Whether it is written, which is told."""
        self._took(self._clock.monotonic() - began)
        return swap.won

    def _said_by(self) -> str:
        owner = self._store.owner
        if owner != self._owner:
            self._owner, self._actor = owner, f"proxy:{owner}"
        return self._actor
