"""Handing an answer on to one caller of a run: when it began, how it ended; the record's lazy part.

A lost mark leaves a call looking less used than it is: that may cause a replay, never a send.
"""

from __future__ import annotations

from proxy.core.run_record import End, Exchange, How, Serving
from proxy.flight import Flight
from proxy.runs.book import Book
from proxy.store.base import Store


class Handover:
    def __init__(self, store: Store, book: Book, key: bytes, exchange: Exchange) -> None:
        self.exchange = exchange
        self.final = True
        self._store = store
        self._book = book
        self._key = key
        self._flight: Flight | None = None

    def begun(self) -> None:
        self._mark()

    def follows(self, flight: Flight) -> None:
        """Whether what is handed on is final shows when the flight has landed."""
        self._flight = flight

    def complete(self) -> None:
        self._end(End.COMPLETE, self.exchange.how)

    def abandoned(self) -> None:
        """Also after `complete`: a reset that comes behind the last byte says that it was not read."""
        self._end(End.ABANDONED, self.exchange.how)

    def problem(self) -> None:
        self._end(End.PROBLEM, How.REFUSED)

    def take_back(self) -> None:
        """Nobody was served; the caller looks again."""
        self._book.take_back(self._key, self.exchange)

    @property
    def run(self) -> str:
        return self._book.run.name

    def move(self, key: bytes, fence: int) -> None:
        """To another row with the same answer."""
        self._book.take_back(self._key, self.exchange)
        self._key = key
        self.exchange = self._book.start(
            key, self.exchange._replace(fence=fence, number=self._book.next_number(key))
        )

    def serving(self) -> Serving:
        return Serving(self._book.run.tenant, self._book.run.name, self._key, self.exchange)

    def _end(self, end: End, how: How) -> None:
        step = self._book.step(self._key)
        fence = self.exchange.fence if step is None else step.fence
        self.exchange = self.exchange._replace(end=end, how=how, final=self._is_final(), fence=fence)
        self._book.end(self._key, self.exchange)
        self._mark()

    def _is_final(self) -> bool:
        if self._flight is None:
            return self.final
        step = self._book.step(self._key)
        return step is not None and step.state == "done"

    def _mark(self) -> None:
        self._store.mark_served(self.serving())
