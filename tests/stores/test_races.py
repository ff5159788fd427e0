"""Identical claims, raced: one wins, on every store, and everybody sees who. Distinct ones out of one budget:
as many win as it allows."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from proxy import faults
from proxy.core.intent import State
from proxy.store.base import Store
from tests import ambient
from tests.counts import count
from tests.stores import budget_contract as budgets
from tests.stores import calls
from tests.stores.process import child

pytestmark = pytest.mark.usefixtures("any_store")

ROUNDS = count(20, 200)


@pytest.fixture
async def stores(tmp_path: Path, any_store: None) -> AsyncIterator[list[Store]]:
    """Two hands on one record."""
    async with AsyncExitStack() as stack:
        opened = [await ambient.opened(tmp_path / "state") for _ in range(2)]
        for store in opened:
            stack.push_async_callback(store.close)
        yield opened


async def test_by_fifty_tasks(stores: list[Store]) -> None:
    """Over two stores at once, so that batches of both meet."""
    for _ in range(ROUNDS):
        key = os.urandom(16)
        claims = [(stores[n % 2], *calls.claim(stores[n % 2].owner, key)) for n in range(50)]
        swaps = await asyncio.gather(*(store.swap(call, entry, expected=0) for store, call, entry in claims))
        (winner,) = [call for (_, call, _), swap in zip(claims, swaps, strict=True) if swap.won]
        assert [swap.present for swap in swaps if not swap.won] == [winner] * 49
        assert len(await stores[0].history(key)) == 1


async def test_by_four_processes(stores: list[Store], tmp_path: Path) -> None:
    """Eight identical claims each."""
    place = tmp_path / "state" if ambient.store() == ambient.EMBEDDED else ambient.store()
    async with AsyncExitStack() as stack:
        racers = [await stack.enter_async_context(child("race", place)) for _ in range(4)]
        for _ in range(ROUNDS):
            key = os.urandom(16)
            for racer in racers:
                racer.write(key.hex())
            told = [(await racer.read()).split() for racer in racers]
            assert sum(int(words[0]) for words in told) == 1
            winner = next(r.owner for r, words in zip(racers, told, strict=True) if words[0] == "1")
            assert {owner for words in told for owner in words[1:]} == {winner}
            row = await stores[0].get(key)
            assert row is not None
            assert row.owner == winner
            assert len(await stores[0].history(key)) == 1


async def test_a_budget_by_four_processes(stores: list[Store], tmp_path: Path) -> None:
    """Sixteen distinct calls each, and room for fewer: exactly as many win."""
    place = tmp_path / "state" if ambient.store() == ambient.EMBEDDED else ambient.store()
    async with AsyncExitStack() as stack:
        racers = [await stack.enter_async_context(child("spend", place)) for _ in range(4)]
        for n in range(ROUNDS):
            for racer in racers:
                racer.write(f"rule-{n} {n + 1}")
            assert sum([int(await racer.read()) for racer in racers]) == min(n + 1, 64)
            (spent,) = await stores[0].spent(budgets.account(rule=f"rule-{n}"))
            assert spent.amount == min(n + 1, 64)


@pytest.mark.parametrize("point", [faults.Point.COMMIT_BEGUN, faults.Point.COMMITTED])
async def test_killed_while_it_spends(stores: list[Store], tmp_path: Path, point: faults.Point) -> None:
    """What was acknowledged is there, and for every row its charge: never the one without the other."""
    place = tmp_path / "state" if ambient.store() == ambient.EMBEDDED else ambient.store()
    after, told = random.Random(str(point)).randrange(5, 30), 0
    async with child("spend_and_die", place, point, str(after)) as doomed:
        while await doomed.read():
            told += 1
    rows = (await stores[0].census()).by_state[State.PENDING]
    calls_taken, money = await stores[0].spent(budgets.account())
    assert (calls_taken.amount, money.amount) == (rows, 3 * rows)
    assert 0 < told <= rows
