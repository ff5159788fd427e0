"""One connection to an upstream, one exchange at a time.

It knows flow control in both directions, the two clocks, and the one reason why an exchange ended early.
What to write, and when, is the client's business; what the answer means, the reader's.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import select
import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from proxy.core.policy import Timeouts
from proxy.upstream.answer import AnswerReader, Head

# Above this much unread answer the socket is not read: a slow caller must not fill our memory.
BACKLOG = 256 * 1024


class Waiter(Protocol):
    """A future, or what is told like one: of a change, after which anything may be asked."""

    def done(self) -> bool: ...

    def set_result(self, result: None) -> None: ...


class TakesWhole(Protocol):
    def takes(self, data: bytes, heads: dict[bytes, Head]) -> bool:
        """Whether that is a whole answer, by one of these heads, and all is done that it asks for."""


class Connection(asyncio.Protocol):
    """The socket. Every change that `changed` may be waiting for ends in `_wake`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        max_header_bytes: int,
        heads: dict[bytes, Head],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._max_header_bytes = max_header_bytes
        self._heads = heads  # of answers, by all connections
        self._transport: asyncio.Transport | None = None
        self._socket: asyncio.ReadTransport | None = None  # what reads it, below TLS
        self._answer: AnswerReader | None = None
        self._soon: TakesWhole | None = None  # who waits for a whole answer; until then nothing is read
        self._waiter: Waiter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._timeouts = Timeouts()
        self._deadline = 0.0
        self._active_at = 0.0
        self._unwritten = 0
        self._reading = True
        self._gone: asyncio.Future[None] | None = None
        self._poll = select.poll()
        self.idle_since = 0.0
        self.reusable = True  # nothing was ever written to it, or the last exchange left it clean
        self.held = False  # the sink is waiting: the idle clock stands still
        self.writable = True
        self.lost = False  # the transport is gone
        self.failure = ""
        self.timed_out = False

    # An exchange.

    def is_open(self) -> bool:
        return self._transport is not None and not self.lost and not self._transport.is_closing()

    def quiet(self) -> bool:
        """Open, and nothing has come in that the event loop has not seen yet: an end, or stray bytes."""
        return self.is_open() and not self._poll.poll(0)

    def waive_total(self) -> None:
        """From now on only silence ends the exchange. The timer, once due, finds the deadline gone."""
        self._deadline = math.inf

    def begin(self, *, head_only: bool, timeouts: Timeouts, deadline: float) -> AnswerReader:
        self._expect(timeouts, self._clock(), deadline)
        return self._read(head_only=head_only)

    def begin_soon(self, soon: TakesWhole, timeouts: Timeouts) -> None:
        """The same from now on, for one that is told when a whole answer is here, or else when something has
        changed."""
        now = self._clock()
        self._expect(timeouts, now, now + timeouts.total)
        self._soon = soon

    def answer_of_soon(self) -> AnswerReader:
        """Read from now on as any other. Nothing of it has been taken."""
        return self._answer or self._read(head_only=False)

    def _read(self, *, head_only: bool) -> AnswerReader:
        answer = self._answer = AnswerReader(
            head_only=head_only, max_header_bytes=self._max_header_bytes, known=self._heads
        )
        return answer

    def _expect(self, timeouts: Timeouts, now: float, deadline: float) -> None:
        self._timeouts = timeouts
        self._deadline = deadline
        self._active_at = now
        self._arm(min(now + timeouts.idle, deadline))

    def write(self, data: bytes) -> int:
        """How much is not written yet, of this and of what was before it."""
        assert self._transport is not None
        self.reusable = False
        self._transport.write(data)
        self._active_at = self._clock()
        left = self._unwritten = self._transport.get_write_buffer_size()
        return left

    def take(self) -> bytes:
        """All that has come of the body since the last time; reading goes on if it was paused."""
        assert self._answer is not None
        parts, self._answer.parts, self._answer.pending = self._answer.parts, [], 0
        self.read_on()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def stop_reading(self) -> None:
        if self._reading and self.is_open():
            assert self._socket is not None
            self._reading = False
            self._socket.pause_reading()

    def read_on(self) -> None:
        if not self._reading and self.is_open():
            assert self._socket is not None
            self._reading = True
            self._socket.resume_reading()

    def consumed(self) -> None:
        """The sink has taken what it was given: the idle clock runs again, from now."""
        self.held = False
        self._active_at = self._clock()

    def changed(self) -> Awaitable[None]:
        """The next change."""
        waiter = self._waiter = self._loop.create_future()
        return waiter

    def tells(self, waiter: Waiter | None) -> None:
        """The next change is told, and not awaited."""
        self._waiter = waiter

    def unwritten(self) -> int:
        return (
            self._transport.get_write_buffer_size() if self._transport is not None and self.is_open() else 0
        )

    def end(self, *, sent_all: bool) -> None:
        """The exchange is over; what comes now is stray."""
        assert self._answer is not None
        self.reusable = sent_all and self._answer.complete and self._answer.reusable
        self.idle_since = self._clock()
        self.forget()

    def end_whole(self) -> None:
        """The same where all was sent and an answer has come by a head that came before: to be used again."""
        self.reusable = True
        self.idle_since = self._clock()

    def forget(self) -> None:
        """The same for an exchange in which nothing was written: the connection is what it was."""
        self._soon = None
        if self._answer is not None:
            self._answer.release()
            self._answer = None

    def fail(self, reason: str, *, timed_out: bool = False) -> None:
        """Only the first reason counts: the others follow from it."""
        if not self.failure:
            self.failure, self.timed_out = reason, timed_out
        self.abort()
        self._wake()

    def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None and not self.lost:
            self._transport.abort()

    async def gone(self) -> None:
        """Wait until the event loop has let go of the socket. Ask only after `abort`."""
        if self._transport is not None and not self.lost:
            self._gone = self._loop.create_future()
            await self._gone

    # What the event loop calls.

    def lies_over(self, socket: asyncio.ReadTransport) -> None:
        """Under TLS: pause this one. Were TLS paused above it, the socket would be read on, and with an end
        that is found there uvloop throws away what it has not handed up yet."""
        self._socket = socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._socket = cast("asyncio.Transport", transport)
        self.idle_since = self._clock()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            if self._soon is None:
                self.abort()  # nobody asked
                return
            if self._soon.takes(data, self._heads):
                return
            answer = self._read(head_only=False)
        self._active_at = self._clock()
        answer.feed(data)
        if answer.problem:
            self.fail(answer.problem)
        elif answer.pending > BACKLOG and not answer.complete:
            self.stop_reading()
        if answer.status:
            self._wake()

    def eof_received(self) -> None:
        answer = self._awaited()
        if answer is None or answer.complete:
            return
        if not self._ended_properly():
            self.fail("the upstream broke off the TLS stream: the answer may be cut short")
            return
        answer.eof()
        if answer.problem:
            self.fail(answer.problem)
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        answer = self._awaited()
        if answer is not None and not answer.complete:
            self.fail(f"the connection broke: {exc or 'closed'}")
        self.abort()
        self._wake()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._active_at = self._clock()
        self._wake()

    # The clocks.

    def _arm(self, due: float) -> None:
        """One timer per connection, left running between exchanges: a fast exchange never touches it."""
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_later(max(0.0, due - self._clock()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        answer = self._awaited()
        if answer is None or answer.complete or self.failure:
            return
        now = self._clock()
        unwritten = self.unwritten()
        if self.held or unwritten < self._unwritten:
            self._active_at = now
        self._unwritten = unwritten
        if now >= self._deadline:
            self.fail(f"no complete answer within {self._timeouts.total:g} s", timed_out=True)
        elif now >= self._active_at + self._timeouts.idle:
            self.fail(f"no byte for {self._timeouts.idle:g} s", timed_out=True)
        else:
            self._arm(min(self._active_at + self._timeouts.idle, self._deadline))

    def _ended_properly(self) -> bool:
        """A TCP end may be forged or early; TLS says with close_notify that this is really the end."""
        assert self._transport is not None
        tls = self._transport.get_extra_info("ssl_object")
        if tls is None:
            return True
        with contextlib.suppress(ssl.SSLError):
            return bool(tls.read(1) == b"")
        return False

    def _awaited(self) -> AnswerReader | None:
        return self._answer if self._soon is None else self.answer_of_soon()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
