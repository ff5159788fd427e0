"""The agent: a process in our group, with our terminal, files and limits, as if it had been started alone."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells and env(1) have them
_PR_SET_PDEATHSIG = 1


class NotStarted(Exception):
    """`status` is what a shell would end with."""

    def __init__(self, told: str, status: int) -> None:
        super().__init__(told)
        self.status = status


@dataclass(frozen=True, slots=True)
class Ending:
    """How the agent ended: with a status, or by a signal."""

    status: int = 0
    signal: int = 0

    @property
    def is_success(self) -> bool:
        return not self.status and not self.signal

    def __str__(self) -> str:
        if not self.signal:
            return f"ended with status {self.status}"
        try:
            return f"was killed by {signal.Signals(self.signal).name}"
        except ValueError:  # a real-time signal
            return f"was killed by signal {self.signal}"


class Change(Enum):
    STOPPED = "stopped"
    CONTINUED = "continued"


class Agent:
    """`mask` is the signal mask that we were started with: ours is no business of the agent's."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], mask: Iterable[int]) -> None:
        prctl = _prctl()
        parent = os.getpid()

        def in_the_child() -> None:
            if prctl is not None:
                # If we are killed, so is the agent: nobody would be there to give it its answers.
                prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != parent:  # killed before that took hold
                    os._exit(1)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        try:
            # Files that we were given are for the agent; ours close by themselves.
            self._process = subprocess.Popen(  # noqa: S603 (running it is what we are for)
                list(command), env=dict(environment), close_fds=False, preexec_fn=in_the_child
            )
        except OSError as error:
            raise _not_started(command[0], error) from None
        except ValueError:  # a zero byte, in the command or in the environment
            raise NotStarted("The command holds a zero byte, which no command can.", NOT_FOUND) from None
        self.pid = self._process.pid

    def change(self) -> Ending | Change | None:
        """What has become of it since the last time; None: nothing."""
        pid, raw = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        if pid == 0:
            return None
        if os.WIFSTOPPED(raw):
            return Change.STOPPED
        if os.WIFCONTINUED(raw):
            return Change.CONTINUED
        self._process.returncode = os.waitstatus_to_exitcode(raw)
        if os.WIFSIGNALED(raw):
            return Ending(signal=os.WTERMSIG(raw))
        return Ending(status=os.WEXITSTATUS(raw))

    def send(self, number: int) -> None:
        """It has not been waited for, so its id is still its own."""
        os.kill(self.pid, number)


def end_like(ending: Ending) -> int:
    """End as the agent ended. By the same signal, because whoever started us (a shell in a loop, make) looks
    at that; comes back with 128 and the signal where that cannot be done."""
    if not ending.signal:
        return ending.status
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if ending.signal not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(ending.signal, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [ending.signal])
    os.kill(os.getpid(), ending.signal)
    return 128 + ending.signal  # the first process of a container is not ended by its own signals


def _not_started(name: str, error: OSError) -> NotStarted:
    told = shlex.quote(name)
    if isinstance(error, FileNotFoundError):
        hint = "" if os.sep in name else " Is it on PATH?"
        return NotStarted(f"{told} is not found.{hint}", NOT_FOUND)
    if error.errno == errno.ENOEXEC:
        return NotStarted(f"{told} is no program. Does a script begin with #!?", NOT_EXECUTABLE)
    return NotStarted(f"{told} cannot be executed: {error.strerror}.", NOT_EXECUTABLE)


def _prctl() -> Any:  # noqa: ANN401 (a C function)
    """Loaded before the fork: afterwards nothing may be. None where there is no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "prctl", None)
