"""A state machine, drawn by Hypothesis: whatever is done to a store and to the model, both answer alike.

Calls outside and inside of runs, decisions, swaps that come too late, runs that are opened, changed, complete
and over, marks, housekeeping. How a store counts its pulses is its own; what has changed since one is not.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from proxy.core.intent import Call, Entry, State
from proxy.core.run_record import Changes, End, Run, RunEntry, RunState, Serving, Step
from proxy.store.base import Query, RunQuery, Store
from proxy.store.embedded import EmbeddedStore
from proxy.store.memory import MemoryStore
from proxy.store.postgres import PostgresStore
from proxy.store.redis_store import open_redis
from tests.counts import count
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import Valkey
from tests.stores import calls

EXAMPLES, STEPS = count(10, 400), 30
TENANT = "default"
# In no store a living process, so that pending calls are orphans in both.
OWNER = "walker"
KEYS = [bytes([n]) * 16 for n in range(1, 7)]
RUNS = ["r1", "r2"]
ATTEMPTS = ["a1", "a2", ""]

Open: TypeAlias = Callable[[], AbstractAsyncContextManager[Store]]
keys, runs, attempts = st.sampled_from(KEYS), st.sampled_from(RUNS), st.sampled_from(ATTEMPTS)


class Machine(RuleBasedStateMachine):
    open: Open  # the store that is compared with the model

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.model: Store = MemoryStore()
        self.store: Store = self._runner.run(self._stack.enter_async_context(type(self).open()))
        self.time = calls.NOW

    def teardown(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    # ---- what is done ----

    @rule(key=keys, run=st.sampled_from(["", *RUNS]), late=st.booleans())
    def claim(self, key: bytes, run: str, late: bool) -> None:
        """A first claim, or one over a row that is there: then it comes too late."""
        if run and self._in_model(self.model.get_run(TENANT, run)) is None:
            return  # whoever claims in a run has opened it
        call, entry = (
            calls.in_run(OWNER, run, key=key, at=self.time) if run else calls.claim(OWNER, key, at=self.time)
        )
        served = calls.serving(call) if run else None
        if late:
            call = replace(call, version=2)
        self._swap(call, entry, served=served)

    @rule(key=keys, way=st.integers(0, 3), stale=st.sampled_from([0, 0, 0, -1, 1]))
    def go_on(self, key: bytes, way: int, stale: int) -> None:
        """A legal change of a row; now and then by somebody who saw another version of it."""
        present = self._in_model(self.model.get(key))
        if present is None:
            return
        ways = self._ways_on(present)
        call, entry = ways[way % len(ways)]
        if present.run:
            call = replace(call, expires_at=None if call.state is not State.RELEASED else call.expires_at)
        if stale and call.version + stale > 1:
            call = replace(call, version=call.version + stale)
        self._swap(call, entry)

    @rule(key=keys)
    def forget(self, key: bytes) -> None:
        """A person's decision about a settled call."""
        present = self._in_model(self.model.get(key))
        if present is not None and present.state is State.DONE and not present.run:
            self._swap(*calls.forget(present, at=self.time))

    @rule(key=keys, why=st.sampled_from("abc"))
    def note(self, key: bytes, why: str) -> None:
        """Evidence, also about what is not there."""
        call, _ = calls.claim(OWNER, key)
        self._same(lambda store: store.note(key, calls.evidence(call, why)))

    @rule(name=runs, attempt=attempts)
    def open_run(self, name: str, attempt: str) -> None:
        """By an agent that starts."""
        self.time += 1
        self._same(lambda store: store.open_run(TENANT, name, attempt, self.time), _run)

    @rule(name=runs, state=st.sampled_from([RunState.OPEN, RunState.COMPLETE]), stale=st.booleans())
    def change_run(self, name: str, state: RunState, stale: bool) -> None:
        """What is said of the run itself, by who knows it as it is, or was."""
        known = self._in_model(self.model.get_run(TENANT, name))
        if known is None or known.state is RunState.EXPIRED:
            return
        changed = replace(
            known, state=state, version=known.version + 1 + stale, passed=known.passed | {state}
        )
        line = RunEntry(self.time, "operator:ada", "changed", state)
        self._same(lambda store: store.swap_run(changed, line, expected=changed.version - 1))

    @rule(
        key=keys,
        number=st.integers(1, 2),
        end=st.sampled_from(list(End)),
        attempt=st.sampled_from(["a1", "a2"]),
    )
    def serve(self, key: bytes, number: int, end: End, attempt: str) -> None:
        """How an answer was handed on, told lazily."""
        call = self._in_model(self.model.get(key))
        if call is None or not call.run:
            return
        run = self._in_model(self.model.get_run(TENANT, call.run))
        if run is None or run.state is RunState.EXPIRED:
            return  # nobody is served in it any more, and who was is forgotten
        told = calls.serving(call, number, attempt=attempt)
        told = told._replace(exchange=told.exchange._replace(end=end))
        self._runner.run(self._serve(told))

    @rule(
        after=st.sampled_from([0.0, 100.0, 100_000.0]), limit=st.sampled_from([1, 100]), whole=st.booleans()
    )
    def collect(self, after: float, limit: int, whole: bool) -> None:
        """What is past its time goes, runs that nobody asks in too."""
        now = self.time + after
        before = now - 50.0 if whole else 1.0

        async def gone(store: Store) -> int:
            """How many portions there are is a store's own."""
            calls_gone, portions = 0, 0
            while True:
                portion = await store.collect(now, limit=limit, runs_before=before)
                calls_gone, portions = calls_gone + portion.calls, portions + 1
                assert portions < 50
                if not portion.more:
                    return calls_gone

        self._same(gone)

    # ---- what is seen ----

    @invariant()
    def everything_is_the_same(self) -> None:
        self._same(_everything)

    # ---- how ----

    def _swap(self, call: Call, entry: Entry, served: Serving | None = None) -> None:
        self.time += 1
        self._same(lambda store: store.swap(call, entry, expected=call.version - 1, served=served))

    def _ways_on(self, call: Call) -> list[tuple[Call, Entry]]:
        match call.state:
            case State.PENDING:
                return [make(call, at=self.time) for make in (calls.settle, calls.lose, calls.release)]
            case State.IN_DOUBT:
                return [calls.settle(call, at=self.time), calls.resend(call, OWNER, at=self.time)]
            case State.RELEASED:
                return [calls.settle(call, at=self.time), calls.claim_again(call, OWNER, at=self.time)]
            case _ if call.run:
                return [calls.settle(replace(call, state=State.IN_DOUBT, doubt=_DOUBT), at=self.time)]
            case _:
                return [calls.claim_anew(replace(call, expires_at=0.0), OWNER, at=self.time)]

    def _same(
        self, ask: Callable[..., Awaitable[Any]], seen: Callable[[Any], Any] = lambda told: told
    ) -> Any:
        """Both say the same, as far as it is to be compared. What the model says."""
        expected = self._in_model(ask(self.model))
        found = self._runner.run(_answer(ask(self.store)))
        assert seen(found) == seen(expected)
        return expected

    def _in_model(self, asking: Awaitable[Any]) -> Any:
        return self._runner.run(_answer(asking))

    async def _serve(self, told: Serving) -> None:
        """Lazy, but not for long."""
        for store in (self.model, self.store):
            store.mark_served(told)
        async with asyncio.timeout(20):
            while True:
                changes = await self.store.run_changes(TENANT, told.run, told.exchange.attempt, 0)
                if changes is None or (told.key, told.exchange) in changes.exchanges:
                    return
                await asyncio.sleep(0.005)


async def _everything(store: Store) -> dict[str, Any]:
    """All that can be asked, at once: a store over a network takes its time."""
    pairs = list(itertools.product(RUNS, ATTEMPTS))
    queries = (Query(), Query(state=State.PENDING), Query(run="r1"), Query(limit=2))
    rows, histories, pages, changes, lines, tallies, (census, orphans, listed) = await _together(
        _together(*[store.get(key) for key in KEYS]),
        _together(*[store.history(key) for key in KEYS]),
        _together(*[store.find(query) for query in queries]),
        _together(*[store.run_changes(TENANT, run, attempt, 0) for run, attempt in pairs]),
        _together(*[store.run_history(TENANT, run) for run in RUNS]),
        _together(*[store.run_tallies(TENANT, run) for run in RUNS]),
        _together(store.census(), store.orphans(), store.list_runs(RunQuery())),
    )
    over = {run.name for run in listed.runs if run.state is RunState.EXPIRED}
    return {
        "rows": rows,
        "histories": histories,
        "pages": [page.calls for page in pages],
        "census": (census.by_state, census.oldest_doubt_at),
        "orphans": sorted(call.key for call in orphans.calls),
        "runs": list(map(_run, listed.runs)),
        "changes": list(map(_changes, changes)),
        "run histories": lines,
        # Of a run that is over, who was served is asked by nobody, and forgotten sooner or later.
        "tallies": [sorted(told) for run, told in zip(RUNS, tallies, strict=True) if run not in over],
    }


async def _together(*asked: Awaitable[Any]) -> list[Any]:
    return list(await asyncio.gather(*asked))


_DOUBT = calls.lose(calls.claim(OWNER)[0])[0].doubt


async def _answer(asking: Awaitable[Any]) -> Any:
    return await asking


def _run(run: Run | None) -> Run | None:
    """Pulses are counted as each store likes."""
    return None if run is None else replace(run, pulse=0)


def _changes(changes: Changes | None) -> tuple[Run | None, list[Step], list[Any]] | None:
    if changes is None:
        return None
    asked = [] if changes.run.state is RunState.EXPIRED else changes.exchanges
    exchanges = sorted(asked, key=lambda one: (one[0], one[1].number, one[1].owner))
    return _run(changes.run), sorted(changes.steps), exchanges


@asynccontextmanager
async def _closing(opening: Awaitable[Store]) -> AsyncIterator[Store]:
    store = await opening
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def embedded() -> Iterator[Open]:
    with tempfile.TemporaryDirectory() as directory:
        fresh = (Path(directory) / str(n) for n in itertools.count())
        yield lambda: _closing(EmbeddedStore.open(next(fresh)))


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[Open]:
    made: list[str] = []

    def opened() -> AbstractAsyncContextManager[Store]:
        while made:  # that of the example before, perhaps to be had again
            postgres_server.drop(made.pop())
        made.append(postgres_server.new_database())
        return _closing(PostgresStore.open(postgres_server.url(made[-1])))

    yield opened
    for database in made:
        postgres_server.drop(database)


@pytest.fixture
def redis(valkey_server: Valkey) -> Open:
    def opened() -> AbstractAsyncContextManager[Store]:
        valkey_server.ask("FLUSHALL")
        return _closing(open_redis(valkey_server.url))

    return opened


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["embedded", "postgres", "redis"])
def test_a_store_answers_as_the_model_does(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever Hypothesis thinks of; it prints how to repeat what fails."""
    for module in ("embedded", "postgres_lazily", "redis_calls"):
        monkeypatch.setattr(f"proxy.store.{module}.MARKS_AFTER", 0.001)  # or it would mostly wait
    opened = request.getfixturevalue(name)
    machine = type(f"Machine_{name}", (Machine,), {"open": staticmethod(opened)})
    checked = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    run_state_machine_as_test(machine, settings=checked)
