"""Which test reaches which lines of the modules under test, and how long it takes: found out by running all.

Every test is traced on its own, with caches emptied before it: a line that only the first of two tests runs
because the second gets a remembered result is reached by both.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from operator import itemgetter
from types import FrameType
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, is_hypothesis_test, settings

FEW = 3
EXAMPLES = 40  # of a property, for one mutant: the same ones every time


class Test(NamedTuple):
    node: str
    seconds: float  # of processor time, traced
    lines: dict[str, list[int]]  # by path of the module
    is_near: bool  # of those that are tried first, and need no conftest

    @property
    def file(self) -> str:
        return self.node.partition("::")[0]


# How much of all near tests, and of all others, is run for one mutant, by time. Shares and not seconds: what
# is left out does not depend on the machine.
NEAR, WIDE = 1 / 6, 1 / 14


class Reach:
    """The tests by what they reach, and those of them that a mutant meets."""

    def __init__(self, tests: Sequence[Test]) -> None:
        self._tests = tests
        self._near = NEAR * sum(test.seconds for test in tests if test.is_near)
        self._wide = WIDE * sum(test.seconds for test in tests if not test.is_near)
        self._at: dict[tuple[str, int], list[int]] = {}
        for n, test in enumerate(tests):
            for path, lines in test.lines.items():
                for line in lines:
                    self._at.setdefault((path, line), []).append(n)

    def of(self, path: str, lines: range) -> list[Test]:
        found = {n for line in lines for n in self._at.get((path, line), ())}
        return self.chosen([self._tests[n] for n in found])

    def chosen(self, tests: Iterable[Test]) -> list[Test]:
        """Those that are near, the quickest first; then others, from every file one before a second from any:
        tests of one file see much the same. Of both as many as there is time for: a mutant that lives so long
        is a survivor, though some slow test might have seen it."""
        ordered = sorted(tests, key=lambda test: test.seconds)
        ranks: Counter[str] = Counter()
        ranked = []
        for test in ordered:
            if not test.is_near:
                ranked.append((ranks[test.file], test.seconds, test))
                ranks[test.file] += 1
        far = [test for _, _, test in sorted(ranked, key=itemgetter(0, 1))]
        return [*_within([test for test in ordered if test.is_near], self._near), *_within(far, self._wide)]


def _within(tests: list[Test], seconds: float) -> list[Test]:
    """Of few tests all: there is time for those."""
    spent = list(accumulate(test.seconds for test in tests))
    return [test for n, test in enumerate(tests) if n < FEW or spent[n] < seconds]


TIMED = "linear_time"  # in the names of tests that look at the clock, which is slow here
ELSEWHERE = {"postgres", "redis", "embedded"}  # stores outside of the process


def prepare(items: list[pytest.Item]) -> None:
    """Tests that run in this process alone and do not judge by the clock, each with few examples."""
    items[:] = [item for item in items if _is_in_process(item) and TIMED not in item.name]
    with_few_examples(items)


def _is_in_process(item: pytest.Item) -> bool:
    params: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    return not any(isinstance(value, str) and value in ELSEWHERE for value in params.values())


def with_few_examples(items: list[pytest.Item]) -> None:
    """Always the same ones, and a failure is not made smaller: that it fails is all we ask."""
    for item in items:
        test: Any = getattr(item, "obj", None)
        if is_hypothesis_test(test):
            meant = test._hypothesis_internal_use_settings
            test._hypothesis_internal_use_settings = settings(
                meant,
                max_examples=min(meant.max_examples, EXAMPLES),
                derandomize=True,
                database=None,
                phases=[Phase.explicit, Phase.generate],
            )


def caches(package: str) -> list[Callable[[], None]]:
    """What empties each lru_cache of a package."""
    found = [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]
    return [each.cache_clear for each in found if str(each.__module__).startswith(f"{package}.")]


@contextmanager
def traced(paths: frozenset[str]) -> Iterator[dict[str, set[int]]]:
    """The lines that run meanwhile, by path."""
    found: dict[str, set[int]] = {path: set() for path in paths}

    def line(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            found[frame.f_code.co_filename].add(frame.f_lineno)
        return line

    def call(frame: FrameType, _event: str, _: object) -> Any:
        return line if frame.f_code.co_filename in found else None

    sys.settrace(call)
    try:
        yield found
    finally:
        sys.settrace(None)


class Survey:
    """A pytest plugin that runs every test once, and tells what it reached."""

    def __init__(self, package: str, paths: frozenset[str], near: tuple[str, ...]) -> None:
        self._package = package
        self._paths = paths
        self._near = near
        self._failed: set[str] = set()
        self.tests: list[Test] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        prepare(items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            raise RuntimeError(f"{report.nodeid} cannot be collected: {report.longreprtext}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid.startswith(self._near):
            raise RuntimeError(f"{report.nodeid} fails without a mutant: {report.longreprtext}")
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)  # of the collecting, which is over
        emptied = caches(self._package)
        for item in session.items:
            for empty in emptied:
                empty()
            begun = time.process_time()
            with traced(self._paths) as lines:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            seconds = time.process_time() - begun
            if item.nodeid in self._failed:
                continue  # a wider one that needs what is not here: it holds nothing
            ran = {path: sorted(found) for path, found in lines.items() if found}
            self.tests.append(Test(item.nodeid, seconds, ran, item.nodeid.startswith(self._near)))
        return True
