"""The fuzzers, for a moment; in a soak for TEST_FUZZ_SECONDS. What they found once stays found."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.counts import SOAK
from tests.process import ROOT
from tests.proof.hostile import fuzz_listener
from tests.proof.hostile.fuzz import (
    FOUND,
    TARGETS,
    Fuzzed,
    has_atheris,
    target,
    with_atheris,
    with_hypothesis,
)
from tests.proof.report import report

SECONDS = int(os.environ.get("TEST_FUZZ_SECONDS") or 300)
# With Hypothesis: in `make test`, in a soak.
RUNS = {"canonical": (800, 100_000), "listener": (1000, 20_000)}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", TARGETS)
def test_fuzzing_finds_nothing(name: str, tmp_path: Path) -> None:
    """Coverage guided in a soak, where atheris is installed."""
    fuzzed = _fuzzed(name, tmp_path)
    tool, runs, seconds, found, _ = fuzzed
    report("hostile", f"fuzz {name}", {"tool": tool, "runs": runs, "seconds": seconds, "found": found})
    assert not fuzzed.found, fuzzed.told
    assert fuzzed.runs > 0


def _fuzzed(name: str, found: Path) -> Fuzzed:
    if SOAK and has_atheris():
        return with_atheris(name, SECONDS, found, environment={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        return with_hypothesis(name, RUNS[name][SOAK])
    finally:
        fuzz_listener.close()


@pytest.mark.parametrize("file", sorted(FOUND.iterdir()), ids=lambda file: file.name)
def test_what_was_found_once(file: Path) -> None:
    """Inputs that broke semel, or the reading that it is held against."""
    name = file.name.partition("-")[0]
    assert re.fullmatch(r"[a-z-]+", file.name)
    try:
        target(name).one_input(file.read_bytes())
    finally:
        fuzz_listener.close()
