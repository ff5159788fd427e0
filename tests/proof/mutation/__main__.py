"""`python -m tests.proof.mutation`: every mutant of proxy/core against its tests, bounded in time.

    --module decide     only this one; may be given more than once. Survivors are told, the list is not judged
    --results FILE      what becomes of every mutant, a line of JSON for each, appended
    --resume            only what FILE does not know; the verdict is about all of it
    --again             only what FILE does not know as dead; the same
    --sample N          so many, chosen at random with --seed (1); a score of these alone, and so it is told
    --survey FILE       which tests reach what, as an earlier run found out; written if it is not there
    --only import       only what takes effect at import; `function`: only what does not
    --root, --package, --tests, --list, --least, --spare      for another package than proxy.core

A survivor is told as its module, then the line that survivors.toml needs for it, but for its reason. It fails
when a survivor is not in survivors.toml, or the score is below 85 %.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from tests.proof.mutation.forks import Ended, Outcome
from tests.proof.mutation.run import Plan, run
from tests.proof.mutation.verdict import DEAD, LEAST, judge, listed_in
from tests.proof.report import Figure, report

ROOT = Path(__file__).parents[3]
LIST = Path(__file__).parent / "survivors.toml"
PACKAGE = "proxy.core"
SECONDS = 45 * 60.0
SPARE = 3.0  # seconds that a test may take beyond five times what it took without a mutant
NEAR = ("tests/core",)
# They run in this process alone, and reach the core through what uses it.
RUNS = ("attempts_at_once", "budgets_in_runs", "crash_in_runs", "divergence", "doubt_in_runs", "expiry",
        "forks", "frontier", "not_recorded", "other_words", "pending", "pinned", "replaying",
        "retry_evidence", "same_in_runs", "shared_in_runs", "story", "two_processes", "uses",
        "without_attempt")  # fmt: skip
WIDER = (
    "tests/exchange",
    *(f"tests/runs/test_{name}.py" for name in RUNS),
    *(f"tests/policies/test_{name}.py" for name in ("extends", "policy_file", "quantities")),
    "tests/presets/test_rules.py",
    "tests/stores/test_codec.py",
    "tests/test_recovery.py",
    "tests/front/test_again.py",
    "tests/front/test_mcp.py",
    "tests/http/test_suited.py",
    "tests/admin/test_views.py",
    "tests/cli/test_explain_differences.py",
    "tests/notifying/test_event.py",
    "tests/forward/test_hosts.py",
    "tests/http/test_hop_by_hop.py",
)
# Sets in the same order, random tests with the same seed: a mutant that dies here dies everywhere. Compiled
# tests are kept: thousands of processes import them.
SETTLED = {
    "PYTHONHASHSEED": "0",
    "TEST_SEED": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "mutation"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.mutation", description=__doc__)
    parser.add_argument("--module", action="append", default=[])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--results", type=Path, default=Path(os.devnull))
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--survey", type=Path)
    parser.add_argument("--only", choices=["import", "function"])
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--package", default=PACKAGE)
    parser.add_argument("--tests", action="append")
    parser.add_argument("--list", type=Path, default=LIST)
    parser.add_argument("--least", type=float, default=LEAST)
    parser.add_argument("--spare", type=float, default=SPARE)
    given = parser.parse_args()
    known = read(given.results) if given.again or given.resume else {}
    if given.again:
        known = {name: ended for name, ended in known.items() if ended.outcome in DEAD}
    plan = Plan(
        root=given.root,
        package=given.package,
        modules=frozenset(given.module),
        tests=tuple(given.tests or NEAR),
        wider=() if given.tests else WIDER,
        known=known,
        seconds=SECONDS,
        survey=given.survey,
        seed=given.seed,
        sample=given.sample,
        at_import=None if given.only is None else given.only == "import",
        spare=given.spare,
    )
    begun = time.monotonic()
    with given.results.open("a" if given.again or given.resume else "w", buffering=1) as file:

        def keep(name: str, ended: Ended) -> None:
            file.write(json.dumps([name, *ended]) + "\n")

        results = run(plan, tell=lambda line: print(line, flush=True), keep=keep)
    verdict = judge(results, listed_in(given.list), least=given.least)
    for name in verdict.unlisted:
        module, _, rest = name.partition(".")
        outcome = results[name].outcome
        print(f'survived: [{module}] {json.dumps(rest, ensure_ascii=False)} = "open: {outcome}"')
    if given.module or given.only:
        print({key: value for key, value in verdict.figures.items() if key != "modules"})
        return 0
    for name in verdict.stale:
        print(f"listed, and no survivor: {name}")
    seconds = round(time.monotonic() - begun)
    name = given.package.rpartition(".")[2]
    sampled: dict[str, Figure] = {"sample": given.sample, "seed": given.seed} if given.sample else {}
    report(
        "mutation", name, {**sampled, **verdict.figures, "seconds": seconds, "tool": "tests.proof.mutation"}
    )
    print("passed" if verdict.passed else f"failed: {len(verdict.unlisted)} survivors without a reason")
    return 0 if verdict.passed else 1


def read(path: Path) -> dict[str, Ended]:
    """The last line of a name counts."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {name: Ended(Outcome(outcome), by) for name, outcome, by in rows}


def settled() -> bool:
    return all(os.environ.get(name) == value for name, value in SETTLED.items())


if __name__ == "__main__":
    if not settled():
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.proof.mutation", *sys.argv[1:]],
            os.environ | SETTLED,
        )
    sys.exit(main())
