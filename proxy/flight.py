"""One call on its way: the answer being captured, who is waiting for it, and how to stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proxy.core.identity import Identity
from proxy.core.intent import Call
from proxy.stream import Capture
from proxy.upstream.base import Lost, NotSent, Result


class Superseded(Exception):
    """This flight has no answer to give, but the record may: look again."""


class Unrecordable(Exception):
    """The claim of a safe call could not be written: forward the call without a record."""


class Flight:
    """`cancels`: stop when the last caller has left. `identity` is None for what is only passed through."""

    def __init__(self, capture: Capture, *, cancels: bool, identity: Identity | None = None) -> None:
        self.identity = identity
        self.capture = capture
        self.callers = 0
        self.stopped = False
        self.task: asyncio.Task[None] | None = None
        self.on_defect: Callable[[BaseException], None] | None = None
        self.from_record = False  # the answer came from a shared record and not from the upstream
        self.cost_usd: float | None = None  # known when it has landed
        self.seconds = 0.0  # how long the upstream has had it, all sends together
        self.renews: Call | None = None  # the call whose answer was too old, and is compared with this one
        self.drifted = False  # the two differ
        self._row: asyncio.Future[Call | None] | None = None
        self._cancels = cancels
        self._sending = False
        self._may_be_out = False  # a byte of the request may have left

    def leave(self) -> None:
        self.callers -= 1
        if self.callers == 0 and self._cancels:
            self.stop()

    def expect_row(self) -> None:
        """Somebody may ask for the row before it is there."""
        self._row = asyncio.get_running_loop().create_future()

    def claimed(self, call: Call | None) -> None:
        """The row is durable, or (None) there is none of this flight."""
        if self._row is not None and not self._row.done():
            self._row.set_result(call)

    async def row(self) -> Call | None:
        assert self._row is not None
        return await asyncio.shield(self._row)

    def stop(self) -> bool:
        """End the send; what became of it is then settled as usual. Anything but the send is let finish."""
        self.stopped = True
        if self._sending and self.task is not None:
            self.task.cancel()
        return self._sending

    def give_up(self) -> None:
        """The process ends and the store does not answer. The row stays pending; recovery will see to it."""
        if self.task is not None:
            self.task.cancel()

    async def interruptible(
        self, send: Callable[[Callable[[], bool]], Awaitable[Result]], owns: Callable[[], bool]
    ) -> Result:
        """Await the send, unless `stop` was or is called: then say what is known."""
        too_late = self.stopped
        if too_late:
            return NotSent("stopped before anything was sent")

        def may_send() -> bool:
            self._may_be_out = owns()
            return self._may_be_out

        self._may_be_out = False
        self._sending = True
        try:
            return await send(may_send)
        except asyncio.CancelledError:
            if not self.stopped:
                raise
            if self.task is not None:
                self.task.uncancel()
            why = "semel stopped waiting for the answer"
            return Lost(why) if self._may_be_out else NotSent("stopped before anything was sent")
        except Exception as error:
            # A defect of ours in the middle of a send: say what is known, never leave the row behind.
            if self.on_defect is not None:
                self.on_defect(error)
            reason = f"semel failed ({type(error).__name__})"
            return Lost(reason) if self._may_be_out else NotSent(reason)
        finally:
            self._sending = False
