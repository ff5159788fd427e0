"""One agent after another, until one succeeds, nobody wants another, or a signal says that it is enough.

One loop, one event at a time: a signal, a child that has changed, a pause that is over.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from proxy.cli.run_agent import Agent, Change, Ending
from proxy.cli.run_proxy import Proxy
from proxy.cli.run_signals import ENDING, Waiting, has_terminal, leads_session, must_be_handed_on
from proxy.cli.run_telling import Teller

LONGEST_PAUSE = 60.0


def pause_before(retry: int, chance: float) -> float:
    """1 s, 2 s, 4 s … 60 s, and up to a quarter more or less: many agents that failed together do not come
    back together. `chance` is from 0 to 1."""
    return min(2.0 ** min(retry - 1, 10), LONGEST_PAUSE) * (0.75 + chance / 2)


@dataclass(frozen=True, slots=True)
class Watched:
    ending: Ending
    told_to_end: bool  # by a signal to us, whatever the agent made of it


class Supervision:
    """`start` begins an attempt, and says which."""

    def __init__(
        self, signals: Waiting, proxy: Proxy, teller: Teller, start: Callable[[], tuple[str, Agent]]
    ) -> None:
        self._signals, self._proxy, self._teller, self._start = signals, proxy, teller, start
        self.attempts = 0
        self.attempt = ""

    def run(self, retries: int) -> Ending:
        while True:
            self.attempt, agent = self._start()
            self.attempts += 1
            watched = self._watch(agent)
            left = retries + 1 - self.attempts
            if watched.ending.is_success or watched.told_to_end or left <= 0:
                return watched.ending
            pause = pause_before(self.attempts, random.random())  # noqa: S311 (no secret)
            self._teller.warn(
                f"attempt {self.attempt}: the command {watched.ending}; the next attempt is in {pause:.1f} s "
                f"({left} left)."
            )
            if (ended_by := self._rest(pause)) is not None:
                return Ending(signal=ended_by)

    def _watch(self, agent: Agent) -> Watched:
        told_to_end = False
        while True:
            due = self._proxy.tend(time.monotonic())
            # All that has happened: two changes may have come with one signal.
            change = agent.change()
            while change is not None:
                if isinstance(change, Ending):
                    return Watched(change, told_to_end)
                stopped = change is Change.STOPPED and has_terminal()
                change = _stop_with(agent) if stopped else agent.change()
            arrived = self._signals.wait(None if due is None else due - time.monotonic())
            if arrived is None:
                continue
            told_to_end = told_to_end or arrived.number in ENDING
            if must_be_handed_on(arrived, agent.pid, leads_session=leads_session()):
                agent.send(arrived.number)

    def _rest(self, pause: float) -> int | None:
        """The signal that ended it, if one did."""
        until = time.monotonic() + pause
        while (now := time.monotonic()) < until:
            due = self._proxy.tend(now)
            arrived = self._signals.wait(min(until, due or until) - now)
            if arrived is not None and arrived.number in ENDING:
                return int(arrived.number)
            if arrived is not None and arrived.number is signal.Signals.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)
        return None


def _stop_with(agent: Agent) -> Ending | Change | None:
    """The shell that started us must see a stopped job. Its `fg` continues the whole group; whoever continues
    us alone means the agent too. What became of the agent meanwhile: another Ctrl-Z may have come before our
    first step, or its end, and a change is told only once."""
    os.kill(os.getpid(), signal.SIGSTOP)
    change = agent.change()
    if change is None:  # it was not continued with us
        agent.send(signal.SIGCONT)
    return change
