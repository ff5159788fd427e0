"""A run as this process knows it, for one attempt: its calls, who was served from them, how far it has come.

What this process does is in here at once, also what it is only about to do; what others do is read from the
store before every choice. Nothing here decides anything: core/ does, on what is in here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import replace

from proxy.core.divergence import Row
from proxy.core.frontier import Frontier
from proxy.core.intent import Call, State
from proxy.core.run_record import Changes, End, Exchange, Run, Step
from proxy.core.runs import Occurrence


class Book:
    def __init__(self, run: Run, attempt: str, owner: str) -> None:
        self.run = run
        self.attempt = attempt
        self.pulses: dict[str, int] = {}  # by run, this one and those it was forked from: known up to there
        self.stamp: tuple[int, int] | None = None  # the books', when that was read
        self.asked_at = 0.0  # when it was opened last
        self.ahead: dict[bytes, Call] = {}  # rows read before they are asked for
        self.replayed_at: dict[bytes, tuple[float, ...]] = {}  # to notice polling
        self._owner = owner
        self._ancestors: dict[str, int] = {}  # by run, the nearest first: up to which seq it is inherited
        self._own_from = sys.maxsize  # in a fork: the seq of its own first step
        self._steps: dict[bytes, Step] = {}
        self._claims: dict[bytes, Step] = {}  # being written by this process
        self._families: dict[bytes, set[bytes]] = {}
        self._groups: dict[tuple[str, ...], set[bytes]] = {}  # of calls with effects
        self._exchanges: dict[bytes, dict[tuple[int, str], Exchange]] = {}
        self._entries: dict[bytes, tuple[Step, Occurrence]] = {}
        self._order: list[bytes] | None = None
        self._places: dict[bytes, int] = {}
        self._frontier: Frontier | None = None
        self._waiters: list[asyncio.Future[None]] = []

    # ---- what is known ----

    def __len__(self) -> int:
        return len(self._steps)

    def __bool__(self) -> bool:
        return True  # also when it is empty

    @property
    def position(self) -> int:
        return max([self.run.last_seq, *(step.seq for step in self._claims.values())])

    def step(self, key: bytes) -> Step | None:
        return self._claims.get(key) or self._steps.get(key)

    def occurrences(self, family: bytes) -> list[tuple[Step, Occurrence]]:
        """All identical calls, by number. What the run claimed itself stands before what it inherited, and
        the nearer ancestor's before the farther one's."""
        by_number: dict[int, Step] = {}
        far = {name: n for n, name in enumerate(self._ancestors, 1)}
        for key in self._families.get(family, ()):
            step = self._claims.get(key) or self._steps[key]
            known = by_number.get(step.occurrence)
            if known is None or far.get(step.run, 0) < far.get(known.run, 0):
                by_number[step.occurrence] = step
        return [self._entry(step) for _, step in sorted(by_number.items())]

    def _entry(self, step: Step) -> tuple[Step, Occurrence]:
        """Made once: an agent that polls has thousands of them."""
        entry = self._entries.get(step.key)
        if entry is None or entry[0] is not step:
            entry = self._entries[step.key] = (step, self._occurrence(step))
        return entry

    def untouched(self, family: bytes) -> Step | None:
        """The first of identical calls, if it is done and this attempt has been served from none of them: it
        is the one that is asked for, whatever the request says about retries."""
        keys = self._families.get(family)
        if not keys or not self.attempt or self._ancestors:
            return None
        first = None
        for key in keys:
            step = self._steps.get(key)
            if step is None or key in self._exchanges or key in self._claims or step.in_run.numbered:
                return None
            if first is None or step.occurrence < first.occurrence:
                first = step
        return first if first is not None and first.state is State.DONE else None

    def _occurrence(self, step: Step) -> Occurrence:
        in_run, exchanges = step.in_run, self._exchanges.get(step.key)
        return Occurrence(
            n=step.occurrence,
            seq=step.seq,
            safe=step.safe,
            state=step.state,
            fence=step.fence,
            claimed_by=step.attempt,
            uses=in_run.uses,
            tries=in_run.tries,
            answered=step.status is not None,
            receipts=in_run.receipts,
            exchanges=tuple(exchanges.values()) if exchanges else (),
            numbered=in_run.numbered,
            resolved=in_run.resolved,
            pinned=step.run != self.run.name and step.seq <= self._ancestors[step.run],
        )

    @property
    def frontier(self) -> Frontier:
        if self._frontier is None:
            self._own_from = self._first_own() if self._ancestors else 1
            effects = [step for step in self._all() if not step.safe and step.state is not None]
            asked = (self._place(step) for step in effects if self._is_asked(step))
            self._frontier = Frontier(
                last_effect=max(map(self._place, effects), default=0), asked=max(asked, default=0)
            )
        return self._frontier

    def _first_own(self) -> int:
        """What the fork adopted from an ancestor, with its place, is none of its own."""
        name = self.run.name
        adopted = {(s.in_run.family, s.occurrence, s.seq) for s in self._steps.values() if s.run != name}
        own = (s for s in self._all() if s.run == name)
        return min(
            (s.seq for s in own if (s.in_run.family, s.occurrence, s.seq) not in adopted), default=sys.maxsize
        )

    def _place(self, step: Step) -> int:
        """What an ancestor does while its fork goes on was not made after anything of the fork's own."""
        return step.seq if step.run == self.run.name else min(step.seq, self._own_from - 1)

    def rows(self, group: tuple[str, ...] | None = None) -> list[Row]:
        """As divergence sees them; of one group those with effects."""
        if group is None:
            return [self._row(step) for step in self._all()]
        steps = (self._claims.get(key) or self._steps[key] for key in self._groups.get(group, ()))
        return [self._row(step) for step in steps]

    def _all(self) -> Iterable[Step]:
        return [
            *(step for key, step in self._steps.items() if key not in self._claims),
            *self._claims.values(),
        ]

    def _row(self, step: Step) -> Row:
        inherited = step.run != self.run.name
        beyond = inherited and step.seq > self._ancestors[step.run]
        return Row(
            id=step.id,
            seq=step.seq,
            safe=step.safe,
            state=step.state,
            group=step.in_run.group,
            attempt=step.attempt,
            asked_by=frozenset({self.attempt}) if self._is_asked(step) else frozenset(),
            retired=step.in_run.retired or step.key in self.run.retired,
            inherited=inherited and not beyond,
            beyond=beyond,
            answered=step.status is not None,
        )

    def _is_asked(self, step: Step) -> bool:
        """By this attempt: it was served from it, or claimed it. A parent's may have the same name."""
        claimed_it = step.attempt == self.attempt and step.run == self.run.name
        return claimed_it or step.key in self._exchanges

    def served_with(self, tokens: frozenset[str]) -> tuple[bytes, Exchange] | None:
        """The caller of this attempt whose request had these, and what it was served from."""
        found = (
            (key, exchange)
            for key, known in self._exchanges.items()
            for exchange in known.values()
            if exchange.tokens & tokens
        )
        return max(found, key=lambda each: each[1].number, default=None)

    def lives_on_anothers(self, upstream: str) -> bool:
        """This attempt was given what another did with this upstream, not only looked up."""
        return any(
            step.upstream == upstream
            and not step.safe
            and not (step.attempt == self.attempt and step.run == self.run.name)
            for step in (self._steps.get(key) for key in self._exchanges)
            if step is not None
        )

    def following(self, key: bytes, most: int) -> list[bytes]:
        """The calls that come after this one in the run, as long as they can be given again."""
        if self._order is None:
            done = [step for step in self._steps.values() if step.state is State.DONE]
            self._order = [step.key for step in sorted(done, key=lambda step: step.seq)]
            self._places = {key: n for n, key in enumerate(self._order)}
        place = self._places.get(key)
        return [] if place is None else self._order[place + 1 : place + 1 + most]

    # ---- what becomes known ----

    def apply(self, changes: Changes) -> None:
        run = changes.run
        self.run = replace(run, last_seq=max(run.last_seq, self.run.last_seq))
        self.pulses[run.name] = max(run.pulse, self.pulses.get(run.name, 0))
        self._learn(changes)

    def inherit(self, changes: Changes, at: int, *, resend: bool) -> None:
        """What a fork refers to: all answers up to `at`, and calls with effects always."""
        name = changes.run.name
        if self._ancestors.get(name) != at:
            self._entries.clear()  # what is pinned may be others now
        self._ancestors[name] = at
        self.pulses[name] = changes.run.pulse

        def is_seen(step: Step) -> bool:
            if step.safe or step.state is None:
                return step.seq <= at and step.status is not None
            return step.seq <= at or not resend

        self._learn(changes._replace(steps=[step for step in changes.steps if is_seen(step)]))

    def _learn(self, changes: Changes) -> None:
        for step in changes.steps:
            self._put(step)
        for key, exchange in changes.exchanges:
            known = self._exchanges.setdefault(key, {})
            self._entries.pop(key, None)
            # Of its own exchanges this process knows more than the store.
            if exchange.owner != self._owner or (exchange.number, exchange.owner) not in known:
                known[exchange.number, exchange.owner] = exchange
        if changes.exchanges:
            self._frontier = None  # they may be of calls with effects
        if changes.steps or changes.exchanges:
            self._wake()

    def learn(self, step: Step) -> None:
        """A row that this process has written."""
        self._claims.pop(step.key, None)
        known = self._steps.get(step.key)
        if known is None or known.version < step.version:
            self._put(step)
        self.run = replace(self.run, last_seq=max(self.run.last_seq, step.seq))
        self._wake()

    def _put(self, step: Step) -> None:
        known = self._steps.get(step.key)
        if known is None or known.version <= step.version:
            self._steps[step.key] = step
            self._order = None
            self._file(step)
            self._reach(step)

    def _file(self, step: Step) -> None:
        self._families.setdefault(step.in_run.family, set()).add(step.key)
        if not step.safe:
            self._groups.setdefault(step.in_run.group, set()).add(step.key)

    def _reach(self, step: Step) -> None:
        """The frontier only ever grows, but for what was forgotten or taken back; then it is found anew."""
        if step.run == self.run.name and step.seq < self._own_from:
            self._frontier = None
        if step.safe or self._frontier is None:
            return
        if step.state is None:
            self._frontier = None
            return
        place = self._place(step)
        asked = place if self._is_asked(step) else 0
        self._frontier = Frontier(
            last_effect=max(self._frontier.last_effect, place), asked=max(self._frontier.asked, asked)
        )

    # ---- what this process does ----

    def claiming(self, step: Step) -> None:
        """Before the claim is durable: nobody else in here may take the same number."""
        self._claims[step.key] = step
        self._file(step)
        self._reach(step)
        self._wake()

    def not_claimed(self, key: bytes) -> None:
        """It was not: what the store has stands."""
        claim = self._claims.pop(key, None)
        if claim is not None and key not in self._steps:
            self._families[claim.in_run.family].discard(key)
            self._groups.get(claim.in_run.group, set()).discard(key)
        self._frontier = None
        self._wake()

    def next_number(self, key: bytes) -> int:
        """After all exchanges that are known."""
        known = self._exchanges.get(key)
        return 1 if not known else max(n for n, _ in known) + 1

    def start(self, key: bytes, exchange: Exchange) -> Exchange:
        self._exchanges.setdefault(key, {})[exchange.number, exchange.owner] = exchange
        self._entries.pop(key, None)
        step = self.step(key)
        if step is not None:
            self._reach(step)
        self._wake()
        return exchange

    def end(self, key: bytes, exchange: Exchange) -> None:
        self._exchanges.setdefault(key, {})[exchange.number, exchange.owner] = exchange
        self._entries.pop(key, None)
        self._wake()

    def take_back(self, key: bytes, exchange: Exchange) -> None:
        """Nobody was served after all."""
        known = self._exchanges.get(key, {})
        known.pop((exchange.number, exchange.owner), None)
        self._entries.pop(key, None)
        if not known:
            self._exchanges.pop(key, None)
        self._frontier = None
        self._wake()

    def is_idle(self) -> bool:
        return not self._claims and not any(
            x.end is End.UNDER_WAY and x.owner == self._owner
            for known in self._exchanges.values()
            for x in known.values()
        )

    # ---- waiting ----

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def changed(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter
