"""The desk on a store in memory: who is faster, what is lost, whose run it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.admin.desk import LocalDesk
from proxy.admin.run_desk import TRIES, Fork
from proxy.core.intent import Call, Entry, evolve
from proxy.core.run_record import Run, RunEntry, RunState
from proxy.errors import BadRequest, NotFound, StaleVersion, StoreUnavailable
from proxy.store.base import RunQuery, Store, Swap
from proxy.store.codec import Codec
from tests.admin.run_scene import TWO_ATTEMPTS, charge, run_scene, two_attempts
from tests.exchange.virtual_time import in_virtual_time
from tests.runs.stage import TENANT, Agent, RunProcess


def desk_of(semel: RunProcess, tenant: str = "") -> LocalDesk:
    return LocalDesk(
        store=semel.store,
        codec=Codec(),
        clock=semel.clock,
        lifetimes=lambda upstream, rule: None,
        tenant=tenant,
        decided=semel.books.changed_beside,
    )


async def unasked(semel: RunProcess) -> LocalDesk:
    """a1 wrote one and two; a2 asked for one alone."""
    agent = Agent(semel)
    await agent.write("send?one")
    await agent.write("send?two")
    await agent.next("a2").write("send?one")
    return desk_of(semel)


class Rival:
    """Changes a row or a run behind the back of whoever is about to swap it, so many times."""

    def __init__(self, semel: RunProcess, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = times
        self._store = semel.store
        self._swap, self._swap_run = semel.store.swap, semel.store.swap_run
        monkeypatch.setattr(semel.store, "swap", self.swap)
        monkeypatch.setattr(semel.store, "swap_run", self.swap_run)

    async def swap(self, call: Call, entry: Entry, *, expected: int, **rest: Any) -> Swap:
        if self._beats():
            present = await self._store.get(call.key)
            assert present is not None
            line = entry._replace(event="evidence", actor="rival")
            other = evolve(present, version=present.version + 1)
            assert (await self._swap(other, line, expected=present.version)).won
        return await self._swap(call, entry, expected=expected, **rest)

    async def swap_run(self, run: Run, entry: RunEntry, *, expected: int) -> bool:
        if expected and self._beats():
            present = await self._store.get_run(run.tenant, run.name)
            assert present is not None
            other = replace(present, version=present.version + 1)
            assert await self._swap_run(other, entry._replace(event="rival"), expected=present.version)
        return await self._swap_run(run, entry, expected=expected)

    def _beats(self) -> bool:
        self.left -= 1
        return self.left >= 0


@pytest.mark.usefixtures("any_stage")
@in_virtual_time
async def test_who_loses_a_race_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other's change stands, and so does this one; both are in the history."""
    semel = RunProcess()
    desk = await unasked(semel)
    Rival(semel, 3, monkeypatch)
    allowed = await desk.runs.allow("r", by="ann", reason="ok")
    (one,) = allowed["retired"]
    events = [entry.event for entry in await semel.store.history(bytes.fromhex(one["call"]))]
    assert events[-4:] == ["evidence", "evidence", "evidence", "retired"]
    Rival(semel, 2, monkeypatch)
    assert (await desk.runs.complete("r", by="ann", attempt="a2"))["state"] == "complete"
    told = [entry.event for entry in await semel.store.run_history(TENANT, "r")]
    assert told[-3:] == ["rival", "rival", "completed"]


@pytest.mark.usefixtures("any_stage")
@in_virtual_time
async def test_who_always_loses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """409, and nothing of it is written."""
    semel = RunProcess()
    desk = await unasked(semel)
    Rival(semel, 10 * TRIES, monkeypatch)
    with pytest.raises(StaleVersion, match="at rest"):
        await desk.runs.allow("r", by="ann", reason="ok")
    with pytest.raises(StaleVersion, match="at rest"):
        await desk.runs.complete("r", by="ann", attempt="a2")
    shown = await desk.runs.show("r")
    assert shown["state"] == "open"
    assert not any(step["retired"] for step in shown["steps"])


@pytest.mark.usefixtures("any_stage")
@in_virtual_time
async def test_a_store_that_fails_leaves_no_half_fork() -> None:
    """The error says that it is not known; when the store is back there is no run of that name."""
    semel = RunProcess()
    desk = await unasked(semel)
    fork = Fork(by="ann", reason="ok", at=1, name="f")
    swap_run = semel.store.swap_run

    async def failing(*_: object, **__: object) -> bool:
        raise StoreUnavailable("gone")

    semel.store.swap_run = failing  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="not known"):
        await desk.runs.fork("r", fork)
    semel.store.swap_run = swap_run  # type: ignore[method-assign]
    with pytest.raises(NotFound):
        await desk.runs.show("f")
    assert (await desk.runs.fork("r", fork))["run"] == "f"


@pytest.mark.usefixtures("any_stage")
@in_virtual_time
async def test_a_name_that_two_tenants_use_needs_a_tenant() -> None:
    """Nobody guesses whose it is; a desk of one tenant sees its own."""
    semel = RunProcess()
    desk = await unasked(semel)
    await semel.store.open_run("acme", "r", "x1", 0.0)
    with pytest.raises(BadRequest, match="acme, default"):
        await desk.runs.show("r")
    assert (await desk.of("acme").runs.show("r"))["attempts"][0]["name"] == "x1"
    assert len((await desk.of(TENANT).runs.show("r"))["steps"]) == 2
    listed = (await desk.runs.page(RunQuery()))["runs"]
    assert {run["tenant"] for run in listed} == {"acme", TENANT}
    assert [run["tenant"] for run in (await desk.of("acme").runs.page(RunQuery()))["runs"]] == ["acme"]


@pytest.mark.usefixtures("any_stage")
@in_virtual_time
async def test_what_is_settled_meanwhile_or_forgotten_is_not_retired() -> None:
    """Forgotten rows cannot be unasked: there is nothing to retire."""
    semel = RunProcess()
    desk = await unasked(semel)
    two = next(step for step in (await desk.runs.show("r"))["steps"] if step["seq"] == 2)
    from proxy.admin.decision import Decision

    await desk.forget(two["call"], Decision(by="ann", reason="wrong"))
    assert (await desk.runs.allow("r", by="ann", reason="ok"))["retired"] == []
    shown = await desk.runs.show("r")
    assert [step["state"] for step in shown["steps"]] == ["done", None]


async def tallies_agree(store: Store, tenant: str, run: str, attempts: tuple[str, ...]) -> None:
    tallies = await store.run_tallies(tenant, run)
    sums = await store.run_sums(tenant, run)
    assert sums
    assert max(tally.times for tally in tallies) > 1
    counted: dict[str, Counter[Any]] = {}
    for tally in tallies:
        counted.setdefault(tally.attempt, Counter())[tally.how] += tally.times
    assert counted == sums
    for attempt in attempts:
        asked = frozenset(tally.key for tally in tallies if tally.attempt == attempt)
        assert asked == await store.run_asked(tenant, run, attempt)
    assert await store.tenants_of(run) == [tenant]
    assert await store.tenants_of("nobody") == []


@pytest.mark.usefixtures("any_stage")
@in_virtual_time
async def test_tallies_say_what_sums_and_asked_say_on_stage() -> None:
    """One reading of who was served."""
    semel = RunProcess()
    await unasked(semel)
    for _ in range(2):
        await Agent(semel, "a2").write("send?two", tokens=frozenset({"k"}))
    await tallies_agree(semel.store, TENANT, "r", ("a1", "a2"))


async def test_tallies_say_what_sums_and_asked_say_embedded(tmp_path: Path) -> None:
    """The same promise from the other store."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS) as world:
        await two_attempts(world)
        for _ in range(2):  # a retry on evidence: served twice from one call
            assert (await charge(world, "r+a2", 2, **{"Idempotency-Key": "k"})).semel == "replayed"
        await tallies_agree(world.app.store, "default", "r", ("a1", "a2"))


async def test_what_a_fork_has_retired_survives_a_restart(tmp_path: Path) -> None:
    """It is part of the run's record."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS) as world:
        await charge(world, "r+a1", 1)
        store = world.app.store
        run = await store.get_run("default", "r")
        assert run is not None
        kept = replace(run, retired=frozenset({b"k" * 16}), version=run.version + 1, state=RunState.COMPLETE)
        assert await store.swap_run(kept, RunEntry(0.0, "a", "e", "w"), expected=run.version)
    async with run_scene(tmp_path) as world:
        again = await world.app.store.get_run("default", "r")
        assert again is not None
        assert again.retired == frozenset({b"k" * 16})
