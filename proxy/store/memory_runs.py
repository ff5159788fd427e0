"""The reference model of runs, for memory.py: the same promises as every store's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from proxy.core.intent import OPEN_STATES, Call
from proxy.core.run_record import (
    Attempt,
    Changes,
    Exchange,
    How,
    Run,
    RunEntry,
    RunState,
    Serving,
    Tally,
)
from proxy.core.runs import step_of
from proxy.store.base import RunPage, RunQuery


@dataclass(slots=True)
class RunsWorld:
    """What the processes share of runs. Keys are (tenant, run)."""

    runs: dict[tuple[str, str], Run] = field(default_factory=dict)
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    events: dict[tuple[str, str], list[RunEntry]] = field(default_factory=dict)
    pulses: dict[bytes, int] = field(default_factory=dict)  # by call: the run's pulse when it changed last
    # By run, then by attempt, call, number and owner: the exchange, and the pulse of its last change.
    exchanges: dict[tuple[str, str], dict[tuple[str, bytes, int, str], tuple[Exchange, int]]] = field(
        default_factory=dict
    )
    sights: count[int] = field(default_factory=lambda: count(1))

    def beat(self, name: tuple[str, str], at: float, *, takes_seq: bool = False) -> Run:
        run = self.runs[name]
        beaten = replace(
            run,
            pulse=run.pulse + 1,
            last_seq=run.last_seq + takes_seq,
            active_at=max(run.active_at, at),
        )
        self.runs[name] = beaten
        return beaten

    def serve(self, served: Serving, pulse: int) -> None:
        x = served.exchange
        of_run = self.exchanges.setdefault((served.tenant, served.run), {})
        of_run[x.attempt, served.key, x.number, x.owner] = (x, pulse)


class MemoryRuns:
    """The part of MemoryStore that is about runs; it says what there is and checks whether it may."""

    _runs: RunsWorld
    _calls: dict[bytes, Call]
    _check: Callable[[], None]
    _closed: bool

    async def open_run(self, tenant: str, name: str, attempt: str, now: float) -> Run:
        self._check()
        world, key = self._runs, (tenant, name)
        first = (Attempt(name=attempt, first_at=now),) if attempt else ()
        run = world.runs.get(key)
        if run is None:
            run = Run(tenant=tenant, name=name, created_at=now, active_at=now, attempts=first)
            world.runs[key] = run
            world.numbers[key] = next(world.sights)
        elif attempt and attempt not in run.attempt_names and run.state is not RunState.EXPIRED:
            attempts = (*run.attempts, *first)
            world.runs[key] = replace(run, attempts=attempts, version=run.version + 1, state=RunState.OPEN)
            run = world.beat(key, now)
        return run

    def runs_stamp(self) -> int | None:
        return None  # looking costs nothing here

    async def get_run(self, tenant: str, name: str) -> Run | None:
        self._check()
        return self._runs.runs.get((tenant, name))

    async def swap_run(self, run: Run, entry: RunEntry, *, expected: int) -> bool:
        self._check()
        world, key = self._runs, (run.tenant, run.name)
        present = world.runs.get(key)
        if (present.version if present else 0) != expected:
            return False
        if present is None:
            world.runs[key] = run
            world.numbers[key] = next(world.sights)
        else:
            world.runs[key] = replace(
                run, pulse=present.pulse, last_seq=present.last_seq, active_at=present.active_at
            )
            world.beat(key, run.active_at)
        world.events.setdefault(key, []).append(entry)
        return True

    async def run_changes(self, tenant: str, name: str, attempt: str, since: int) -> Changes | None:
        self._check()
        world, key = self._runs, (tenant, name)
        run = world.runs.get(key)
        if run is None:
            return None
        changed = [
            call
            for call in self._calls.values()
            if (call.tenant, call.run) == key and world.pulses[call.key] > since
        ]
        changed.sort(key=lambda call: world.pulses[call.key])
        exchanges = [
            (call, exchange)
            for (by, call, _, _), (exchange, pulse) in world.exchanges.get(key, {}).items()
            if attempt and by == attempt and pulse > since
        ]
        return Changes(run, [step_of(call) for call in changed], exchanges)

    def mark_served(self, served: Serving) -> None:
        if not self._closed:  # the dead write nothing more
            self._serve(served)

    def _serve(self, served: Serving) -> None:
        key = (served.tenant, served.run)
        if key in self._runs.runs and not self._is_expired(*key):
            self._runs.serve(served, self._runs.beat(key, served.exchange.at).pulse)

    async def note_run(self, tenant: str, name: str, entry: RunEntry) -> None:
        self._check()
        if (tenant, name) in self._runs.runs:
            self._runs.events.setdefault((tenant, name), []).append(entry)

    async def run_history(self, tenant: str, name: str) -> list[RunEntry]:
        self._check()
        return list(self._runs.events.get((tenant, name), ()))

    async def list_runs(self, query: RunQuery) -> RunPage:
        self._check()
        world = self._runs
        found = sorted(
            (
                (world.numbers[key], run)
                for key, run in world.runs.items()
                if (not query.tenant or run.tenant == query.tenant)
                and (query.state is None or run.state is query.state)
                and (query.after is None or world.numbers[key] < query.after)
            ),
            key=lambda pair: -pair[0],
        )
        page = found[: query.limit]
        return RunPage(runs=[run for _, run in page], next=page[-1][0] if len(found) > len(page) else None)

    async def run_sums(self, tenant: str, name: str) -> dict[str, Counter[How]]:
        self._check()
        sums: dict[str, Counter[How]] = {}
        for exchange, _ in self._runs.exchanges.get((tenant, name), {}).values():
            sums.setdefault(exchange.attempt, Counter())[exchange.how] += 1
        return sums

    async def run_asked(self, tenant: str, name: str, attempt: str) -> frozenset[bytes]:
        self._check()
        of_run = self._runs.exchanges.get((tenant, name), {})
        return frozenset(call for by, call, _, _ in of_run if by == attempt)

    async def run_tallies(self, tenant: str, name: str) -> list[Tally]:
        self._check()
        times: dict[tuple[str, bytes, How], list[float]] = {}
        for (attempt, call, _, _), (exchange, _) in self._runs.exchanges.get((tenant, name), {}).items():
            times.setdefault((attempt, call, exchange.how), []).append(exchange.at)
        return [Tally(*group, len(at), max(at)) for group, at in sorted(times.items())]

    async def tenants_of(self, name: str) -> list[str]:
        self._check()
        return sorted(tenant for tenant, named in self._runs.runs if named == name)

    def _is_expired(self, tenant: str, name: str) -> bool:
        return self._runs.runs[tenant, name].state is RunState.EXPIRED

    def _expired(self) -> set[tuple[str, str]]:
        return {key for key, run in self._runs.runs.items() if run.state is RunState.EXPIRED}

    def _over(self, before: float) -> list[tuple[str, str]]:
        """Runs whose time is over, with no living relative: a fork refers to what came before it."""
        world = self._runs
        living = {
            (run.tenant, run.origin or run.name)
            for run in world.runs.values()
            if run.state is not RunState.EXPIRED and run.active_at >= before
        }
        return [
            key
            for key, run in world.runs.items()
            if run.state is not RunState.EXPIRED and (run.tenant, run.origin or run.name) not in living
        ]

    def _calls_over(self, before: float) -> list[Call]:
        """Of runs that are over, and what was left open in one that is gone."""
        over = self._expired().union(self._over(before))
        return [
            call
            for call in self._calls.values()
            if (call.tenant, call.run) in over and call.state not in OPEN_STATES
        ]

    def _expire(self, before: float) -> None:
        for key in self._over(before):
            run = self._runs.runs[key]
            self._runs.runs[key] = replace(run, state=RunState.EXPIRED, version=run.version + 1)
            self._runs.beat(key, 0.0)
            self._runs.exchanges.pop(key, None)
