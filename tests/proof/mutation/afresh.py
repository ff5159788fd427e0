"""Mutants that take effect at import: tables, enums, defaults, and what a table is built with.

The child imports the modules and the tests after the mutant is in place; what others keep in the way of
libraries has been imported before the fork. Tests of files that name the module come first, in a child of
their own: most mutants end there.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import pytest

from tests.proof.mutation.forks import Ended, Outcome, Said, tried
from tests.proof.mutation.mutants import Mutant, Source
from tests.proof.mutation.reached import Test, prepare
from tests.proof.mutation.zygote import COLLECTING, OPTIONS, Failing, limits

NOT_COLLECTED = (
    pytest.ExitCode.INTERRUPTED,
    pytest.ExitCode.USAGE_ERROR,
    pytest.ExitCode.NO_TESTS_COLLECTED,
)


class _InItsPlace(MetaPathFinder, Loader):
    """Imports one module from given code."""

    def __init__(self, module: str, path: Path, code: CodeType) -> None:
        self._module = module
        self._path = path
        self._code = code

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = ModuleSpec(fullname, self, origin=str(self._path))
        spec.has_location = True
        return spec

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


class _Chosen:
    """A plugin: only these tests, the quickest first."""

    def __init__(self, tests: Iterable[Test]) -> None:
        self._seconds = {test.node: test.seconds for test in tests}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = [item for item in items if item.nodeid in self._seconds]
        known.sort(key=lambda item: self._seconds[item.nodeid])
        items[:] = known
        prepare(items)


def import_all(names: Iterable[str]) -> None:
    """What the tests import of others, so that no child does it again."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # whatever cannot be had alone, the child imports
            continue


class Afresh(NamedTuple):
    """Where it is done."""

    root: Path
    scratch: Path
    spare: float


def try_afresh(source: Source, mutant: Mutant, rounds: Sequence[list[Test]], where: Afresh) -> Ended:
    """Round after round, until one kills it."""
    code = source.code(mutant.change)
    ended = Ended(Outcome.UNREACHED)
    for tests in rounds:
        if tests and ended.outcome in (Outcome.UNREACHED, Outcome.SURVIVED):

            def work(said: Said, tests: list[Test] = tests) -> None:
                _run(said, source, code, tests, where)

            ended = tried(work, seconds=COLLECTING)
    return ended


def _run(said: Said, source: Source, code: CodeType, tests: list[Test], where: Afresh) -> None:
    sys.meta_path.insert(0, _InItsPlace(source.module, source.path, code))
    files = sorted({test.file for test in tests})
    options = [*OPTIONS, f"--rootdir={where.root}", f"--basetemp={where.scratch}"]
    if all(test.is_near for test in tests):
        options.append("--noconftest")  # they need no fixture of it, and it imports much
    plugins = [_Chosen(tests), Failing(said, limits(tests, where.spare))]
    ended = pytest.main([*options, *(str(where.root / file) for file in files)], plugins=plugins)
    if ended == pytest.ExitCode.OK:
        said.survived()
    if ended in NOT_COLLECTED:
        said.killed_by("collecting")
    raise RuntimeError(f"pytest ended with {ended}")
