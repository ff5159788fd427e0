"""What every store promises of budgets: a charge and its row land together or not at all, and whoever comes
at the same time sees it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

from proxy.core.budget import FOR_GOOD, Account, Charge, Meter, Posting, Spent
from proxy.core.intent import Call, State
from proxy.core.terms import Held, Reserved, Terms
from proxy.store.base import Store, Swap
from tests.stores import calls

AT = int(calls.NOW * 1000)
HOUR = 3_600_000


def account(run: str = "", *, tenant: str = "default", rule: str = "send") -> Account:
    return Account(tenant, run, "mail", rule)


def calls_of(
    most: int | None, amount: int = 1, *, bucket: int = AT + 60_000, since: int = AT - HOUR
) -> Posting:
    return Posting(Meter.CALLS, bucket, amount, since=since, most=most, expires=bucket + HOUR)


def money(most: int | None, amount: int, *, peak: int = 0) -> Posting:
    return Posting(Meter.USD, FOR_GOOD, amount, peak=peak, most=most)


def charge(*postings: Posting, of: Account | None = None) -> Charge:
    return Charge(of or account(), postings)


class BudgetContract:
    """Beside StoreContract, which says how to open a store."""

    async def claimed(self, store: Store, taken: Charge, key: bytes | None = None) -> tuple[Call, Swap]:
        call, entry = calls.claim(store.owner, key)
        return call, await store.swap(call, entry, expected=0, charge=taken)

    async def test_a_charge_is_taken_with_the_row_and_no_further_than_its_limit(self, store: Store) -> None:
        """Three of three; the fourth writes nothing, neither row nor history nor account, and is told all
        that the account holds."""
        for n in range(3):
            _, swap = await self.claimed(store, charge(calls_of(3), money(1000, 100)))
            assert swap.won
            assert await store.spent(account()) == [
                Spent("calls", AT + 60_000, n + 1, 0), Spent("usd", FOR_GOOD, 100 * (n + 1), 0),
            ]  # fmt: skip
        held = await store.spent(account())
        call, swap = await self.claimed(store, charge(calls_of(3), money(1000, 100)))
        assert swap == Swap(False, exceeded=tuple(held))
        assert await store.get(call.key) is None
        assert await store.history(call.key) == []
        assert (await store.census()).by_state[State.PENDING] == 3
        assert await store.spent(account()) == held
        _, swap = await self.claimed(store, charge(calls_of(4), money(1000, 100)))
        assert swap.won, "another limit, as after a reload: what was refused was not taken"

    async def test_nothing_of_a_charge_is_taken_if_one_of_its_limits_is_passed(self, store: Store) -> None:
        """Money is refused though there are calls left, and the other way round; an empty account too."""
        _, swap = await self.claimed(store, charge(calls_of(5), money(99, 100)))
        assert swap == Swap(False, exceeded=())
        assert await store.spent(account()) == []
        assert (await self.claimed(store, charge(calls_of(5), money(100, 100))))[1].won
        assert not (await self.claimed(store, charge(calls_of(5), money(100, 1))))[1].won
        assert not (await self.claimed(store, charge(calls_of(1), money(1000, 1))))[1].won
        assert [spent.amount for spent in await store.spent(account())] == [1, 100]

    async def test_a_bucket_counts_while_it_ends_later_than_the_window_begins(self, store: Store) -> None:
        """To the millisecond: one that ended when the window began is past."""
        for bucket in (AT - HOUR, AT - HOUR + 1, AT):
            assert (await self.claimed(store, charge(calls_of(9, bucket=bucket))))[1].won
        assert not (await self.claimed(store, charge(calls_of(2, since=AT - HOUR))))[1].won
        assert (await self.claimed(store, charge(calls_of(3, since=AT - HOUR))))[1].won
        assert (await self.claimed(store, charge(calls_of(2, since=AT))))[1].won
        assert [spent.bucket for spent in await store.spent(account())] == [
            AT - HOUR, AT - HOUR + 1, AT, AT + 60_000,
        ]  # fmt: skip

    async def test_accounts_are_apart(self, store: Store) -> None:
        """By tenant, run and rule, also where names run into each other."""
        accounts = [account(), account("r"), account(rule="r"), account(tenant="x\n"), account("x")]
        accounts += [account(tenant="ä \x00"), Account("a", "b:c", "d", "e"), Account("a:b", "c", "d", "e")]
        for each in accounts:
            assert (await self.claimed(store, charge(calls_of(1), of=each)))[1].won
            assert not (await self.claimed(store, charge(calls_of(1), of=each)))[1].won
        for each in accounts:
            assert await store.spent(each) == [Spent("calls", AT + 60_000, 1, 0)]
        assert await store.spent(account("nobody")) == []

    async def test_who_loses_the_row_takes_nothing_and_is_told_of_the_row(self, store: Store) -> None:
        """Also when the budget is used up: an answer that is there costs nothing."""
        key = os.urandom(16)
        call, swap = await self.claimed(store, charge(calls_of(1)), key)
        assert swap.won
        _, swap = await self.claimed(store, charge(calls_of(9)), key)
        assert swap == Swap(False, call)
        _, swap = await self.claimed(store, charge(calls_of(1)), key)
        assert swap == Swap(False, call)
        free, entry = calls.release(call)
        stale = await store.swap(replace(free, version=5), entry, expected=4, charge=charge(calls_of(9)))
        assert stale == Swap(False, call)
        assert await store.spent(account()) == [Spent("calls", AT + 60_000, 1, 0)]

    async def test_a_claim_over_a_row_is_charged_like_a_first_one(self, store: Store) -> None:
        """Within the limit it wins; over it the row stays what it was."""
        call, swap = await self.claimed(store, charge(calls_of(2)))
        for won in (True, False):
            free, entry = calls.release(call)
            assert (await store.swap(free, entry, expected=call.version)).won
            call, entry = calls.claim_again(free, store.owner)
            swap = await store.swap(call, entry, expected=free.version, charge=charge(calls_of(2)))
            assert swap.won is won
        assert await store.get(call.key) == free
        assert len(await store.history(call.key)) == 4

    async def test_what_was_reserved_is_set_right_and_never_below_zero(self, store: Store) -> None:
        """Up and down, the dearest remembered; what is not there is not made."""
        call, _ = await self.claimed(store, charge(calls_of(1), money(100, 100)))
        lost, entry = calls.lose(call)
        dearer = charge(money(None, 150, peak=250))
        assert (await store.swap(lost, entry, expected=1, charge=dearer)).won
        assert (await store.spent(account()))[1] == Spent("usd", FOR_GOOD, 250, 250)
        done, entry = calls.settle(lost)
        back = charge(calls_of(None, -5), money(None, -200, peak=50), calls_of(None, 7, bucket=AT))
        assert (await store.swap(done, entry, expected=2, charge=back)).won
        assert await store.spent(account()) == [
            Spent("calls", AT + 60_000, 0, 0), Spent("usd", FOR_GOOD, 50, 250),
        ]  # fmt: skip
        assert not (await store.swap(done, entry, expected=2, charge=back)).won, "the same swap again"
        assert (await store.spent(account()))[1].amount == 50

    async def test_many_at_once_from_two_processes_take_exactly_the_limit(
        self, store: Store, other: Store
    ) -> None:
        """Distinct calls raced by tasks of two stores, in batches or not: as many win as the limit allows,
        and the account says the same; those of another account are none the worse."""
        raced = [s for _ in range(60) for s in (store, other)]
        mixed = asyncio.gather(*(self.claimed(s, charge(calls_of(99), of=account("z"))) for s in raced[:20]))
        swaps = await asyncio.gather(*(self.claimed(s, charge(calls_of(37), money(10**6, 7))) for s in raced))
        assert all(swap.won for _, swap in await mixed)
        winners = [call for call, swap in swaps if swap.won]
        assert len(winners) == 37
        assert all(swap.exceeded is not None for _, swap in swaps if not swap.won)
        assert [spent.amount for spent in await other.spent(account())] == [37, 37 * 7]
        found = await store.get_many([call.key for call, _ in swaps])
        assert {call.key for call in found} == {call.key for call in winners}

    async def test_reservations_and_returns_at_once_add_up(self, store: Store, other: Store) -> None:
        """Every call that is claimed is given back at once, by whichever process: in the end nothing is held,
        and there was never more than the limit."""

        async def come_and_go(mine: Store, its: Store) -> bool:
            call, swap = await self.claimed(mine, charge(calls_of(10), money(100, 10)))
            if not swap.won:
                assert sum(spent.amount for spent in swap.exceeded or () if spent.meter == "calls") == 10
                return False
            free, entry = calls.release(call)
            back = charge(calls_of(None, -1), money(None, -10))
            assert (await its.swap(free, entry, expected=1, charge=back)).won
            return True

        pairs = [(store, other), (other, store)] * 20
        assert sum(await asyncio.gather(*(come_and_go(*pair) for pair in pairs))) >= 10
        assert [spent.amount for spent in await store.spent(account())] == [0, 0]

    async def test_a_run_has_accounts_of_its_own_that_go_with_it(self, store: Store) -> None:
        """In the swap of a run's row; what is past goes with time, what is for good with the run."""
        await store.open_run("default", "r", "a1", calls.NOW)
        call, entry = calls.in_run(store.owner)
        taken = charge(calls_of(1), money(100, 60), of=account("r"))
        assert (await store.swap(call, entry, expected=0, served=calls.serving(call), charge=taken)).seq == 1
        second, entry = calls.in_run(store.owner)
        swap = await store.swap(second, entry, expected=0, served=calls.serving(second), charge=taken)
        assert (swap.won, len(swap.exceeded or ())) == (False, 2)
        changes = await store.run_changes("default", "r", "a1", 0)
        assert changes is not None
        assert [step.key for step in changes.steps] == [call.key]
        assert [key for key, _ in changes.exchanges] == [call.key], "nobody was served"
        assert changes.run.last_seq == 1
        await self.claimed(store, charge(calls_of(1), money(100, 60)))
        past = (AT + 60_000 + HOUR) / 1000
        while (await store.collect(past, runs_before=calls.NOW - 1)).more:
            ...
        assert len(await store.spent(account("r"))) == 2, "its last millisecond"
        while (await store.collect(past + 0.001, runs_before=calls.NOW - 1)).more:
            ...
        assert [spent.meter for spent in await store.spent(account("r"))] == ["usd"]
        assert [spent.meter for spent in await store.spent(account())] == ["usd"]
        while (await store.collect(past, runs_before=calls.NOW + 1)).more:
            ...
        assert await store.spent(account("r")) == []
        assert [spent.meter for spent in await store.spent(account())] == ["usd"]
        lost, entry = calls.lose(call)
        late = charge(money(None, 5), of=account("r"))
        assert (await store.swap(lost, entry, expected=1, charge=late)).won
        assert await store.spent(account("r")) == [], "nothing comes back to life"

    async def test_past_buckets_are_collected_in_portions(self, store: Store) -> None:
        """However many there are, and nothing else."""
        for n in range(5):
            await self.claimed(store, charge(calls_of(99, bucket=AT + n), of=account(rule=f"r{n % 2}")))
        rounds = 0
        while (await store.collect((AT + 2 + HOUR) / 1000 + 0.001, limit=2)).more:
            rounds += 1
            assert rounds < 10
        left = [spent.bucket for n in range(2) for spent in await store.spent(account(rule=f"r{n}"))]
        assert sorted(left) == [AT + 3, AT + 4]

    async def test_the_row_remembers_what_it_holds(self, store: Store) -> None:
        """Whoever settles it knows what to give back."""
        reserved = Reserved("r", "other", (Held("calls", AT, 1), Held("usd", FOR_GOOD, 10**12)), True)
        call, entry = calls.claim(store.owner)
        call = replace(call, terms=Terms(key="k", reserved=reserved))
        assert (await store.swap(call, entry, expected=0)).won
        assert await store.get(call.key) == call
