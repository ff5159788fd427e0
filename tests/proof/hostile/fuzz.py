"""A fuzzer for as long as you like: `python -m tests.proof.hostile.fuzz canonical --seconds 600`.

With atheris (`pip install -e '.[fuzz]'`), which sees which lines an input reaches, or else with Hypothesis.
What is found is written to the directory that `--found` names, and told; the status is then not 0. Beside
this file, in found/, are inputs that found something once: tests give them to the same functions.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TARGETS = ("canonical", "listener")
FOUND = Path(__file__).with_name("found")
# An input over this length finds nothing that a shorter one does not.
LONGEST = 4096


class Fuzzed(NamedTuple):
    tool: str
    runs: int
    seconds: int
    found: int
    told: str


def target(name: str) -> Any:
    return importlib.import_module(f"tests.proof.hostile.fuzz_{name}")


def inputs(seeds: Sequence[bytes], words: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Seeds with a few places cut out, put in, or changed; and bytes as they come."""
    piece = st.one_of(st.sampled_from([*words, b""]), st.binary(max_size=4))
    edit = st.tuples(st.integers(0, LONGEST), st.integers(0, 8), piece)
    edited = st.builds(
        _edited, st.sampled_from(list(seeds)), st.lists(edit, max_size=5), st.binary(max_size=2)
    )
    return st.one_of(edited, st.binary(max_size=64))


def _edited(seed: bytes, edits: list[tuple[int, int, bytes]], chosen: bytes) -> bytes:
    data = bytearray(seed)
    for at, size, piece in edits:
        at %= len(data) + 1
        data[at : at + size] = piece
    return chosen + bytes(data[len(chosen) :])


def with_atheris(
    name: str, seconds: int, found: Path, *, environment: dict[str, str] | None = None
) -> Fuzzed:
    """In a process of its own: it ends with one."""
    command = [sys.executable, "-m", __name__, name, "--seconds", str(seconds), "--found", str(found)]
    began = time.monotonic()
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    runs = re.findall(r"^Done (\d+) runs", ended.stderr, re.MULTILINE) or re.findall(
        r"^#(\d+)\t", ended.stderr
    )
    told = "" if ended.returncode == 0 else ended.stdout[-4000:] + ended.stderr[-4000:]
    return Fuzzed(
        "atheris",
        int(runs[-1]) if runs else 0,
        int(time.monotonic() - began),
        int(ended.returncode != 0),
        told,
    )


def with_hypothesis(name: str, runs: int) -> Fuzzed:
    module, made = target(name), 0

    @settings(max_examples=runs, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(inputs(module.SEEDS, module.WORDS))
    def tried(data: bytes) -> None:
        nonlocal made
        made += 1
        module.one_input(data)

    began = time.monotonic()
    told = ""
    try:
        tried()
    except AssertionError as error:
        told = "\n".join([str(error), *getattr(error, "__notes__", ())])
    return Fuzzed("Hypothesis", made, int(time.monotonic() - began), int(bool(told)), told)


def has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


def _drive(name: str, seconds: int, found: Path) -> None:
    """Does not return: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["proxy", "json"]):
        module = target(name)
    one_input: Callable[[bytes], None] = module.one_input
    with tempfile.TemporaryDirectory() as place:
        seeds, words = Path(place) / "seeds", Path(place) / "words"
        seeds.mkdir()
        for seed in (*module.SEEDS, *(one.read_bytes() for one in sorted(FOUND.glob(f"{name}-*")))):
            (seeds / sha256(seed).hexdigest()).write_bytes(seed)
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in module.WORDS))
        options = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-dict={words}", "-timeout=30"]
        atheris.Setup([sys.argv[0], str(seeds), *options, f"-artifact_prefix={found}/{name}-"], one_input)
        atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    by = parser.add_mutually_exclusive_group()
    by.add_argument("--seconds", type=int, help="with atheris; 600")
    by.add_argument("--runs", type=int, help="with Hypothesis; 100000")
    parser.add_argument("--found", type=Path, default=Path())
    given_ = parser.parse_args()
    if has_atheris() and given_.runs is None:
        _drive(given_.target, given_.seconds or 600, given_.found)
    if given_.seconds is not None:
        parser.error("--seconds needs atheris (pip install atheris); without it: --runs")
    fuzzed = with_hypothesis(given_.target, given_.runs or 100_000)
    print(fuzzed)
    return fuzzed.found


if __name__ == "__main__":
    sys.exit(main())
