"""Requests answered from the record lately: known again by their bytes, and answered where they arrive.

Nothing is decided here. The first time a request is read, named, judged and answered like any other; what was
decided then holds for the very same bytes as long as the policies are the same, no settled row was changed in
whatever process (the store's stamp says so; whoever fetches an answer anew changes its row before), and the
answer is not past its time. So all that is known is known under one stamp and one set of policies, and is
forgotten when either is another. Then requests take the long way, and are learned from there again.

Requests are known by a keyed digest: of theirs nothing is kept, neither body nor credential.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b

from proxy import faults
from proxy.answers import BODILESS, Produced
from proxy.asking import Replayed
from proxy.clock import Clock
from proxy.core.decide import replays_until
from proxy.core.encoding import codings
from proxy.core.intent import Call, evolve
from proxy.core.policy import PolicySet, Rule
from proxy.faults import Point
from proxy.front import status_headers as own
from proxy.front.reply import composed, tells_length
from proxy.observe import Observer, Served
from proxy.wiring import Works

# So many are known, and so many bytes belong to them. A longer request has a row too large to be at hand.
KNOWN, KNOWN_BYTES, LONGEST = 4096, 16 * 1024 * 1024, 8 * 1024
# After so many that had not come before, with nothing known, every so-many-th is looked at.
IN_VAIN, SELDOM = 256, 17  # odd: callers who take turns shall not be passed over for ever
# What one takes beside its reply and the answer in it.
BESIDE = 2048


class Known:
    """One request, and what it is given. `reply` says how old the answer is: it is made anew every second."""

    __slots__ = ("_answer", "_call", "_fresh_from", "_fresh_until", "key", "reply", "size", "tell", "until")

    def __init__(self, call: Call, answer: Produced, *, until: float, tell: Callable[[float], None]) -> None:
        assert call.answer is not None  # it is what is given
        # The record's own copies of request and answer are not needed any more.
        self._call = evolve(call, request=b"", answer=replace(call.answer, head=b"", body=b""))
        self._answer = answer
        self.key = call.key
        self.until = until
        self.tell = tell
        self._fresh_from = self._fresh_until = 0.0
        self.refresh(0.0)
        self.size = 2 * len(self.reply) + BESIDE

    def refresh(self, now: float) -> None:
        if not self._fresh_from <= now < self._fresh_until:
            status, headers, body = self._answer
            assert isinstance(body, bytes)
            self.reply = composed(
                status, own.replayed(headers, self._call, now=now), body, chunked=not tells_length(headers)
            )
            self._fresh_from, self._fresh_until = now, own.replayed_alike_until(self._call, now)


class Recall:
    def __init__(
        self, works: Works, *, policies: Callable[[], PolicySet], clock: Clock, observer: Observer
    ) -> None:
        self._now, self._monotonic = clock.now, clock.monotonic
        self._policies = policies
        self._stamp, self._mark = works.store.settled_stamp, works.store.mark_replayed
        self._stands_while = works.ledger.answers.stands_while
        self._observer = observer
        self._keyed = blake2b(digest_size=16, key=os.urandom(32))
        self._known: dict[bytes, Known] = {}
        self._bytes = 0  # that belong to them
        self._under: tuple[int | None, PolicySet] = (None, policies())  # they hold while this is so
        # Those that took the long way lately, and whether they had come before: most requests never do, and
        # are not worth learning.
        self._came: dict[bytes, bool] = {}
        self._in_vain = 0  # how many were looked for since one was known
        self.given = 0  # how many replies came from here

    def answer(self, data: bytes, write: Callable[[bytes], None]) -> bool:
        """Whether `data` is a request that is known, and was answered by `write`."""
        if self._is_hopeless() or len(data) > LONGEST:
            return False
        stamp = self._stamp()
        if stamp is None:
            return False
        began, now = self._monotonic(), self._now()
        ticket = self._ticket(data)
        known = self._known.get(ticket)
        if known is None or now >= known.until or not self._holds(stamp):
            self._note(ticket)
            return False
        known.refresh(now)
        faults.reach(Point.REPLY_STARTED)
        write(known.reply)
        faults.reach(Point.REPLY_ENDED)
        self._mark(known.key, now)
        known.tell(self._monotonic() - began)
        self.given += 1
        return True

    def learn(
        self, data: bytes, replayed: Replayed, told: Served, *, policies: PolicySet, rule: Rule
    ) -> None:
        """`data` was answered so just now, by these policies and this rule, and `told` is told of it."""
        call, answer, stamp = replayed.call, replayed.answer, self._stamp()
        if stamp is None or stamp != self._stands_while(call) or policies is not self._policies():
            return  # something has changed since it was decided
        if not isinstance(answer.body, bytes) or answer.status in BODILESS or codings(answer.headers):
            return  # it is long, or its form hangs on who asks
        ticket = self._ticket(data)
        if not self._came.get(ticket):
            return
        del self._came[ticket]
        self._holds(stamp)
        known = Known(call, answer, until=replays_until(call, rule), tell=self._observer.again(told))
        self._forget(ticket)
        self._known[ticket] = known
        self._bytes += known.size
        while len(self._known) > KNOWN or self._bytes > KNOWN_BYTES:
            self._forget(next(iter(self._known)))

    def _holds(self, stamp: int) -> bool:
        """Whether what is known is known under this stamp and the present policies; else nothing is."""
        policies = self._policies()
        if self._under[0] == stamp and self._under[1] is policies:
            return True
        for ticket in self._known:  # they came again once, and may be learned at once when they do so now
            self._note(ticket, again=True)
        self._under, self._bytes = (stamp, policies), 0
        self._known.clear()
        return False

    def _is_hopeless(self) -> bool:
        """Nothing is known, and request after request was none that came before: only now and then one is
        looked at, lest every new call pay for replays that nobody asks for."""
        if self._known:
            self._in_vain = 0
            return False
        self._in_vain += 1
        return self._in_vain > IN_VAIN and self._in_vain % SELDOM != 0

    def _note(self, ticket: bytes, *, again: bool = False) -> None:
        self._came[ticket] = again or ticket in self._came
        if len(self._came) > KNOWN:
            del self._came[next(iter(self._came))]

    def _forget(self, ticket: bytes) -> None:
        known = self._known.pop(ticket, None)
        self._bytes -= 0 if known is None else known.size

    def _ticket(self, data: bytes) -> bytes:
        digest = self._keyed.copy()
        digest.update(data)
        return digest.digest()
