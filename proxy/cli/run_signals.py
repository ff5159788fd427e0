"""Signals to `semel run`, waited for one at a time, and which of them the agent must be given.

The agent is in our process group, as it would be without us. What the terminal sends (Ctrl-C, Ctrl-Z, a new
window size) goes to the whole group, so the agent has it already, and giving it again would look like a
second Ctrl-C. What a process sends to us alone is handed on. The two are told apart by who sent it: the
kernel or a process. A process that signals the whole group gives the agent the signal twice; that cannot be
seen.

All of them are blocked and fetched, never handled in between: no step of ours is interrupted half way.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from signal import Signals
from types import FrameType, TracebackType
from typing import Self

# Whoever sends one of these wants an end: no further attempt is made.
ENDING = frozenset({Signals.SIGHUP, Signals.SIGINT, Signals.SIGQUIT, Signals.SIGTERM})
HANDED_ON = ENDING | {
    Signals.SIGUSR1, Signals.SIGUSR2, Signals.SIGTSTP, Signals.SIGCONT, Signals.SIGWINCH,
}  # fmt: skip
# A child has changed; the proxy's log has something to read.
OWN = frozenset({Signals.SIGCHLD, Signals.SIGIO})


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    number: Signals
    by_kernel: bool = False  # mostly: by the terminal
    sender: int = 0  # process id; 0: not known


def must_be_handed_on(arrived: Arrived, agent: int, *, leads_session: bool) -> bool:
    """Whether the agent has not been given it by whoever gave it to us."""
    if arrived.number not in HANDED_ON or arrived.sender == agent:
        return False  # an agent that signals its whole group has us in it
    if not arrived.by_kernel:
        return True
    # When a terminal goes away, the kernel tells the leader of its session and nobody else.
    return arrived.number is Signals.SIGHUP and leads_session


class Waiting:
    """`with Waiting() as signals:`; what is ignored (nohup) stays ignored, for the agent too."""

    def __init__(self) -> None:
        wanted = HANDED_ON | OWN
        self.numbers = frozenset(
            number for number in wanted if number in OWN or signal.getsignal(number) is not signal.SIG_IGN
        )
        self.mask_before: Iterable[int] = ()

    def __enter__(self) -> Self:
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, self.numbers)
        # Some systems drop a signal that is blocked when by default nothing would happen on it.
        self._before = {number: signal.signal(number, _nothing) for number in self.numbers}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while _pending(self.numbers):  # ours to answer, and answered: not to end us afterwards
            self.wait(0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)

    def wait(self, timeout: float | None) -> Arrived | None:
        """The next signal; None after `timeout` seconds without one."""
        if hasattr(signal, "sigtimedwait"):
            return self._wait_and_see_who(timeout)
        return self._wait_and_guess(timeout)  # pragma: no cover (macOS)

    def _wait_and_see_who(self, timeout: float | None) -> Arrived | None:
        # The call wants a number; and it is asked again, so how large it is does not matter.
        found = signal.sigtimedwait(self.numbers, 3600.0 if timeout is None else max(0.0, timeout))
        if found is None:
            return None
        return Arrived(number=Signals(found.si_signo), by_kernel=found.si_code > 0, sender=found.si_pid)

    def _wait_and_guess(self, timeout: float | None) -> Arrived | None:
        """Where the sender is not told: in the foreground of a terminal, a terminal's signal is its own."""
        until = None if timeout is None else time.monotonic() + timeout
        while not _pending(self.numbers):
            if until is not None and time.monotonic() >= until:
                return None
            time.sleep(0.02)  # there is no wait with a limit here
        number = Signals(signal.sigwait(self.numbers))
        of_terminal = {Signals.SIGINT, Signals.SIGQUIT, Signals.SIGTSTP, Signals.SIGWINCH}
        return Arrived(number=number, by_kernel=number in of_terminal and in_foreground())


def _pending(numbers: Iterable[int]) -> bool:
    return bool(signal.sigpending() & set(numbers))


def _nothing(number: int, frame: FrameType | None) -> None:
    """Never called: the signal is blocked."""


def has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def leads_session() -> bool:
    return os.getsid(0) == os.getpid()
