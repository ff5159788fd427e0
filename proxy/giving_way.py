"""A thread whose work is done for many at a time, and goes before nobody.

The kernel lets a thread that wakes up take the core of one that is at work. Where writer and event loop share
a core, each is then interrupted by the other in the middle of its batch, for a handful of work: 6 to 8 per
cent of the time of a call made once. A thread of the batch class wakes up when there is a core for it, or
when the others wait themselves.
"""

from __future__ import annotations

import os
from contextlib import suppress


def give_way() -> None:
    """The calling thread, from now on. Nothing depends on it: not every system has it, or permits it."""
    _become("SCHED_BATCH")


def as_usual() -> None:
    """The calling thread, from now on: a thread begins in the class of the one that started it."""
    _become("SCHED_OTHER")


def _become(name: str) -> None:
    kind = getattr(os, name, None)
    if kind is not None:
        with suppress(OSError):
            os.sched_setscheduler(0, kind, os.sched_param(0))
