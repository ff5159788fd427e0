"""The machinery on a module with known mutants: the dead are dead, a survivor is found and fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.mutation.__main__ import read
from tests.proof.mutation.forks import Ended, Outcome
from tests.proof.mutation.mutants import Source, enums_of, mutants_of
from tests.proof.mutation.verdict import DEAD, judge, listed_in

ROOT = Path(__file__).parents[3]
MODULE = '''"""Small."""

from __future__ import annotations

from functools import lru_cache

TAXED = {"wine": 20}


@lru_cache
def price(what: str, net: int) -> int:
    """Of one."""
    return net + TAXED.get(what, 0)


def countdown(n: int) -> int:
    while n > 0:
        n -= 1
    return n


def unused(n: int) -> bool:
    return n < 3
'''
TESTS = """
from small.prices import countdown, price


def test_price():
    assert price("wine", 5) == 25
    assert price("bread", 5) == 5


def test_countdown():
    assert countdown(3) == 0
"""
PRICE = "prices.price: net + TAXED.get(what, 0) → -"
ROW = "prices.TAXED: {\"wine\": 20} → without `'wine'`"
ENDLESS = "prices.countdown: n -= 1 → removed"
UNREACHED = "prices.unused: n < 3 → <="


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small")
    for name, text in {
        "small/__init__.py": "",
        "small/prices.py": MODULE,
        "checks/test_prices.py": TESTS,
    }.items():
        root.joinpath(name).parent.mkdir(exist_ok=True)
        root.joinpath(name).write_text(text)
    return root


def run(small: Path, listed: str) -> tuple[int, str, dict[str, Ended]]:
    """Its status, what it printed, and what became of each mutant."""
    (small / "survivors.toml").write_text(listed)
    given = {"root": small, "package": "small", "tests": "checks", "list": small / "survivors.toml",
             "results": small / "results", "least": 50, "spare": 0.3}  # fmt: skip
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.proof.mutation",
            *(f"--{name}={value}" for name, value in given.items()),
        ],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{small}", "SEMEL_REPORT": ""},
        cwd=small,
        capture_output=True,
        text=True,
    )
    return ran.returncode, ran.stdout + ran.stderr, read(small / "results")


def test_the_killed_are_killed_and_an_unlisted_survivor_fails_the_run(small: Path) -> None:
    """In a function, in a table, by a loop without end; and what no test looks at is told by name."""
    status, said, results = run(small, "")
    assert results[PRICE] == (Outcome.KILLED, "checks/test_prices.py::test_price"), said
    assert results[ROW] == (Outcome.KILLED, "checks/test_prices.py::test_price")
    assert results[ENDLESS].outcome is Outcome.TIMEOUT
    assert results[UNREACHED].outcome is Outcome.UNREACHED
    assert results["prices.unused: 3 → 4"].outcome is Outcome.UNREACHED
    assert f'survived: [prices] "{UNREACHED.removeprefix("prices.")}" = "open: unreached"' in said
    assert status == 1
    # With a reason for each it would have passed.
    survivors = [name for name, ended in results.items() if ended.outcome not in DEAD]
    assert judge(results, dict.fromkeys(survivors, "elsewhere: not sold"), least=50).passed


def test_a_low_score_fails_whatever_is_listed() -> None:
    """A list of reasons is no way around it; what is listed and dies is told."""
    results = {"a.f: 1 → 2": Ended(Outcome.SURVIVED), "a.f: 1 → 0": Ended(Outcome.KILLED, "t")}
    listed = {"a.f: 1 → 2": "equivalent: both", "a.f: 1 → 0": "speed: not so"}
    verdict = judge(results, listed, least=85)
    assert (verdict.passed, verdict.unlisted, verdict.stale) == (False, [], ["a.f: 1 → 0"])
    assert (verdict.figures["score"], verdict.figures["score_without_equivalents"]) == (50.0, 100.0)
    assert judge(results, listed, least=50).passed
    assert not judge(results, {}, least=50).passed


def test_every_reason_is_of_a_kind(tmp_path: Path) -> None:
    """The committed list can be read; one without a kind cannot."""
    assert listed_in(Path(__file__).parent / "survivors.toml")
    path = tmp_path / "list.toml"
    path.write_text("[decide]\n'f: 1 → 2' = 'because'")
    with pytest.raises(ValueError, match="because"):
        listed_in(path)


def test_names_outlive_line_numbers_and_are_not_shared(tmp_path: Path) -> None:
    """Two like changes of one function are told apart; moving the function down renames nothing."""
    text = "def f(a, b):\n    return a + 1 if a == 1 else b + 1\n"
    names = []
    for before in ("", "# a comment\n\n"):
        path = tmp_path / "m.py"
        path.write_text(before + text)
        source = Source.of("p.m", path)
        names.append([mutant.name for mutant in mutants_of(source, enums_of([source]))])
    assert names[0] == names[1]
    assert len(set(names[0])) == len(names[0])
    assert {"m.f: a == 1 → !=", "m.f: 1 → 2", "m.f: 1 → 2 (2)", "m.f: 1 → 2 (3)"} <= set(names[0])


def test_messages_annotations_and_asserts_are_left_alone(tmp_path: Path) -> None:
    """What is for people or for mypy is not the tests' to hold."""
    path = tmp_path / "m.py"
    path.write_text(
        'def f(a: "x") -> "y":\n    """Doc."""\n    assert a == 1\n    raise ValueError("no such thing")\n'
    )
    source = Source.of("p.m", path)
    assert [m.name for m in mutants_of(source, {})] == ['m.f: raise ValueError("no such thing") → removed']
