"""A semel process under strace, and its trace as system calls with a beginning and an end."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.crash.scene import until


@cache
def _why_not() -> str:
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(
        ["strace", "-D", "-f", "-yy", "-o", "/dev/null", "true"], capture_output=True, check=False, timeout=30
    )
    return "" if tried.returncode == 0 and not tried.stderr else f"strace may not trace: {tried.stderr!r}"


def need_strace() -> None:
    if why := _why_not():
        pytest.skip(why)


def strace(trace: Path, *options: str) -> tuple[str, ...]:
    """A prefix for SemelProcess. With -D the process that is started is semel itself, so that signals reach
    it and nothing outlives it."""
    return ("strace", "-D", "-f", "-ttt", "-yy", "-s", "16384", "-o", str(trace), *options)


@dataclass(frozen=True, slots=True)
class SystemCall:
    """`began` and `ended` are positions in the trace: threads overlap, and only these tell what was first."""

    began: int
    ended: int
    name: str
    args: str
    result: str

    @property
    def worked(self) -> bool:
        return not self.result.startswith(("-1", "?"))


_WHOLE = re.compile(r"(\w+)\((.*)\)\s+= (.*)")
_UNFINISHED = re.compile(r"(\w+)\((.*) <unfinished \.\.\.>")
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)\)\s+= (.*)")


def parse(text: str) -> list[SystemCall]:
    """In the order in which they began. What never returned (the process was killed in it) is left out."""
    calls: list[SystemCall] = []
    open_: dict[str, tuple[int, str, str]] = {}
    for position, line in enumerate(text.splitlines()):
        thread, _, rest = line.split(maxsplit=2)
        if found := _RESUMED.fullmatch(rest):
            began, name, args = open_.pop(thread)
            assert name == found[1]
            calls.append(SystemCall(began, position, name, args + found[2], found[3]))
        elif found := _UNFINISHED.fullmatch(rest):
            open_[thread] = (position, found[1], found[2])
        elif found := _WHOLE.fullmatch(rest):
            calls.append(SystemCall(position, position, found[1], found[2], found[3]))
    return sorted(calls, key=lambda call: call.began)


async def finished(trace: Path, pid: int) -> str:
    """The trace, once strace has written the end of the process."""
    end = re.compile(rf"^{pid} +[0-9.]+ \+\+\+ (exited|killed)", re.MULTILINE)
    await until(lambda: end.search(trace.read_text()))
    return trace.read_text()
