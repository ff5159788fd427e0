"""A thread that takes jobs in batches and hands all results of a batch back to the event loop at once.

Waking the loop costs more than most jobs, so it is done once per batch. A job whose waiter has left is done
all the same: cancelling a wait never undoes a write. Nobody waits for a thread that is gone: should it end
of something unforeseen, whoever waits and whoever comes is told that the store is not available.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from proxy.errors import StoreUnavailable
from proxy.giving_way import give_way


class Waiting(Protocol):
    """A future, or what is told like one; what it does when it is told never raises."""

    def done(self) -> bool: ...

    def set_result(self, result: Any) -> None: ...  # noqa: ANN401

    def set_exception(self, error: Any) -> None: ...  # noqa: ANN401


Job: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Waiting]
# A job with its result, or with the error in its place.
Outcome: TypeAlias = tuple[Job, Any, BaseException | None]

# Bounds how long the first of a batch waits for the last; far above what fits into one fsync.
BATCH = 256


class Worker(ABC):
    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._gathered: list[Job] = []  # submitted in this turn of the loop, not yet handed over
        self._under_way = 0  # handed over, and nobody was told yet
        self._comes_alone = True  # the last job was the only one of its batch
        self._refusing = ""  # the loop's side: why no more jobs are taken
        self._ending = False  # the thread's side: this batch is the last
        self._ended: asyncio.Future[None] = loop.create_future()
        # Daemon: a process that ends without closing the store must not hang on it.
        self._thread = threading.Thread(target=self._run, name=f"semel-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, perform: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # noqa: ANN401
        """`perform(connection, *args)` in the thread."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.submit_for(future, perform, *args)
        return future

    def submit_for(self, told: Waiting, perform: Callable[..., Any], *args: Any) -> None:  # noqa: ANN401
        """For a waiter that need not be a future, told where all are."""
        if self._refusing:
            raise StoreUnavailable(self._refusing)
        self._gathered.append((perform, args, told))
        # Waking a thread for every job costs more than the job: a turn's jobs are handed over together. But
        # where they come one at a time, none waits for others that will not come.
        if self._comes_alone and not self._under_way:
            self._hand_over()
        elif len(self._gathered) == 1:
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._under_way += len(gathered)
            self._queue.put(gathered)

    async def close(self) -> None:
        """Everything submitted so far is done first."""
        if not self._refusing:
            self._refusing = "the store is closed"
            self._hand_over()
            self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _run(self) -> None:
        give_way()
        jobs: list[Job] = []
        try:
            while not self._ending:
                jobs = self._take()
                if jobs:
                    self._tell(self._resolve, self._handle(jobs))
                try:
                    self._between()
                except Exception as error:  # whatever it was, the next job finds out whether it lasts
                    self._distrust(error)
        finally:
            try:
                self._leave()
            finally:
                self._tell(self._end, jobs)

    def _take(self) -> list[Job]:
        """Wait for one job, then take what else is there. Empty when the wait was cut short."""
        jobs: list[Job] = []
        try:
            gathered = self._queue.get(timeout=self._pause())
            while gathered is not None:
                jobs += gathered
                if len(jobs) >= BATCH or self._queue.empty():
                    return jobs
                gathered = self._queue.get_nowait()
            self._ending = True
        except queue.Empty:
            pass
        return jobs

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it everybody who waited
            self._loop.call_soon_threadsafe(callback, *args)

    def _resolve(self, outcomes: Sequence[Outcome]) -> None:
        """On the event loop."""
        self._under_way -= len(outcomes)
        self._comes_alone = len(outcomes) == 1
        for (_, _, future), result, error in outcomes:
            if future.done():
                continue  # its waiter was cancelled
            try:
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
            except Exception as defect:  # of whoever was told: the others are told all the same
                told = {"message": "a waiter of the store's failed", "exception": defect}
                self._loop.call_exception_handler(told)

    def _end(self, jobs: list[Job]) -> None:
        """The thread is gone. After `close` nothing is left to do; if it died, `jobs` were in its hands, and
        others may have been handed over since."""
        self._refusing = self._refusing or "the store is not available: its thread has ended, restart semel"
        self._hand_over()
        while not self._queue.empty():
            jobs = jobs + (self._queue.get_nowait() or [])
        self._resolve([(job, None, StoreUnavailable(self._refusing)) for job in jobs])
        if not self._ended.done():
            self._ended.set_result(None)

    @abstractmethod
    def _handle(self, jobs: list[Job]) -> list[Outcome]:
        """Do them all; never raise."""

    @abstractmethod
    def _distrust(self, error: BaseException) -> None:
        """Something went wrong: give up the connection, so that the next job opens another."""

    def _pause(self) -> float | None:
        """How long to wait for a job before `_between` is due anyway. None: for ever."""
        return None

    @abstractmethod
    def _between(self) -> None:
        """After each batch, when everybody has been told. May raise: the connection is then distrusted."""

    @abstractmethod
    def _leave(self) -> None:
        """The last thing in the thread."""
