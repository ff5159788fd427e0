"""Budgets, pure: what a call takes, what it gives back, and until when one is used up."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import budget, decide
from proxy.core.budget import (
    BUCKETS,
    DAY,
    FOR_GOOD,
    Account,
    Charge,
    Meter,
    Posting,
    Spent,
    account_of,
    adjustment,
    in_micros,
    is_free,
    needs_history,
    remembered,
    reservation,
    used_up,
)
from proxy.core.clauses import Allowance, Budget, Cost, Rate
from proxy.core.intent import Call, Event, State, evolve
from proxy.core.policy import Rule
from proxy.core.terms import Held, Reserved, Terms
from proxy.store.memory_spending import Spending
from tests.stores import calls

NOW = calls.NOW
TENANT, RUN = Account("default", "", "mail", "send"), Account("default", "r", "mail", "send")


def rule(calls: Rate | None = None, usd: Allowance | None = None, cost: Cost | None = None) -> Rule:
    return Rule(name="send", budget=Budget(calls=calls, usd=usd), cost=cost)


def money(usd: str, period: float | None = None, *, price: str | None = "0.10") -> Rule:
    cost = Cost(usd_from="usd") if price is None else Cost(usd=Decimal(price))
    return rule(usd=Allowance(Decimal(usd), period), cost=cost)


def charged(
    rule: Rule, account: Account = TENANT, at: float = NOW, spent: list[Spent] | None = None
) -> Charge:
    charge = reservation(rule, account, at, spent or ())
    assert charge is not None
    return charge


def test_no_budget_takes_nothing() -> None:
    assert reservation(Rule(name="send"), TENANT, NOW) is None


@given(
    limit=st.integers(1, 5),
    period=st.sampled_from([0.001, 0.05, 1.0, 60.0, 3600.0, 86400.0]),
    steps=st.lists(st.one_of(st.just(0.0), st.floats(0, 1.2)), max_size=60),
    offset=st.floats(0, 1e4),
)
def test_in_no_stretch_of_the_period_is_more_taken_than_the_limit(
    limit: int, period: float, steps: list[float], offset: float
) -> None:
    """Whenever calls come: look back from every one that was let through. And what it is told is true:
    nothing goes through before `until`, and then it does."""
    spending, limited, at = Spending(), rule(Rate(limit, period)), NOW + offset
    taken: list[float] = []
    for step in steps:
        at += step * period / limit
        charge = charged(limited, at=at)
        exceeded = spending.exceeded(charge)
        if exceeded is None:
            spending.apply(charge)
            taken.append(at)
            assert sum(at - period < then <= at for then in taken) <= limit
            continue
        told = used_up(charge, exceeded)
        assert told is not None
        assert told.until is not None
        width = -(-round(period * 1000) // BUCKETS) / 1000
        assert at < told.until <= at + period + width + 0.001
        assert spending.exceeded(charged(limited, at=told.until - 0.001)) is not None
        assert spending.exceeded(charged(limited, at=told.until)) is None
    assert all(len(rows) <= BUCKETS * 3 for rows in spending.accounts.values())


def test_an_account_has_at_most_sixty_one_rows_that_count() -> None:
    """However many calls: time is kept in buckets."""
    spending, limited = Spending(), rule(Rate(10**6, 3600.0))
    for n in range(4000):
        spending.apply(charged(limited, at=NOW + n))
    charge = charged(limited, at=NOW + 4000)
    (posting,) = charge.postings
    assert sum(row.bucket > posting.since for row in spending.of(TENANT)) <= BUCKETS + 1
    spending.collect(NOW + 4000, ())
    assert len(spending.of(TENANT)) <= BUCKETS + 1
    assert spending.of(TENANT)[-1].amount <= 60


@given(
    before=st.sampled_from([60.0, 3600.0, 86400.0]),
    present=st.sampled_from([60.0, 3600.0, 86400.0]),
    ago=st.floats(0, 86400.0),
)
def test_a_budget_of_another_length_counts_what_was_taken_before(
    before: float, present: float, ago: float
) -> None:
    """A reload: what was taken within the new length counts, whatever the buckets were then."""
    spending = Spending()
    spending.apply(charged(rule(Rate(1, before)), at=NOW - ago))
    exceeded = spending.exceeded(charged(rule(Rate(1, present)), at=NOW))
    if ago <= present:
        assert exceeded is not None
    elif ago > present + before / BUCKETS + 0.002:
        assert exceeded is None


def test_money_is_exact() -> None:
    """Ten dimes are a dollar, and a millionth is rounded up, never down."""
    spending, limited = Spending(), money("1.00")
    for _ in range(10):
        assert spending.exceeded(charged(limited)) is None
        spending.apply(charged(limited))
    assert spending.exceeded(charged(limited)) is not None
    assert in_micros(Decimal("0.0000001")) == 1
    assert in_micros(Decimal("0.1")) == 100_000


@pytest.mark.parametrize(
    ("limited", "account", "period"),
    [
        (money("5"), TENANT, DAY),
        (money("5"), RUN, None),
        (money("5", 60.0), TENANT, 60.0),
        (money("5", 60.0), RUN, 60.0),
    ],
)
def test_how_long_money_is_counted(limited: Rule, account: Account, period: float | None) -> None:
    """A run's for its life, outside runs a day, or as long as the budget says."""
    (posting,) = charged(limited, account).postings
    assert posting.period == period
    assert (posting.bucket == FOR_GOOD) is (period is None)


def test_what_never_comes_back_says_so() -> None:
    """A run's money, and a call that is dearer than the whole budget."""
    spending, limited = Spending(), money("0.15")
    spending.apply(charged(limited, RUN))
    told = used_up(charged(limited, RUN), spending.of(RUN))
    assert told is not None
    assert (told.meter, told.most, told.used, told.adds, told.until) == (
        Meter.USD,
        150_000,
        100_000,
        100_000,
        None,
    )
    alone = used_up(charged(money("0.05")), [])
    assert alone is not None
    assert (alone.used, alone.until) == (0, None)


@pytest.mark.parametrize(
    ("calls_for", "money_for", "longest"), [(60.0, 3600.0, Meter.USD), (3600.0, 60.0, Meter.CALLS)]
)
def test_of_two_limits_the_one_that_stands_longest_is_told(
    calls_for: float, money_for: float, longest: Meter
) -> None:
    """Whoever waits so long is not refused by the other one then."""
    both = rule(Rate(1, calls_for), Allowance(Decimal("0.10"), money_for), Cost(usd=Decimal("0.10")))
    spending = Spending()
    spending.apply(charged(both))
    told = used_up(charged(both), spending.of(TENANT))
    assert told is not None
    assert told.meter is longest
    assert told.until is not None
    assert spending.exceeded(charged(both, at=told.until)) is None


def test_money_that_once_came_back_does_not_where_the_budget_no_longer_says_so() -> None:
    """A reload in the middle of a run: what was taken for a minute counts for its life by now."""
    spending = Spending()
    spending.apply(charged(money("0.10", 60.0), RUN))
    told = used_up(charged(money("0.10"), RUN), spending.of(RUN))
    assert told is not None
    assert (told.used, told.period, told.until) == (100_000, None, None)


def test_until_waits_for_as_many_buckets_as_it_takes() -> None:
    """After a reload that lowers the limit, or with a dear call, the oldest bucket alone is not enough."""
    spending, wide = Spending(), rule(Rate(100, 3600.0))
    for n in range(5):
        spending.apply(charged(wide, at=NOW + 600 * n))
    narrow = rule(Rate(2, 3600.0))
    told = used_up(charged(narrow, at=NOW + 2400), spending.of(TENANT))
    assert told is not None
    assert told.until is not None
    assert told.until >= NOW + 1800 + 3600
    assert spending.exceeded(charged(narrow, at=told.until)) is None


def test_a_price_that_only_the_answer_tells_is_that_of_the_dearest_that_counts() -> None:
    """At least a millionth, so that a budget that is reached is used up."""
    unknown = money("5.00", 3600.0, price=None)
    assert charged(unknown).postings[0].amount == 1
    bucket = charged(unknown).postings[0].bucket
    spent = [Spent("usd", bucket, 9, 700_000), Spent("usd", bucket - 60_000, 9, 900_000)]
    spent += [Spent("usd", bucket - 4_000_000, 9, 2_000_000), Spent("calls", bucket, 1, 3_000_000)]
    assert charged(unknown, spent=spent).postings[0].amount == 900_000
    full = [Spent("usd", bucket, 5_000_000, 0)]
    assert used_up(charged(unknown, spent=full), full) is not None


def test_the_account_is_of_the_rule_whose_budget_it_is() -> None:
    """In a run that may be another than the one that names the call."""
    as_then = replace(money("5"), charged_to="now")
    assert account_of(as_then, tenant="t", run="r", upstream="u") == Account("t", "r", "u", "now")
    assert account_of(money("5"), tenant="t", run="", upstream="u").rule == "send"


# ---- what becomes of it ----


def claimed(limited: Rule, account: Account = TENANT) -> Call:
    call, _ = calls.claim("owner")
    charge = charged(limited, account)
    return replace(call, terms=Terms(reserved=remembered(charge, limited)))


BOTH = rule(Rate(9, 60.0), Allowance(Decimal(5)), Cost(usd=Decimal("0.10")))
LATER = rule(Rate(9, 60.0), Allowance(Decimal(5)), Cost(usd_from="usd"))
MEANING = {
    # event: calls and money given back
    Event.ANSWERED: (0, 0),
    Event.NOT_SENT: (-1, -100_000),
    Event.NOT_EXECUTED: (0, -100_000),
    Event.INCONCLUSIVE: (0, 0),
    Event.LOST: (0, 0),
}


def settled(call: Call, event: Event, cost: float | None = None) -> Call:
    answer = calls.settle(call)[0].answer if event is Event.ANSWERED else None
    settlement = decide.Settlement(event=event, why="so", answer=answer, cost_usd=cost)
    return decide.settle(call, settlement, actor="proxy", now=NOW + 1)[0]


def given_back(before: Call, after: Call) -> tuple[int, int]:
    charge = adjustment(before, after)
    assert charge is None or charge.account == TENANT
    assert charge is None or not charge.reserves
    found = {posting.meter: posting.amount for posting in (charge.postings if charge else ())}
    return found.get(Meter.CALLS, 0), found.get(Meter.USD, 0)


@pytest.mark.parametrize("event", MEANING, ids=str)
def test_what_each_outcome_gives_back(event: Event) -> None:
    """Nothing was sent: all of it. Nothing was executed: the money. Whatever may have been: nothing."""
    call = claimed(BOTH)
    assert given_back(call, settled(call, event)) == MEANING[event]


def test_doubt_keeps_all_until_somebody_knows() -> None:
    """A probe or a person says that nothing happened: the money comes back. An earlier send that is
    unresolved keeps it, whatever the later one says."""
    call = claimed(BOTH)
    doubtful = settled(call, Event.LOST)
    assert given_back(doubtful, settled(doubtful, Event.NOT_EXECUTED)) == (0, -100_000)
    again = decide.resend(call, doubtful, actor="proxy", now=NOW + 2)[0]
    assert given_back(doubtful, again) == (0, 0)
    for event in (Event.NOT_SENT, Event.NOT_EXECUTED):
        still = settled(again, event)
        assert still.state is State.IN_DOUBT
        assert given_back(again, still) == (0, 0)


def test_the_real_price_takes_the_place_of_what_was_reserved() -> None:
    """Known late too: after it was given back, it is taken again. Unknown, what was reserved stays."""
    call = claimed(LATER)
    dear = settled(call, Event.ANSWERED, 0.25)
    charge = adjustment(call, dear)
    assert charge is not None
    assert [(p.meter, p.amount, p.peak) for p in charge.postings] == [(Meter.USD, 249_999, 250_000)]
    assert given_back(call, settled(call, Event.ANSWERED, None)) == (0, 0)
    released = settled(call, Event.NOT_EXECUTED)
    assert given_back(released, settled(released, Event.ANSWERED, 0.25)) == (0, 250_000)


def test_the_dearest_is_remembered_also_where_it_cost_what_was_reserved() -> None:
    """Or it would be forgotten with the bucket in which it was first seen."""
    call = claimed(LATER)
    charge = adjustment(call, settled(call, Event.ANSWERED, 0.000001))
    assert charge is not None
    assert [(p.amount, p.peak) for p in charge.postings] == [(0, 1)]
    fixed = claimed(BOTH)
    assert adjustment(fixed, settled(fixed, Event.ANSWERED, 0.1)) is None, "a fixed price needs no memory"


def test_an_answer_that_took_nothing_gives_its_money_back() -> None:
    """Of a safe call too, which is never "not executed": refused by the upstream, or no success where the
    price stands in answers. What broke off may have cost something."""
    for limited, event in ((BOTH, Event.INCONCLUSIVE), (LATER, Event.INCONCLUSIVE), (LATER, Event.ANSWERED)):
        call = claimed(limited)
        held = -call.terms.reserved.held[1].amount if call.terms and call.terms.reserved else 0
        answer = calls.settle(call)[0].answer if event is Event.ANSWERED else None
        settlement = decide.Settlement(event=event, why="so", answer=answer, free=True)
        free, _ = decide.settle(call, settlement, actor="proxy", now=NOW + 1)
        assert given_back(call, free) == (0, held)
    assert is_free(BOTH, 429, executed=False)
    assert not is_free(BOTH, 404, executed=True)
    assert is_free(LATER, 404, executed=True)
    assert not is_free(LATER, 200, executed=True)


def test_a_reservation_needs_to_know_the_past_only_where_answers_tell_the_price() -> None:
    """And there is money to limit at all."""
    assert needs_history(money("1", price=None))
    assert not needs_history(money("1"))
    assert not needs_history(rule(calls=Rate(1, 60.0), cost=Cost(usd_from="usd")))
    assert not needs_history(Rule(name="send", cost=Cost(usd_from="usd")))
    assert not needs_history(rule(usd=Allowance(Decimal(1))))


def test_a_budget_of_money_without_a_price_takes_something_all_the_same() -> None:
    """So that one that is reached is used up; also over the shortest of times."""
    (posting,) = charged(rule(usd=Allowance(Decimal(1), 60.0))).postings
    assert posting.amount == 1
    (short,) = charged(rule(calls=Rate(1, 0.0001))).postings
    assert short.expires - short.bucket == 1


@pytest.mark.parametrize("status", [199, 200, 299, 300])
def test_what_is_no_success_is_free_where_answers_tell_the_price(status: int) -> None:
    """From 200 to 299 it is one; where the price is fixed, or nothing was executed, that does not matter."""
    priced_later = money("1", price=None)
    assert is_free(priced_later, status, executed=True) is (status not in (200, 299))
    assert not is_free(money("1"), status, executed=True)
    assert is_free(money("1"), status, executed=False)


@pytest.mark.parametrize(
    ("event", "free", "left"),
    [
        (Event.ANSWERED, True, 0),
        (Event.INCONCLUSIVE, True, 0),
        (Event.INCONCLUSIVE, False, 7),
        (Event.LOST, True, 7),
        (Event.NEEDS_APPROVAL, True, 7),
        (Event.NOT_EXECUTED, False, 0),
        (Event.NOT_SENT, False, 0),
    ],
)
def test_what_was_free_is_given_back_where_somebody_answered(event: Event, free: bool, left: int) -> None:
    """In doubt nothing is: it may have been used."""
    terms = Terms(reserved=Reserved("", "send", (Held(Meter.USD, 1, 7),)))
    after = budget.after(terms, event, None, free=free)
    assert after == Terms(reserved=Reserved("", "send", (Held(Meter.USD, 1, left),)))
    assert free or budget.after(terms, event, None) == after, "nothing is free unless it is said"
    assert budget.after(Terms(), event, None) == Terms()
    assert budget.after(None, event, None) is None


def test_an_account_is_set_right_only_where_both_rows_hold_something() -> None:
    """A row that holds nothing, before or after, has nothing to give back."""
    call, _ = calls.claim("p1", bytes(16))
    holding = evolve(call, terms=Terms(reserved=Reserved("", "send", (Held(Meter.CALLS, 5, 1),))))
    given_back = evolve(call, terms=Terms(reserved=Reserved("", "send", (Held(Meter.CALLS, 5, 0),))))
    assert adjustment(call, holding) is None
    assert adjustment(holding, call) is None
    assert adjustment(evolve(call, terms=Terms()), holding) is None
    assert adjustment(holding, evolve(call, terms=Terms())) is None
    assert adjustment(holding, holding) is None
    set_right = adjustment(holding, given_back)
    assert set_right == Charge(TENANT, (Posting(Meter.CALLS, 5, -1),))
    assert not set_right.reserves


def test_how_much_is_used_is_told_of_every_limit() -> None:
    """Whether or not it is reached; of a charge without limits there is nothing to tell."""
    both = rule(calls=Rate(3, 60.0), usd=Allowance(Decimal(1), 60.0), cost=Cost(usd=Decimal("0.5")))
    charge = charged(both)
    at = charge.postings[0].bucket
    spent = (Spent(meter, at, amount, 0) for meter, amount in (("calls", 2), ("usd", 700_000)))
    told = budget.standing(charge, spent)
    assert [(each.meter, each.most, each.used, each.adds) for each in told] == [
        (Meter.CALLS, 3, 2, 1),
        (Meter.USD, 1_000_000, 700_000, 500_000),
    ]
    assert budget.standing(Charge(TENANT, (Posting(Meter.CALLS, 5, -1),)), ()) == []
