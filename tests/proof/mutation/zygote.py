"""One process that has collected the tests, and forks for every mutant of a function.

The child gives the running function the mutant's code: every name that was imported from the module, every
table that holds the function, sees it. So nothing is imported or collected again, and a mutant that a
quick test kills costs milliseconds.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import TextIO

import pytest

from tests.proof.mutation.forks import Said, limit, tried
from tests.proof.mutation.mutants import Function, Mutant, Source
from tests.proof.mutation.reached import Test, caches, prepare

OPTIONS = ("-c", "/dev/null", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:logging",
           "-p", "no:terminalreporter", "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto",
           "-o", "asyncio_default_fixture_loop_scope=function",
           "-W", "ignore::pytest.PytestUnknownMarkWarning")  # fmt: skip
COLLECTING = 20.0  # seconds


def limits(tests: Iterable[Test], spare: float) -> dict[str, float]:
    """What each may take: five times what it took without a mutant, and something to spare."""
    return {test.node: spare + 5 * test.seconds for test in tests}


class Failing:
    """A plugin: the first test that fails ends the process, before pytest tells why at length."""

    def __init__(self, said: Said, limits: Mapping[str, float]) -> None:
        self._said = said
        self._limits = limits

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        limit(self._limits[item.nodeid])
        yield from self._watched(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        yield from self._watched(item)

    def _watched(self, item: pytest.Item) -> Iterator[None]:
        try:
            yield
        except pytest.skip.Exception:
            raise
        except BaseException:
            self._said.killed_by(item.nodeid)


class Functions:
    """All functions of this process, by where their code is."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int], list[FunctionType]] = {}
        for each in gc.get_objects():
            if isinstance(each, FunctionType):
                code = each.__code__
                key = (code.co_filename, code.co_qualname, code.co_firstlineno)
                self._found.setdefault(key, []).append(each)

    def give(self, module: CodeType, function: Function) -> bool:
        """The code of `function` in `module` to those that run; False where that cannot be done."""
        code = _inner(module, function)
        found = self._found.get((module.co_filename, *function), []) if code is not None else []
        if code is None or any(len(each.__code__.co_freevars) != len(code.co_freevars) for each in found):
            return False
        for each in found:
            each.__code__ = code
        return bool(found)


def _inner(code: CodeType, function: Function) -> CodeType | None:
    if (code.co_qualname, code.co_firstlineno) == function:
        return code
    inner = (_inner(each, function) for each in code.co_consts if isinstance(each, CodeType))
    return next((each for each in inner if each is not None), None)


class Zygote:
    """A pytest plugin that tries mutants instead of running the tests once."""

    def __init__(
        self,
        package: str,
        sources: Mapping[str, Source],
        mutants: Sequence[tuple[Mutant, list[Test]]],
        telling: TextIO,
        spare: float,
    ) -> None:
        self._package = package
        self._sources = sources
        self._mutants = mutants
        self._telling = telling
        self._spare = spare

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        prepare(items)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        functions, emptied = Functions(), caches(self._package)
        gc.freeze()
        for mutant, reaching in self._mutants:

            def work(said: Said, mutant: Mutant = mutant, reaching: list[Test] = reaching) -> None:
                code = self._sources[mutant.module].code(mutant.change)
                if mutant.function is None or not functions.give(code, mutant.function):
                    said.cannot()
                session.config.pluginmanager.register(Failing(said, limits(reaching, self._spare)))
                for test in reaching:
                    for empty in emptied:
                        empty()
                    session.config.hook.pytest_runtest_protocol(item=items[test.node], nextitem=None)
                said.survived()

            ended = tried(work, seconds=COLLECTING)
            self._telling.write(json.dumps([mutant.name, ended.outcome, ended.by]) + "\n")
            self._telling.flush()
        return True
