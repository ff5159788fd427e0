"""A child process for one piece of work: it says how it ended, and ends by itself when its time is over.

Limits are the kernel's timers with their default action, so that nothing a mutant does to the interpreter
(a loop in C included) outlives them: one of processor time, so that a busy machine makes no difference, and
one of the clock, for whoever waits for what never comes.
"""

from __future__ import annotations

import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple, NoReturn, TextIO

MEMORY = 4 << 30  # bytes; a mutant that collects without end fails instead of taking the machine with it
SAID = 4096  # bytes that a child may say; fewer than a pipe holds
SURVIVED, KILLED, CANNOT, BROKEN = 0, 1, 3, 4  # how a child ends


class Outcome(StrEnum):
    KILLED = "killed"
    TIMEOUT = "timeout"
    SURVIVED = "survived"
    UNREACHED = "unreached"  # no test runs the line
    AFRESH = "afresh"  # a running process cannot be given it


class Ended(NamedTuple):
    outcome: Outcome
    by: str = ""  # the test that failed


WAITING = 60.0  # seconds by the clock, of one test
TIMERS = {signal.SIGPROF, signal.SIGALRM}


def limit(seconds: float) -> None:
    """From now on; of processor time."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, max(WAITING, 10 * seconds))


def _settle_timers() -> None:
    for number in TIMERS:
        signal.signal(number, signal.SIG_DFL)


class Said:
    """How a child tells: the first failing test ends it."""

    def __init__(self, writing: int) -> None:
        self._writing = writing

    def killed_by(self, test: str) -> NoReturn:
        os.write(self._writing, test.encode()[:SAID])
        os._exit(KILLED)

    def survived(self) -> NoReturn:
        os._exit(SURVIVED)

    def cannot(self) -> NoReturn:
        os._exit(CANNOT)


def tried(work: Callable[[Said], None], *, seconds: float) -> Ended:
    """`work` in a child, which ends through `Said`. What else may come up in it is a defect of ours."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _settle_timers()
            limit(seconds)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            work(Said(writing))
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-SAID:])
        os._exit(BROKEN)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as file:
        by = file.read().decode(errors="replace")
    if os.WIFSIGNALED(status):
        died = os.WTERMSIG(status)
        return Ended(Outcome.TIMEOUT if died in TIMERS else Outcome.KILLED, by or f"signal {died}")
    match os.WEXITSTATUS(status):
        case 0:
            return Ended(Outcome.SURVIVED)
        case 1:
            return Ended(Outcome.KILLED, by)
        case 3:
            return Ended(Outcome.AFRESH)
        case code:
            raise RuntimeError(f"a child ended with {code}: {by}")


def told(work: Callable[[TextIO], None], *, seconds: float) -> Iterator[str]:
    """What `work`, in a child, writes, a line at a time. The child ends when its time is over."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            os.close(reading)
            _settle_timers()
            signal.setitimer(signal.ITIMER_REAL, seconds)
            with os.fdopen(writing, "w") as file:
                work(file)
            code = SURVIVED
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as lines:
        yield from lines
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        raise TimeoutError(f"not done within {seconds:.0f} s")
    if status:
        raise RuntimeError(f"a child ended with {os.waitstatus_to_exitcode(status)}")
