"""What a run says in the end: the score, and every survivor that nobody has given a reason for.

The list (survivors.toml) holds a table for every module, in it a line for every survivor: its name, and a
kind of reason with the reason itself. A survivor that is not in it fails the run, and so does a score below
the least. A line of the list that no mutant answers to, or whose mutant is killed by now, is told.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.proof.mutation.forks import Ended, Outcome
from tests.proof.report import Figure

LEAST = 85.0  # per cent
DEAD = frozenset({Outcome.KILLED, Outcome.TIMEOUT})
KINDS = {
    "equivalent": "nobody can tell it from the original: no input makes a difference",
    "speed": "the result is the same, only sooner or later, or with more or less memory",
    "text": "only what a person reads is worded otherwise",
    "guard": "a second lock on a door: what is checked cannot come here, by the types or an earlier check",
    "open": "no test holds it yet; what it is about is said",
    "elsewhere": "held by tests that this run does not run, or not for long enough",
}


class Verdict(NamedTuple):
    figures: dict[str, Figure]
    unlisted: list[str]  # survivors without a reason
    stale: list[str]  # listed, and no survivor
    passed: bool


def listed_in(path: Path) -> dict[str, str]:
    """By name: `kind: reason`."""
    found = {}
    for module, rows in tomllib.loads(path.read_text()).items():
        for name, reason in rows.items():
            kind = reason.partition(":")[0]
            if kind not in KINDS:
                raise ValueError(f"{module}.{name}: {kind!r} is not among {', '.join(KINDS)}")
            found[f"{module}.{name}"] = reason
    return found


def judge(results: Mapping[str, Ended], listed: Mapping[str, str], *, least: float = LEAST) -> Verdict:
    """`results` by name, as `module.place: change`."""
    outcomes = Counter(ended.outcome for ended in results.values())
    survivors = [name for name, ended in results.items() if ended.outcome not in DEAD]
    dead = len(results) - len(survivors)
    equivalent = sum(listed.get(name, "").startswith("equivalent:") for name in survivors)
    score = _percent(dead, len(results))
    unlisted = [name for name in survivors if name not in listed]
    return Verdict(
        figures={
            "mutants": len(results),
            "killed": outcomes[Outcome.KILLED],
            "timeouts": outcomes[Outcome.TIMEOUT],
            "survived": len(survivors),
            "unreached": outcomes[Outcome.UNREACHED],
            "listed": len(survivors) - len(unlisted),
            "equivalent": equivalent,
            "score": score,
            "score_without_equivalents": _percent(dead, len(results) - equivalent),
            "modules": _by_module(results),
        },
        unlisted=unlisted,
        stale=[name for name in listed if name not in survivors],
        passed=not unlisted and score >= least,
    )


def _by_module(results: Mapping[str, Ended]) -> dict[str, float]:
    every = Counter(name.partition(".")[0] for name in results)
    dead = Counter(name.partition(".")[0] for name, ended in results.items() if ended.outcome in DEAD)
    return {module: _percent(dead[module], of) for module, of in sorted(every.items())}


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 100.0
