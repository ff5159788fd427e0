"""The bound on memory can fail: what a process takes for a moment is seen after it was given back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.proof.hostile.memory import Marked
from tests.proof.hostile.scene import MIB

TAKEN = 64 * MIB
# Takes and gives back as many bytes as a line says; says when it is done.
TAKER = """
import sys
print("there", flush=True)
for line in sys.stdin:
    taken = b"x" * int(line)
    del taken
    print("given back", flush=True)
"""
# The same one process further down: what is measured has a child that does it.
ABOVE = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        yield process


def take(process: subprocess.Popen[str], size: int) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{size}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "given back\n"


@pytest.mark.parametrize("arguments", [(TAKER,), (ABOVE, TAKER)], ids=["itself", "a child"])
def test_what_was_given_back_counts(arguments: tuple[str, ...]) -> None:
    """In the process itself, and in one below it."""
    with running(*arguments) as process:
        marked = Marked.now(process.pid)
        assert marked.growth() < TAKEN // 8
        take(process, TAKEN)
        assert TAKEN * 7 // 8 < marked.growth() < TAKEN * 9 // 8


def test_what_was_taken_before_does_not_hide_it() -> None:
    """A beginning that took as much for a moment: the highest is forgotten, where that is permitted."""
    with running(TAKER) as process:
        take(process, TAKEN)
        marked = Marked.now(process.pid)
        if marked.before[process.pid] > TAKEN:
            pytest.skip("this kernel does not let us forget it")
        take(process, TAKEN)
        assert marked.growth() > TAKEN * 7 // 8


def test_a_process_that_has_ended_has_no_figure() -> None:
    """Rather than a good one."""
    with running(TAKER) as process:
        marked = Marked.now(process.pid)
    with pytest.raises(ProcessLookupError):
        marked.growth()
