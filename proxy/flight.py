"""One call on its way: the answer as it arrives, who is waiting for it, and how to stop it.

Most answers are short and come all at once, and one caller waits for them. Such an answer is kept as it came
(`whole`). Where it comes in parts, is long, is looked at, or somebody joins, it goes into a capture, which is
made when it is first asked for and knows then all that has come so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from proxy import faults
from proxy.core.headers import is_event_stream
from proxy.core.identity import Identity
from proxy.core.intent import Call
from proxy.faults import Point
from proxy.stream import Capture, Reader, Whole
from proxy.upstream.base import Headers, Lost, NotSent, Outgoing, Result, Sink, UpstreamClient, WholeSink


class Superseded(Exception):
    """This flight has no answer to give, but the record may: look again."""


class Unrecordable(Exception):
    """The claim of a safe call could not be written: forward the call without a record."""


class First(Protocol):
    """Who asked first, and waits."""

    given: Reader | None


class Waiter(Protocol):
    """A future, or what is told like one."""

    def done(self) -> bool: ...

    def set_result(self, result: None) -> None: ...


class Flight(WholeSink):
    """`cancels`: stop when the last caller has left. `identity` is None for what is only passed through.
    `longest`: up to this length an answer may be taken whole; 0: always in parts."""

    # What most flights never change: a value of the class costs a call nothing.
    captured: Capture | None = None
    callers = 0
    stopped = False
    task: asyncio.Task[None] | None = None
    on_defect: Callable[[BaseException], None] | None = None
    from_record = False  # the answer came from a shared record and not from the upstream
    cost_usd: float | None = None  # known when it has landed
    under_way_since = 0.0  # when a send began that is awaited only now
    seconds = 0.0  # how long the upstream has had it, all sends together
    renews: Call | None = None  # the call whose answer was too old, and is compared with this one
    drifted = False  # the two differ
    whole: Whole | None = None
    stored: bool | None = None  # of a whole one, when it has landed: whether it was kept
    _first: First | None = None
    _begun: Waiter | None = None
    _row: asyncio.Future[Call | None] | None = None
    _sending = False
    _may_be_out = False  # a byte of the request may have left

    def __init__(
        self,
        make_capture: Callable[[], Capture],
        *,
        cancels: bool,
        identity: Identity | None = None,
        longest: int = 0,
    ) -> None:
        self._make_capture = make_capture
        self._longest = longest
        self.identity = identity
        self._cancels = cancels
        self._owns: Callable[[], bool] = bool

    # ---- the answer ----

    @property
    def capture(self) -> Capture:
        """Made when it is first asked for; mostly none is needed."""
        return self.captured or self._captured()

    def _captured(self) -> Capture:
        capture = self.captured = self._make_capture()
        if self.whole is not None:
            capture.head(self.whole.status, self.whole.headers)
            capture.add(self.whole.body)
            capture.complete()
        if self.stored is not None:
            capture.seal(stored=self.stored)
        if self._first is not None:  # from now on it reads like all others
            self._first.given = capture.reader()
            self._wake()
        return capture

    @property
    def sink(self) -> Sink:
        return self if self._longest else self.capture

    def wants(self, headers: Headers, size: int) -> bool:
        return size <= self._longest and self.captured is None and not is_event_stream(headers)

    def take(self, status: int, headers: Headers, body: bytes) -> None:
        faults.reach(Point.ANSWER_HEAD)
        self.whole = Whole(status, headers, body)

    def head(self, status: int, headers: Headers) -> None:
        self.capture.head(status, headers)

    async def data(self, chunk: bytes) -> None:
        await self.capture.data(chunk)

    def complete(self) -> None:
        """All parts are here."""
        if self.captured is not None:
            self.captured.complete()

    def restart(self) -> None:
        """Forget an answer of which nobody has seen a part."""
        self.whole = None
        if self.captured is not None:
            self.captured.restart()

    @property
    def handed_on(self) -> bool:
        return self.captured is not None and self.captured.handed_on

    @property
    def is_over(self) -> bool:
        return self.stored is not None or (self.captured is not None and self.captured.is_over)

    def seal(self, *, stored: bool) -> None:
        """It is durable: whoever waits may see the end."""
        if self.whole is None or self.captured is not None:
            self.capture.seal(stored=stored)
        else:
            self.stored = stored
            self._wake()

    def refuse(self, refusal: Exception) -> None:
        """Whoever waits gets semel's own word in place of an answer."""
        self.capture.refuse(refusal)

    # ---- who waits ----

    async def begun(self, first: First) -> None:
        """Until it has landed whole, or `first` was given a reader of its parts."""
        if self._longest and self.captured is None and self.stored is None:
            landed = asyncio.get_running_loop().create_future()
            self.tells(first, landed)
            try:
                await landed
            finally:
                self.tells_nobody()  # also when it leaves
        elif self.stored is None:
            first.given = self.capture.reader()

    def tells(self, first: First, landed: Waiter) -> None:
        """The same for who asked before anything has come, and does not await it."""
        self._first, self._begun = first, landed

    def tells_nobody(self) -> None:
        """Who asked first has left."""
        self._first = self._begun = None

    def _wake(self) -> None:
        begun, self._first, self._begun = self._begun, None, None  # what waits leads back to the flight
        if begun is not None and not begun.done():
            begun.set_result(None)

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

    # ---- the send ----

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

    def _may_send(self) -> bool:
        self._may_be_out = self._owns()
        return self._may_be_out

    async def interruptible(
        self,
        upstream: UpstreamClient,
        out: Outgoing,
        sink: Sink,
        owns: Callable[[], bool],
        begun: Awaitable[Result] | None = None,
    ) -> Result:
        """Await the send, unless `stop` was or is called: then say what is known. `begun`: it is one that is
        under way already."""
        if begun is None:
            if self.stopped:
                return NotSent("stopped before anything was sent")
            self._owns = owns
            self._may_be_out = False
        self._sending = True
        try:
            return await (upstream.send(out, sink, self._may_send) if begun is None else begun)
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
