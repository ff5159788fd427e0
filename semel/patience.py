"""How long something is tried again: a limit in all, and a shorter one while semel cannot be reached at all.

By the monotonic clock; every pause ends at once when the call is given up.
"""

from __future__ import annotations

from threading import Event
from time import monotonic

# A proxy that restarts is back by then; an address at which nobody listens is told to a person soon.
UNREACHED = 30.0
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
# What Retry-After may say at most: the limit is looked at between two tries.
LONGEST_WISH = 30.0


class Patience:
    def __init__(self, seconds: float, given_up: Event, *, unreached: float = UNREACHED) -> None:
        self._given_up = given_up
        self._unreached = unreached
        self._end = monotonic() + seconds
        self._silent_since: float | None = None
        self._pause = FIRST_PAUSE

    @property
    def left(self) -> float:
        return max(self._end - monotonic(), 0.0)

    def heard(self) -> None:
        """semel is there."""
        self._silent_since = None
        self._pause = FIRST_PAUSE

    def after_silence(self) -> bool:
        """Whether to try again; comes back when it is time."""
        now = monotonic()
        if self._silent_since is None:
            self._silent_since = now
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        if now + pause - self._silent_since > self._unreached:
            return False
        return self._wait(pause)

    def after_answer(self, wish: float | None) -> bool:
        """The same, when semel said in how many seconds."""
        return self._wait(min(max(1.0 if wish is None else wish, 0.01), LONGEST_WISH))

    def _wait(self, seconds: float) -> bool:
        if seconds >= self.left:
            return False
        return not self._given_up.wait(seconds)
