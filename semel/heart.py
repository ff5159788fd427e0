"""Signs of life while a function runs: from a thread, so that one that computes or blocks has them on time.

For coroutines too: a task would stand still with its event loop, and the call would be taken for lost.
A heartbeat that fails is tried again, and is never the function's trouble.
"""

from __future__ import annotations

from threading import Event, Thread
from time import monotonic
from types import TracebackType

from semel.beginning import HandedOut
from semel.errors import NotExecuted
from semel.line import Line, NoAnswer, NotSent

# Of the time that semel gives: the request itself takes some.
EARLY = 0.8
# After a failure, sooner: three times the heartbeat without one and the call is taken for lost.
AGAIN = 0.25
LONGEST_ASK = 5.0  # seconds for one; the report waits for it
SHORTEST = 0.01  # seconds; a mistaken 0 must not become a busy loop
# Whoever is interrupted does not wait for a thread that hangs in connecting.
JOINED = 1.0


class Heart:
    """Beats inside `with`. Left by an exception, the function is over and a report follows (`join` first).
    Left by an interruption or a cancellation, nobody knows: the line is ended and the call may lapse."""

    def __init__(self, line: Line, handed: HandedOut) -> None:
        self._line = line
        self._handed = handed
        self._over = Event()
        self._thread = Thread(target=self._beat, name=f"semel-heart-{handed.tool}", daemon=True)

    def __enter__(self) -> Heart:
        try:
            self._thread.start()
        except RuntimeError as error:  # too many threads
            raise NotExecuted(
                f"no heartbeat for {self._handed.tool!r}, so it was not run: {error}"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if kind is not None and not issubclass(kind, Exception):
            self._line.end()
            self._thread.join(JOINED)

    def join(self) -> None:
        if self._thread.ident is not None:  # it was started
            self._thread.join()

    def _beat(self) -> None:
        every = self._handed.heartbeat
        last = monotonic()
        pause = EARLY * every
        while not self._over.wait(max(last + pause - monotonic(), SHORTEST)):
            last = monotonic()
            beaten = self._ask(every)
            every = beaten or every
            pause = every * (EARLY if beaten else AGAIN)

    def _ask(self, every: float) -> float | None:
        """How soon semel wants the next one, or None: it has not heard this one."""
        try:
            answer = self._line.post(self._handed.path("heartbeat"), b"", {}, min(every, LONGEST_ASK))
        except (NotSent, NoAnswer):
            return None
        if answer.status != 200:
            return None
        wanted = answer.document.get("heartbeat")
        return float(wanted) if isinstance(wanted, int | float) and wanted > 0 else every
