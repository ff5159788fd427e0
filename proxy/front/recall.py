"""Requests answered from the record lately: known again by their bytes, and answered where they arrive.

Nothing is decided here. The first time a request is read, named, judged and answered like any other; what was
decided then holds for the very same bytes as long as the policies are the same, no settled row was changed in
whatever process (the store's stamp says so; whoever fetches an answer anew changes its row before), and the
answer is not past its time. Otherwise the request takes the long way, and is learned from there again.

What is known is kept under a keyed digest, so no body and no credential stays behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b

from proxy import faults
from proxy.answers import BODILESS
from proxy.asking import Replayed
from proxy.clock import Clock
from proxy.core.decide import replays_until
from proxy.core.encoding import codings
from proxy.core.policy import PolicySet, Rule
from proxy.faults import Point
from proxy.front import status_headers as own
from proxy.front.reply import composed, tells_length
from proxy.observe import Observer, Served
from proxy.wiring import Works

# So many are known, and so many bytes belong to them; longer requests are not worth it.
KNOWN, KNOWN_BYTES, LONGEST = 4096, 16 * 1024 * 1024, 16 * 1024


class Known:
    """One request, and what it is given. `reply` says how old the answer is: it is made anew every second."""

    __slots__ = (
        "_answer",
        "_call",
        "_fresh_from",
        "_fresh_until",
        "key",
        "policies",
        "reply",
        "size",
        "stamp",
        "tell",
        "until",
    )

    def __init__(
        self,
        replayed: Replayed,
        *,
        policies: PolicySet,
        stamp: int,
        until: float,
        tell: Callable[[float], None],
    ) -> None:
        self._call, self._answer, _ = replayed
        self.key = self._call.key
        self.policies = policies
        self.stamp = stamp
        self.until = until
        self.tell = tell
        self._fresh_from = self._fresh_until = 0.0
        self.refresh(0.0)
        self.size = 2 * len(self.reply) + len(self._call.request)  # the answer is in there twice

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
        self._bytes = 0  # of all replies
        self.given = 0  # how many replies came from here

    def answer(self, data: bytes, write: Callable[[bytes], None]) -> bool:
        """Whether `data` is a request that is known, and was answered by `write`."""
        if len(data) > LONGEST:
            return False
        began, now = self._monotonic(), self._now()
        known = self._known.get(self._ticket(data))
        if (
            known is None
            or self._stamp() != known.stamp
            or now >= known.until
            or known.policies is not self._policies()
        ):
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
        call, answer, stamp = replayed.call, replayed.answer, self._stands_while(replayed.call)
        if stamp is None or not isinstance(answer.body, bytes) or len(data) > LONGEST:
            return
        if answer.status in BODILESS or codings(answer.headers):  # the form hangs on who asks
            return
        known = Known(
            replayed,
            policies=policies,
            stamp=stamp,
            until=replays_until(call, rule),
            tell=self._observer.again(told),
        )
        ticket = self._ticket(data)
        self._forget(ticket)
        self._known[ticket] = known
        self._bytes += known.size
        while len(self._known) > KNOWN or self._bytes > KNOWN_BYTES:
            self._forget(next(iter(self._known)))

    def _forget(self, ticket: bytes) -> None:
        known = self._known.pop(ticket, None)
        self._bytes -= 0 if known is None else known.size

    def _ticket(self, data: bytes) -> bytes:
        digest = self._keyed.copy()
        digest.update(data)
        return digest.digest()
