"""Budgets: what a call takes out of one before it is sent, what it gives back, and until when one is used up.

An account is a rule's, per run, or per tenant outside runs. A claim takes its charge in the same step that
writes the row, or is refused and writes nothing; so however many come at once, no more is ever taken than the
limit. What is given again from the record takes nothing.

Time is kept in buckets, sixty to a period, each named by its end: what was taken counts until its bucket is
wholly past. So in no stretch of time of the length of the period is more taken than the limit, and an account
is a few rows. The price is a sixtieth of the period: so much later than it might, something is free again.

Amounts are whole numbers: calls, and millionths of a dollar, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from proxy.core.clauses import Cost
from proxy.core.intent import Call, Event
from proxy.core.policy import Rule
from proxy.core.terms import Held, Reserved, Terms

BUCKETS = 60
# The bucket of what never comes back: later than every other. Exact also where numbers are floats.
FOR_GOOD = 2**53 - 1
# Outside runs money comes back after a day, unless the budget names another time.
DAY = 86400.0
MICRO = 1_000_000


class Meter(StrEnum):
    CALLS = "calls"
    USD = "usd"


class Account(NamedTuple):
    tenant: str
    run: str  # "": outside runs
    upstream: str
    rule: str


class Posting(NamedTuple):
    """One line of a charge. Times are milliseconds; `bucket` is the end of one."""

    meter: Meter
    bucket: int
    amount: int  # less than nothing where something is given back; an account never holds less than nothing
    peak: int = 0  # what a single call is known to have taken
    since: int = 0  # what ended by then no longer counts
    most: int | None = None  # None: no reservation, what was reserved is set right
    expires: int = FOR_GOOD

    @property
    def period(self) -> float | None:
        """In seconds. None: it does not come back."""
        return None if self.bucket == FOR_GOOD else (self.expires - self.bucket) / 1000


@dataclass(frozen=True, slots=True)
class Charge:
    """Either all of it is a reservation, with limits, or none of it."""

    account: Account
    postings: tuple[Posting, ...]

    @property
    def reserves(self) -> bool:
        return any(posting.most is not None for posting in self.postings)


class Spent(NamedTuple):
    """What an account holds in one bucket."""

    meter: str
    bucket: int
    amount: int
    peak: int


# ---- before the send ----


def account_of(rule: Rule, *, tenant: str, run: str, upstream: str) -> Account:
    return Account(tenant, run, upstream, rule.charged_to or rule.name)


def needs_history(rule: Rule) -> bool:
    """Whether a reservation depends on what the account holds."""
    return rule.budget is not None and rule.budget.usd is not None and _is_priced_later(rule.cost)


def reservation(rule: Rule, account: Account, now: float, spent: Iterable[Spent] = ()) -> Charge | None:
    """What a claim takes. None: the rule has no budget. `spent`: where `needs_history`."""
    budget = rule.budget
    if budget is None:
        return None
    postings = []
    if budget.calls is not None:
        postings.append(_posting(Meter.CALLS, 1, budget.calls.calls, budget.calls.period, now))
    if budget.usd is not None:
        period = budget.usd.period or (None if account.run else DAY)
        empty = _posting(Meter.USD, 0, in_micros(budget.usd.usd), period, now)
        postings.append(empty._replace(amount=_price(rule.cost, empty, spent)))
    return Charge(account, tuple(postings))


def _posting(meter: Meter, amount: int, most: int, period: float | None, now: float) -> Posting:
    if period is None:
        return Posting(meter, FOR_GOOD, amount, most=most)
    at, length = round(now * 1000), max(1, round(period * 1000))
    width = -(-length // BUCKETS)
    bucket = (at // width + 1) * width
    return Posting(meter, bucket, amount, since=at - length, most=most, expires=bucket + length)


def _price(cost: Cost | None, posting: Posting, spent: Iterable[Spent]) -> int:
    """Where only the answer tells the price: that of the dearest call which still counts, at least something,
    so that a budget that is reached is used up."""
    if cost is not None and cost.usd is not None:
        return in_micros(cost.usd)
    return max((row.peak for row in _counted(posting, spent)), default=0) or 1


def _is_priced_later(cost: Cost | None) -> bool:
    return cost is not None and cost.usd is None


def in_micros(usd: Decimal) -> int:
    return int((usd * MICRO).to_integral_value(rounding=ROUND_CEILING))


def remembered(charge: Charge | None, rule: Rule) -> Reserved | None:
    """As the row keeps it."""
    if charge is None:
        return None
    held = tuple(Held(p.meter.value, p.bucket, p.amount) for p in charge.postings)
    return Reserved(charge.account.run, charge.account.rule, held, _is_priced_later(rule.cost))


# ---- what becomes of it ----


class Fate(StrEnum):
    """Of what a call holds of a meter. What the table does not name is kept: it may have been used."""

    RETURNED = "returned"
    PRICED = "priced"  # what the answer cost takes its place, where that is known


FATES: Mapping[tuple[Event, str], Fate] = MappingProxyType(
    {
        (Event.NOT_SENT, Meter.CALLS): Fate.RETURNED,
        (Event.NOT_SENT, Meter.USD): Fate.RETURNED,
        (Event.NOT_EXECUTED, Meter.USD): Fate.RETURNED,  # it was asked, and cost nothing
        (Event.ANSWERED, Meter.USD): Fate.PRICED,
    }
)


def is_free(rule: Rule, status: int, *, executed: bool) -> bool:
    """Whether an upstream that answered so took nothing for it: it did not begin, or the price stands in
    answers and this one is no success. `executed`: as for a call with effects."""
    return not executed or (_is_priced_later(rule.cost) and not 200 <= status < 300)


def after(terms: Terms | None, event: Event, cost_usd: float | None, *, free: bool = False) -> Terms | None:
    """What a call holds when that has happened to it. `free`: the upstream took nothing for it."""
    if terms is None or terms.reserved is None:
        return terms
    if free and event in (Event.ANSWERED, Event.INCONCLUSIVE):
        event = Event.NOT_EXECUTED  # as far as money goes
    held = tuple(_after(each, event, cost_usd) for each in terms.reserved.held)
    return replace(terms, reserved=terms.reserved._replace(held=held))


def _after(held: Held, event: Event, cost_usd: float | None) -> Held:
    match FATES.get((event, held.meter)):
        case Fate.RETURNED:
            return held._replace(amount=0)
        case Fate.PRICED if cost_usd is not None:
            return held._replace(amount=in_micros(Decimal(repr(cost_usd))))
        case _:
            return held


def adjustment(before: Call, settled: Call) -> Charge | None:
    """What sets the account right when the one becomes the other. It has no limits: it always applies."""
    was = None if before.terms is None else before.terms.reserved
    now = None if settled.terms is None else settled.terms.reserved
    if was is None or now is None:
        return None
    real = settled.cost_usd is not None and before.cost_usd is None and now.priced_later
    postings = tuple(
        Posting(Meter(new.meter), new.bucket, new.amount - old.amount, peak=new.amount if prices else 0)
        for old, new in zip(was.held, now.held, strict=True)
        if (prices := real and new.meter == Meter.USD) or new.amount != old.amount
    )
    return (
        Charge(Account(settled.tenant, was.run, settled.upstream, was.rule), postings) if postings else None
    )


# ---- used up ----


class UsedUp(NamedTuple):
    """`adds`: what the call would have taken. `until`: when it would go through, by the clock; None: never,
    as things stand."""

    meter: Meter
    most: int
    used: int
    adds: int
    period: float | None
    until: float | None


def _counted(posting: Posting, spent: Iterable[Spent]) -> list[Spent]:
    """Of this meter, what has not passed; the oldest first."""
    return sorted(row for row in spent if row.meter == posting.meter and row.bucket > posting.since)


def is_exceeded(posting: Posting, spent: Iterable[Spent]) -> bool:
    used = sum(row.amount for row in _counted(posting, spent))
    return posting.most is not None and used + posting.amount > posting.most


def used_up(charge: Charge, spent: Iterable[Spent]) -> UsedUp | None:
    """Of what stands in the way of a charge, what stands there longest. None: nothing does."""
    found = [_used_up(p, _counted(p, spent)) for p in charge.postings if is_exceeded(p, spent)]
    return max(found, key=lambda each: float("inf") if each.until is None else each.until, default=None)


def _used_up(posting: Posting, counted: list[Spent]) -> UsedUp:
    assert posting.most is not None
    used = left = sum(row.amount for row in counted)
    until = None
    for row in counted:
        left -= row.amount
        if left + posting.amount <= posting.most:
            until = None if row.bucket == FOR_GOOD else row.bucket + posting.expires - posting.bucket
            break
    period = posting.period
    at = None if until is None or period is None else until / 1000
    return UsedUp(posting.meter, posting.most, used, posting.amount, period, at)


def standing(charge: Charge, spent: Iterable[Spent]) -> list[UsedUp]:
    """How much of each budget is used, for people."""
    spent = list(spent)
    return [_used_up(p, _counted(p, spent)) for p in charge.postings if p.most is not None]
