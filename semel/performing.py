"""The driver: begin, then what semel says. Nothing runs before semel has said so.

    recorded before   its result, or ToolFailed
    handed out        the function runs under a heartbeat, and is reported
    a `pass` rule     the function runs, and nobody is told

The sync and the async way differ in who waits: a coroutine's blocking requests are made in threads of their
own. Not in the loop's pool: begins that wait there for another call would keep that one's report back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from threading import Event, Thread
from typing import TypeVar, assert_never

from semel.beginning import Begun, FailedBefore, HandedOut, Recorded, Unrecorded, begin
from semel.errors import NotExecuted, ToolFailed
from semel.line import Line
from semel.naming import Question
from semel.place import Place
from semel.reporting import Errand, let_out
from semel.values import Json

T = TypeVar("T")

# A call that was cancelled is given back in the background: an exit may have to wait so many seconds for it.
GIVING_BACK = 5.0


class Performer:
    """Carries out calls at one place."""

    def __init__(self, place: Place, timeout: float) -> None:
        self.place = place
        self._timeout = timeout

    def perform(self, asked: Question, function: Callable[[], object]) -> object:
        with Line(self.place) as line:
            begun = self._begin(line, asked, Event())
            match begun:
                case HandedOut():
                    errand = Errand(line, asked, begun, timeout=self._timeout, hurry=Event())
                    try:
                        with errand.heart:
                            value = function()
                    except Exception as error:
                        errand.raised(error)
                        raise
                    return errand.returned(value)
                case Unrecorded():
                    return function()
                case Recorded() | FailedBefore():
                    return _known(begun)
                case _:
                    assert_never(begun)

    async def perform_async(self, asked: Question, function: Callable[[], Awaitable[object]]) -> object:
        """The line is ended by whichever thread uses it last, since the coroutine may have been cancelled."""
        line = Line(self.place)
        begun = await self._begin_in_thread(line, asked)
        match begun:
            case HandedOut():
                hurry = Event()
                errand = Errand(line, asked, begun, timeout=self._timeout, hurry=hurry)
                try:
                    with errand.heart:
                        value = await function()
                except Exception as error:
                    await _report(line, partial(errand.raised, error), hurry)
                    raise
                return await _report(line, partial(errand.returned, value), hurry)
            case Unrecorded():
                return await function()
            case Recorded() | FailedBefore():
                return _known(begun)
            case _:
                assert_never(begun)

    def _begin(self, line: Line, asked: Question, given_up: Event) -> Begun:
        try:
            return begin(line, asked, self._timeout, given_up)
        except NotExecuted as error:
            let_out(error)  # it speaks of this call, not of one around it
            raise

    async def _begin_in_thread(self, line: Line, asked: Question) -> Begun:
        given_up = Event()

        def work() -> Begun:
            begun: Begun | None = None
            try:
                begun = self._begin(line, asked, given_up)
                return begun
            finally:
                if not isinstance(begun, HandedOut):
                    line.end()

        promise = _in_thread(work, daemon=True)
        try:
            return await asyncio.wrap_future(promise)
        except BaseException:
            # Cancelled (or the begin has failed, then this does nothing). semel sees us leave, and does not
            # hand out what it has not handed out yet; what it has is proven not to have run.
            given_up.set()
            line.end()
            promise.add_done_callback(lambda done: self._give_back(done, asked))
            raise

    def _give_back(self, promise: Future[Begun], asked: Question) -> None:
        begun = None if promise.exception() else promise.result()
        if isinstance(begun, HandedOut):

            def work() -> None:
                with Line(self.place) as line:
                    errand = Errand(line, asked, begun, timeout=GIVING_BACK, hurry=Event())
                    errand.give_back("cancelled before it began")

            _in_thread(work, daemon=False)


async def _report(line: Line, work: Callable[[], T], hurry: Event) -> T:
    """Goes on when the coroutine is cancelled, with the try that is under way: the function has run."""

    def report() -> T:
        with line:
            return work()

    try:
        return await asyncio.wrap_future(_in_thread(report, daemon=False))
    finally:
        hurry.set()


def _in_thread(work: Callable[[], T], *, daemon: bool) -> Future[T]:
    promise: Future[T] = Future()
    promise.set_running_or_notify_cancel()  # from here on it cannot be cancelled, only be left alone

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            promise.set_exception(error)
        else:
            promise.set_result(result)

    Thread(target=run, name="semel", daemon=daemon).start()
    return promise


def _known(begun: Recorded | FailedBefore) -> Json:
    if isinstance(begun, FailedBefore):
        raise ToolFailed(begun.type, begun.message)
    return begun.result
