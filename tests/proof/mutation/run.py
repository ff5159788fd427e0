"""One run: find out what reaches what, then try every mutant, each in a process of its own, in a row."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TextIO

import pytest

from tests.proof.mutation.afresh import Afresh, import_all, try_afresh
from tests.proof.mutation.forks import Ended, Outcome, told
from tests.proof.mutation.mutants import Mutant, Source, enums_of, mutants_of
from tests.proof.mutation.reached import Reach, Survey, Test, traced
from tests.proof.mutation.rounds import Rounds
from tests.proof.mutation.zygote import OPTIONS, Zygote


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    root: Path
    package: str
    tests: tuple[str, ...]
    wider: tuple[str, ...] = ()  # for what these let through
    seconds: float
    spare: float  # see zygote.limits
    modules: frozenset[str] = frozenset()  # all, if none are named
    at_import: bool | None = None  # only what takes effect then, or only what does not
    seed: int = 1
    sample: int | None = None  # None: all
    survey: Path | None = None  # what reaches what, from an earlier run or for a later one
    known: Mapping[str, Ended] = field(default_factory=dict)  # what need not be tried again

    def sources(self) -> list[Source]:
        folder = self.root.joinpath(*self.package.split("."))
        paths = sorted(path for path in folder.glob("*.py") if path.stem != "__init__")
        return [Source.of(f"{self.package}.{path.stem}", path) for path in paths]


def run(plan: Plan, *, tell: Callable[[str], None], keep: Callable[[str, Ended], None]) -> dict[str, Ended]:
    """What became of every mutant, by name; `keep` hears of each at once."""
    deadline = time.monotonic() + plan.seconds

    def left() -> float:
        return max(1.0, deadline - time.monotonic())

    every = plan.sources()
    sources = {source.module: source for source in every}
    enums = enums_of(every)
    wanted = [
        mutant
        for source in every
        if not plan.modules or source.module.rpartition(".")[2] in plan.modules
        for mutant in mutants_of(source, enums)
        if plan.at_import in (None, mutant.function is None)
    ]
    Random(plan.seed).shuffle(wanted)  # so that any beginning of a run is a fair sample
    wanted = wanted[: plan.sample]
    mutants = [mutant for mutant in wanted if mutant.name not in plan.known]
    tests, at_import, libraries = _survey(plan, every, left())
    tell(f"{len(mutants)} mutants, {len(tests)} tests")
    results: dict[str, Ended] = {}

    def ended(mutant: Mutant, outcome: Ended) -> None:
        results[mutant.name] = outcome
        keep(mutant.name, outcome)
        if len(results) % 250 == 0:
            tell(f"{len(results)} tried, {left():.0f} s left")

    reach = Reach(tests)
    inside: dict[str, tuple[Mutant, list[Test]]] = {}
    outside: list[Mutant] = []
    for mutant in mutants:
        path = str(sources[mutant.module].path)
        reaching = reach.of(path, mutant.lines)
        if mutant.function is None:
            outside.append(mutant)
        elif reaching:
            inside[mutant.name] = mutant, reaching
        elif any(line in mutant.lines for line in at_import.get(path, ())):
            outside.append(mutant)
        else:
            ended(mutant, Ended(Outcome.UNREACHED))

    def zygote(telling: TextIO) -> None:
        plugin = Zygote(plan.package, sources, list(inside.values()), telling, plan.spare)
        if _pytest(plan, plugin):
            raise RuntimeError("the tests cannot be collected")

    for line in told(zygote, seconds=left()):
        name, outcome, by = json.loads(line)
        mutant, _ = inside[name]
        path = str(sources[mutant.module].path)
        built = any(at in mutant.lines for at in at_import.get(path, ()))
        if outcome == Outcome.AFRESH or (outcome == Outcome.SURVIVED and built):
            outside.append(mutant)
        else:
            ended(mutant, Ended(Outcome(outcome), by))
    tell(f"{len(results)} tried, {len(outside)} to be tried afresh")
    import_all(libraries)
    rounds = Rounds(plan.root, tests, reach)
    with TemporaryDirectory() as scratch:
        where = Afresh(plan.root, Path(scratch, "tests"), plan.spare)
        for mutant in outside:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not done within {plan.seconds:.0f} s")
            source = sources[mutant.module]
            ended(mutant, try_afresh(source, mutant, rounds.of(source, mutant), where))
    every_one = {**plan.known, **results}
    return {mutant.name: every_one[mutant.name] for mutant in wanted}


def _survey(
    plan: Plan, sources: list[Source], seconds: float
) -> tuple[list[Test], dict[str, list[int]], list[str]]:
    """The tests with what they reach; the lines that run while they are collected; the libraries."""
    paths = frozenset(str(source.path) for source in sources)

    def work(telling: TextIO) -> None:
        plugin = Survey(plan.package, paths, plan.tests)
        with traced(paths) as at_import:
            ended = _pytest(plan, plugin)
        if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):  # a wider one may fail here
            raise RuntimeError(f"pytest ended with {ended}: see above")
        libraries = [name for name, module in sys.modules.items() if _is_library(name, module)]
        lines = {path: sorted(found) for path, found in at_import.items()}
        json.dump([plugin.tests, lines, libraries], telling)

    if plan.survey is not None and plan.survey.exists():
        answer = plan.survey.read_text()
    else:
        (answer,) = told(work, seconds=seconds)
        if plan.survey is not None:
            plan.survey.write_text(answer)
    tests, at_import, libraries = json.loads(answer)
    return [Test(*each) for each in tests], at_import, libraries


def _is_library(name: str, module: ModuleType) -> bool:
    known = name.partition(".")[0] in sys.stdlib_module_names
    return known or "site-packages" in (getattr(module, "__file__", None) or "")


def _pytest(plan: Plan, plugin: object) -> int:
    paths = [str(plan.root / tests) for tests in (*plan.tests, *plan.wider)]
    with TemporaryDirectory() as scratch:
        options = [*OPTIONS, f"--rootdir={plan.root}", f"--basetemp={scratch}/tests"]
        return int(pytest.main([*options, *paths], plugins=[plugin]))
