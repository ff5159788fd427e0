"""What a run remembers of one call, and how that memory changes.

An *occurrence* is one row: the n-th identical call of a run. An *exchange* is one caller being served from
it. How often an attempt may be served before its next identical call is a new one is counted here: one use,
plus one per join and per retry on evidence after the answer had arrived. Uses, joins and claims are written
durably before the caller is answered; the start of a replay and its completion are marked lazily. So a lost
mark leaves an occurrence looking less used than it is: that may cause a replay, never a send.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from proxy.core.intent import Call, State
from proxy.core.run_record import RECEIVED_PROBLEMS, End, Exchange, Receipt, Step

__all__ = ["RECEIVED_PROBLEMS", "End", "Exchange", "Occurrence", "Receipt"]


class Standing(Enum):
    """Of a row, for one attempt."""

    FRESH = auto()  # done, and this attempt has not been served from it
    SPENT = auto()  # done, and this attempt has taken all of its uses
    OTHER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One row of a run, as these rules see it. `state` None: forgotten by a person, only its number stays."""

    n: int
    seq: int
    safe: bool
    state: State | None
    fence: int
    claimed_by: str = ""  # the attempt that claimed it last
    uses: int = 1
    tries: int = 1  # claims in a row by that attempt: how often it had to ask
    answered: bool = False  # the row holds an answer: final if done, otherwise what was handed on
    receipts: tuple[Receipt, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    numbered: bool = False  # the client gave the number (`Semel-Occurrence`)
    resolved: bool = False  # a person said what became of it
    pinned: bool = False  # inherited by a fork from before its starting point
    _standing: Standing | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.n < 1 or self.uses < 1 or self.tries < 1:
            raise ValueError("occurrences, uses and tries count from one")

    def by(self, attempt: str) -> tuple[Exchange, ...]:
        return tuple(exchange for exchange in self.exchanges if exchange.attempt == attempt)

    def latest(self, attempt: str) -> Exchange | None:
        """Latest by start. Joins overlap: an older one may end later; what it is owed is counted anyway."""
        return max(self.by(attempt), key=lambda exchange: exchange.number, default=None)

    def deliveries(self, attempt: str) -> int:
        """Of the present answer to this attempt, complete or under way."""
        return sum(x.end is End.COMPLETE or self._hands_on(x) for x in self._present(attempt))

    def problems(self, attempt: str) -> int:
        """How often this attempt was told a problem in place of the present answer, marked or not yet."""
        ended = (x.end is End.PROBLEM or x.end is End.UNDER_WAY for x in self._present(attempt))
        return sum(ended) - sum(self._hands_on(x) for x in self._present(attempt))

    def _present(self, attempt: str) -> list[Exchange]:
        return [x for x in self.by(attempt) if x.fence == self.fence]

    def _hands_on(self, exchange: Exchange) -> bool:
        """Where nothing is awaited and there is no answer, there is nothing to hand on: what still looks
        under way, served by another process, has ended with a problem, and its mark is on its way or lost."""
        has_something = self.answered or self.state in (State.PENDING, State.DONE)
        return exchange.end is End.UNDER_WAY and has_something

    def standing(self, attempt: str) -> Standing:
        """For one attempt, and asked often: a row is looked at by one attempt's book only."""
        if self._standing is None:
            object.__setattr__(self, "_standing", self._find_standing(attempt))
        assert self._standing is not None
        return self._standing

    def _find_standing(self, attempt: str) -> Standing:
        if self.state is not State.DONE or self.numbered:
            return Standing.OTHER
        last = self.latest(attempt)
        if last is None:
            return Standing.FRESH
        taken = last.end is End.COMPLETE and last.final and last.fence == self.fence
        if any(x.end is End.UNDER_WAY for x in self.by(attempt)):
            return Standing.OTHER  # overlapping calls with effects are taken for one
        return Standing.SPENT if taken and self.deliveries(attempt) >= self.uses else Standing.OTHER


def after_claim(was: Occurrence, exchange: Exchange) -> Occurrence:
    """Claimed (again) by the attempt of `exchange`: a claim resets the uses to one.

    Exchanges of earlier answers stay, as evidence for retries; they no longer count as deliveries.
    """
    same_attempt = was.state is not None and was.fence > 0 and was.claimed_by == exchange.attempt
    claimed = replace(
        was,
        state=State.PENDING,
        fence=was.fence + 1,
        claimed_by=exchange.attempt,
        uses=1,
        tries=was.tries + 1 if same_attempt else 1,
        answered=False,
        receipts=(),
        resolved=False,
    )
    return after_delivery_started(claimed, exchange)


def after_resend(was: Occurrence) -> Occurrence:
    """In doubt, sent again under the same upstream key: the same call, so uses and receipts stand."""
    return replace(was, state=State.PENDING, fence=was.fence + 1)


def after_join(was: Occurrence, exchange: Exchange) -> Occurrence:
    """One more use, durable before the joining caller is answered: a re-run may ask one after the other."""
    return after_delivery_started(replace(was, uses=was.uses + 1), exchange)


def after_retry(was: Occurrence, exchange: Exchange) -> Occurrence:
    """A retry on evidence: one more use if the final answer was fully delivered; otherwise it is owed.

    An exchange still under way counts as delivered: it may yet become so, and then two were served.
    """
    last = was.latest(exchange.attempt)
    present = last is not None and last.fence == was.fence
    delivered = last is not None and last.end is End.COMPLETE and last.final and was.state is State.DONE
    may_be = last is not None and last.end is End.UNDER_WAY and was.state in (State.DONE, State.PENDING)
    more = 1 if present and (delivered or may_be) else 0
    return after_delivery_started(replace(was, uses=was.uses + more), exchange)


def retry_is_durable(was: Occurrence, exchange: Exchange) -> bool:
    """Whether `after_retry` counts a use, which must be written before the caller is answered."""
    return after_retry(was, exchange).uses != was.uses


def after_delivery_started(was: Occurrence, exchange: Exchange) -> Occurrence:
    """`exchange` gets the next number and the present fence."""
    number = max((x.number for x in was.exchanges), default=0) + 1
    started = exchange._replace(number=number, fence=was.fence)
    return replace(was, exchanges=(*was.exchanges, started))


def after_delivery_ended(
    was: Occurrence, number: int, end: End, *, fence: int | None = None, final: bool = True
) -> Occurrence:
    """`fence` names the answer handed on, where a waiter got a later one than it began to wait for."""
    if end is End.UNDER_WAY:
        raise ValueError("an end is complete, abandoned or a problem")

    def ended(x: Exchange) -> Exchange:
        return x._replace(end=end, final=final, fence=x.fence if fence is None else fence)

    if not any(x.number == number for x in was.exchanges):
        return was  # its start was lost with another process: nothing to end
    return replace(was, exchanges=tuple(ended(x) if x.number == number else x for x in was.exchanges))


def after_problem_given(was: Occurrence, receipt: Receipt) -> Occurrence:
    """Written no later than the run's next claim. Replaying a recorded problem is not a receipt."""
    if receipt in was.receipts:
        return was
    return replace(was, receipts=(*was.receipts, receipt))


def with_dead_owners(record: Iterable[Occurrence], dead: frozenset[str]) -> tuple[Occurrence, ...]:
    """A proxy that died while handing on has abandoned its callers."""

    def seen(x: Exchange) -> Exchange:
        gone = x.end is End.UNDER_WAY and x.owner in dead
        return x._replace(end=End.ABANDONED) if gone else x

    return tuple(replace(row, exchanges=tuple(seen(x) for x in row.exchanges)) for row in record)


def step_of(call: Call) -> Step:
    """A call of a run without what is large."""
    assert call.in_run is not None
    return Step(
        key=call.key,
        run=call.run,
        attempt=call.attempt,
        seq=call.seq,
        occurrence=call.occurrence,
        upstream=call.upstream,
        rule=call.rule,
        tool=call.tool,
        safe=call.safe,
        state=None if call.expires_at is not None else call.state,
        version=call.version,
        fence=call.fence,
        owner=call.owner,
        created_at=call.created_at,
        settled_at=call.settled_at,
        status=None if call.answer is None else call.answer.status,
        size=0 if call.answer is None else call.answer.size,
        cost_usd=call.cost_usd,
        in_run=call.in_run,
        sent_at=call.sent_at,
    )
