"""Budgets on the way of a call: taken with the claim, given back with what becomes of it, and never twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import pytest

from proxy import operator
from proxy.core.budget import Account
from proxy.core.clauses import Allowance, Approval, Budget, Cost, OnDoubt, Rate, UpstreamKey
from proxy.core.intent import Call, Entry, State, evolve
from proxy.core.policy import Repeat, Rule
from proxy.errors import AwaitingApproval, BudgetExceeded, InDoubt, StoreUnavailable, UpstreamUnreachable
from proxy.recovery import sweep_once
from tests.exchange.stage import (
    CACHE,
    EFFECT,
    SAFE,
    Got,
    Prepared,
    Process,
    Talk,
    answers,
    ask,
    lost,
    not_sent,
)
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")

HOUR = 3600.0


def limited(calls: int = 2, usd: str = "", rule: Rule = EFFECT, *, price: str = "0.10") -> Rule:
    cost = Cost(usd=Decimal(price)) if price else Cost(usd_from="usd")
    money = Allowance(Decimal(usd)) if usd else None
    return replace(rule, budget=Budget(calls=Rate(calls, HOUR), usd=money), cost=cost if usd else None)


async def held(semel: Process, rule: str = "send") -> dict[str, int]:
    """What the tenant's account holds, by meter."""
    sums: dict[str, int] = {}
    for spent in await semel.store.spent(Account("default", "", "mail", rule)):
        sums[spent.meter] = sums.get(spent.meter, 0) + spent.amount
    return sums


@in_virtual_time
async def test_over_the_budget_nothing_is_sent_or_recorded_and_answers_stay_free() -> None:
    """Two go out, the third is refused; the first two are replayed as often as one likes."""
    semel, rule = Process(None, answers(), answers()), limited(2)
    for n in (1, 2):
        assert (await semel.call(ask(rule, n=n))).kind == "executed"
    for _ in range(3):
        with pytest.raises(BudgetExceeded):
            await semel.call(ask(rule, n=3))
        assert (await semel.call(ask(rule, n=1))).kind == "replayed"
    assert semel.upstream.started == 2
    assert semel.state(ask(rule, n=3)) is None
    assert await held(semel) == {"calls": 2}


@in_virtual_time
async def test_what_is_told_is_enough_to_go_on() -> None:
    """Which budget, the limit, what is used and what would be added, until when: and that is true."""
    semel, rule = Process(None, *(answers() for _ in range(3))), limited(2)
    await semel.call(ask(rule, n=1))
    await asyncio.sleep(60)
    await semel.call(ask(rule, n=2))
    with pytest.raises(BudgetExceeded) as told:
        await semel.call(ask(rule, n=3))
    refusal = told.value
    assert refusal.retry_after is not None
    assert "2 of 2 calls in 1h are used, and this call would add 1 call" in refusal.detail
    assert "the tenant 'default' for the rule 'send' of upstream 'mail'" in refusal.detail
    members = dict(refusal.members)
    until = datetime.fromisoformat(str(members.pop("until"))).timestamp()
    assert members == {"upstream": "mail", "rule": "send", "budget": "calls", "limit": 2, "used": 2}
    now = semel.clock.now()
    assert 0 <= refusal.retry_after - (until - now) < 1
    assert HOUR - 60 <= until - now <= HOUR
    await asyncio.sleep(until - now - 1)
    with pytest.raises(BudgetExceeded):
        await semel.call(ask(rule, n=3))
    await asyncio.sleep(1)
    assert (await semel.call(ask(rule, n=3))).kind == "executed"


@in_virtual_time
async def test_many_at_once_never_pass_it_and_identical_ones_are_one() -> None:
    """Forty distinct calls and forty copies of the first, over two processes: exactly the limit goes out."""
    world, rule = World(), limited(5)
    first, second = (Process(world, *(answers(after=1) for _ in range(9))) for _ in range(2))

    async def outcome(semel: Process, n: int) -> str:
        try:
            return (await semel.call(ask(rule, n=n))).kind
        except BudgetExceeded:
            return "refused"

    asked = [(semel, n) for n in range(1, 41) for semel in (first, second)]
    kinds = await asyncio.gather(*(outcome(*each) for each in asked))
    assert kinds.count("executed") == first.upstream.went_out + second.upstream.went_out == 5
    assert await held(first) == {"calls": 5}
    assert len(world.calls) == 5
    assert kinds.count("refused") == 80 - 10, "each of the five was asked for twice"


@in_virtual_time
async def test_who_joins_a_call_that_is_refused_is_refused_alike() -> None:
    """And who joins one that goes out pays nothing."""
    semel, rule = Process(None, talk := Talk()), limited(1)
    flying = semel.start(ask(rule, n=1))
    await talk.sent.wait()
    joined = [semel.start(ask(rule, n=1)) for _ in range(5)]
    refused = [semel.start(ask(rule, n=2)) for _ in range(5)]
    talk.answer()
    assert {(await one).kind for one in joined} == {"joined"}
    assert (await flying).kind == "executed"
    for one in refused:
        with pytest.raises(BudgetExceeded):
            await one
    assert await held(semel) == {"calls": 1}


@in_virtual_time
async def test_what_was_not_sent_is_given_back() -> None:
    """Calls and money: the next one goes out in its place."""
    semel, rule = Process(None, not_sent(), not_sent(), answers()), limited(1, "0.10")
    with pytest.raises(UpstreamUnreachable):
        await semel.call(ask(rule))
    assert await held(semel) == {"calls": 0, "usd": 0}
    assert (await semel.call(ask(rule))).kind == "executed"
    assert await held(semel) == {"calls": 1, "usd": 100_000}
    with pytest.raises(BudgetExceeded):
        await semel.call(ask(rule, n=2))


@in_virtual_time
async def test_what_was_not_executed_gives_its_money_back_and_counts_as_a_call() -> None:
    """A 429: asked again, it is a call more."""
    semel, rule = Process(None, answers(429), answers()), limited(2, "0.10")
    assert (await semel.call(ask(rule))).status == 429
    assert await held(semel) == {"calls": 1, "usd": 0}
    assert (await semel.call(ask(rule))).kind == "executed"
    assert await held(semel) == {"calls": 2, "usd": 100_000}


@in_virtual_time
async def test_a_safe_call_that_fails_costs_only_what_it_may_have_cost() -> None:
    """Refused by the upstream, or no success where answers tell the price: nothing. Broken off: all."""
    fixed, later = limited(99, "9", SAFE), limited(99, "9", replace(SAFE, name="later"), price="")
    semel = Process(
        None, answers(429), answers(503), answers(body=b'{"usd": 2}'), answers(503), lost(), lost()
    )
    assert (await semel.call(ask(fixed, n=1))).status == 429
    assert await held(semel, "look") == {"calls": 1, "usd": 0}
    assert (await semel.call(ask(fixed, n=2))).status == 503
    assert await held(semel, "look") == {"calls": 2, "usd": 100_000}
    await semel.call(ask(later, n=3))
    assert (await semel.call(ask(later, n=4))).status == 503
    assert await held(semel, "later") == {"calls": 2, "usd": 2_000_000}
    with pytest.raises(UpstreamUnreachable):
        await semel.call(ask(later, n=5))
    assert await held(semel, "later") == {"calls": 3, "usd": 4_000_000}


@in_virtual_time
@pytest.mark.parametrize("verdict", operator.Verdict)
async def test_doubt_keeps_it_until_a_person_knows(verdict: operator.Verdict) -> None:
    """Not executed: the money comes back. Executed: it stays taken."""
    semel, rule = Process(None, lost()), limited(9, "0.10")
    with pytest.raises(InDoubt):
        await semel.call(ask(rule))
    assert await held(semel) == {"calls": 1, "usd": 100_000}
    with pytest.raises(BudgetExceeded):
        await semel.call(ask(rule, n=2))
    await operator.resolve(
        semel.store, semel.ledger.answers, semel.clock, ask(rule).identity.id, verdict=verdict,
        reason="seen", actor="ada", version=None,
    )  # fmt: skip
    kept = verdict is operator.Verdict.EXECUTED
    assert await held(semel) == {"calls": 1, "usd": 100_000 if kept else 0}


@in_virtual_time
async def test_a_process_that_dies_after_its_claim_leaves_it_taken() -> None:
    """Also when recovery has settled the call: nobody knows whether it was sent. A safe one too."""
    for rule, state in ((limited(1), State.IN_DOUBT), (limited(1, rule=SAFE), State.RELEASED)):
        world = World()
        dying, other = Process(world, talk := Talk()), Process(world)
        dying.start(ask(rule))
        await talk.sent.wait()
        await dying.die()
        assert await held(other, rule.name) == {"calls": 1}
        await sweep_once(other.store, other.ledger, other.notebook)
        assert other.row(ask(rule)).state is state
        assert await held(other, rule.name) == {"calls": 1}
        with pytest.raises(BudgetExceeded):
            await other.call(ask(rule, n=2))


@in_virtual_time
async def test_a_claim_whose_reply_was_lost_is_withdrawn_with_its_charge() -> None:
    """It had landed: the row is taken back, and so is what it took; once."""
    semel, rule = Process(None, answers()), limited(2, "0.20")
    semel.store.fail_after_swaps = 1
    with pytest.raises(StoreUnavailable):
        await semel.call(ask(rule))
    await asyncio.sleep(5)
    assert semel.state(ask(rule)) is State.RELEASED
    assert await held(semel) == {"calls": 0, "usd": 0}
    assert (await semel.call(ask(rule))).kind == "executed"
    assert await held(semel) == {"calls": 1, "usd": 100_000}


@in_virtual_time
async def test_a_claim_is_withdrawn_though_its_row_is_encrypted_anew_meanwhile() -> None:
    """Who keeps the state and writes the row all the same has not settled it: it would stay pending."""
    semel, rule = Process(None, answers()), limited(2, "0.20")
    store, resealed = semel.store, 0

    async def reseal(call: Call) -> None:
        nonlocal resealed
        if call.state is State.RELEASED and not resealed:
            resealed += 1
            row = await store._beneath.get(call.key)
            assert row is not None
            entry = Entry(0.0, "operator:keys", "resealed", row.state, row.state, "", row.fence)
            await store._beneath.swap(evolve(row, version=row.version + 1), entry, expected=row.version)

    store.before_swap = reseal
    store.fail_after_swaps = 1
    with pytest.raises(StoreUnavailable):
        await semel.call(ask(rule))
    await asyncio.sleep(5)
    assert (resealed, semel.state(ask(rule))) == (1, State.RELEASED)
    assert await held(semel) == {"calls": 0, "usd": 0}


@in_virtual_time
async def test_a_settlement_whose_reply_was_lost_gives_back_once() -> None:
    """Written again until it is known to stand: a second call's money is not given back with it."""
    semel, rule = Process(None, answers(), answers(429)), limited(9, "1.00")
    await semel.call(ask(rule, n=1))

    async def lose_the_settlement(call: object) -> None:
        semel.store.fail_after_swaps = getattr(call, "state", None) is State.RELEASED

    semel.store.before_swap = lose_the_settlement
    assert (await semel.call(ask(rule, n=2))).status == 429
    assert await held(semel) == {"calls": 2, "usd": 100_000}


class Seen:
    """What is held before each swap."""

    def __init__(self, semel: Process) -> None:
        self._semel = semel
        self.held: list[dict[str, int]] = []

    async def __call__(self, call: object) -> None:
        self.held.append(await held(self._semel))


@in_virtual_time
async def test_a_resend_under_the_same_key_is_the_same_call() -> None:
    """It was paid for. What the last send says is no proof about the first: all stays taken."""
    key = UpstreamKey(header="idempotency-key")
    rule = replace(limited(1, "0.10"), upstream_key=key, in_doubt=OnDoubt.RESEND)
    semel = Process(None, *(lost() for _ in range(4)), answers(429), answers(200))
    with pytest.raises(InDoubt):
        await semel.call(ask(rule))
    assert await held(semel) == {"calls": 1, "usd": 100_000}
    semel.store.before_swap = seen = Seen(semel)
    assert (await semel.call(ask(rule))).kind == "executed"
    assert semel.upstream.went_out == 6
    assert seen.held == [{"calls": 1, "usd": 100_000}] * len(seen.held)
    assert await held(semel) == {"calls": 1, "usd": 100_000}


@in_virtual_time
async def test_the_price_in_the_answer_takes_the_place_of_what_was_reserved() -> None:
    """Reserved is the dearest that was seen; what is told is the real sum; what is reached is used up."""
    semel = Process(
        None, answers(body=b'{"usd": 0.3}'), answers(body=b'{"usd": 0.1}'), answers(body=b'{"usd": 0.2}')
    )
    rule = limited(99, "0.50", price="")
    await semel.call(ask(rule, n=1))
    assert (await held(semel))["usd"] == 300_000
    with pytest.raises(
        BudgetExceeded, match=r"0\.30 of 0\.50 USD in 1d are used, and this call would add 0\.30 USD"
    ):
        await semel.call(ask(rule, n=2))
    raised = limited(99, "0.60", price="")
    await semel.call(ask(raised, n=2))
    assert (await held(semel))["usd"] == 400_000
    await semel.call(ask(limited(99, "9", price=""), n=3))
    assert (await held(semel))["usd"] == 600_000
    with pytest.raises(BudgetExceeded):
        await semel.call(ask(raised, n=4))


@in_virtual_time
async def test_a_cached_answer_is_free_and_a_fetch_is_not() -> None:
    """A refresh is a fetch."""
    semel, rule = Process(None, answers(), answers()), limited(2, rule=CACHE)
    assert (await semel.call(ask(rule))).kind == "executed"
    assert (await semel.call(ask(rule))).kind == "replayed"
    assert (await semel.call(ask(rule, refresh=True))).kind == "executed"
    with pytest.raises(BudgetExceeded):
        await semel.call(ask(rule, refresh=True))
    assert (await semel.call(ask(rule))).kind == "replayed", "what is there is still given"


@in_virtual_time
@pytest.mark.parametrize("lost_reply", [False, True])
async def test_without_the_store_a_safe_call_that_a_budget_limits_is_not_sent(lost_reply: bool) -> None:
    """Others are forwarded without a record; these would pass uncounted."""
    semel, rule = Process(None), limited(1, rule=replace(SAFE, repeat=Repeat.SAME))
    semel.store.unavailable, semel.store.fail_after_swaps = not lost_reply, int(lost_reply)
    with pytest.raises(StoreUnavailable):
        await semel.call(ask(rule))
    semel.store.unavailable, semel.store.fail_after_swaps = not lost_reply, int(lost_reply)
    assert await semel.call(ask(SAFE)) == Got("unrecorded")
    semel.store.unavailable, semel.store.fail_after_swaps = False, 0
    await asyncio.sleep(5)
    assert semel.upstream.started == 0


@in_virtual_time
async def test_a_person_is_asked_first_and_a_refusal_leaves_the_permission() -> None:
    """The question costs nothing; permitted and over the budget it is refused; later it goes out unasked."""
    semel, open_rule = Process(None, answers(), answers(201)), limited(1)
    rule = replace(open_rule, approval=Approval(wait=0.0))
    guarded = ask(rule, n=2)._replace(
        sending=Prepared(rule=rule, safe=False, body=b"{}", total=600.0, bound_to=b"this")
    )
    await semel.call(ask(open_rule, n=1))
    with pytest.raises(AwaitingApproval):
        await semel.call(guarded)
    assert await held(semel) == {"calls": 1}
    await operator.approve(
        semel.store, semel.clock, guarded.identity.id, reason="fine", actor="ada", version=None
    )
    granted = semel.row(guarded)
    with pytest.raises(BudgetExceeded):
        await semel.call(guarded)
    assert semel.row(guarded) == granted
    await asyncio.sleep(HOUR + 60)
    assert await semel.call(guarded) == Got("executed", 201, b"the answer")


@in_virtual_time
async def test_limits_are_those_of_now_and_a_rule_without_a_budget_takes_nothing() -> None:
    """Raised, it goes through; lowered, it does not; taken away, nothing is counted."""
    semel = Process(None, *(answers() for _ in range(5)))
    await semel.call(ask(limited(1), n=1))
    with pytest.raises(BudgetExceeded):
        await semel.call(ask(limited(1), n=2))
    await semel.call(ask(limited(2), n=2))
    with pytest.raises(BudgetExceeded):
        await semel.call(ask(limited(1), n=3))
    await semel.call(ask(EFFECT, n=3))
    assert await held(semel) == {"calls": 2}


@in_virtual_time
async def test_a_safe_call_whose_repeat_was_not_sent_was_sent_all_the_same() -> None:
    """The first send broke off, for the second the upstream was out of reach: nothing is given back."""
    semel, rule = Process(None, lost(), not_sent()), limited(1, "0.10", SAFE)
    with pytest.raises(UpstreamUnreachable):
        await semel.call(ask(rule))
    assert await held(semel, "look") == {"calls": 1, "usd": 100_000}
    with pytest.raises(BudgetExceeded):
        await semel.call(ask(rule, n=2))
