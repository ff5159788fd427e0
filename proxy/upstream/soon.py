"""An exchange that nobody awaits: the request is written, and mostly the next that comes is the whole answer.

Whatever else comes (a part, a break, a head that is new, an answer that is wanted in parts) is for an
ordinary exchange on the same connection, which goes on where this one is.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol, TypeAlias

from proxy import faults
from proxy.core.reachable import Said
from proxy.faults import Point
from proxy.upstream.answer import Head, whole_by
from proxy.upstream.base import Answered, Hears, Result, WholeSink
from proxy.upstream.connection import Connection
from proxy.upstream.exchanging import exchange

# What was said of the host belongs to it: who may not connect there may not use another's connection either.
Origin: TypeAlias = tuple[str, str, int, Said]


class Lender(Protocol):
    def is_over(self, origin: Origin, connection: Connection) -> None:
        """The connection may be had by others, if it is good for that."""


class Soon:
    """The connection shows it what comes first, and tells it of changes as it tells a future."""

    __slots__ = ("_connection", "_failed", "_hears", "_lender", "_origin", "_sent_all", "_sink")

    def __init__(
        self, lender: Lender, origin: Origin, connection: Connection, sink: WholeSink, hears: Hears
    ) -> None:
        self._lender = lender
        self._origin = origin
        self._connection = connection
        self._sink = sink
        self._hears = hears
        self._sent_all = False
        self._failed: Exception | None = None  # a defect of ours, and nothing is known of the answer

    def wait(self, unwritten: int) -> None:
        """The request is written, or so much of it will be."""
        if not unwritten:
            self._sent_all = True
            faults.reach(Point.REQUEST_SENT)
        self._connection.tells(self)

    def takes(self, data: bytes, heads: dict[bytes, Head]) -> bool:
        found = whole_by(heads, data) if self._sent_all else None
        if found is None:
            return False
        (status, headers, length), body = found
        connection = self._connection
        try:
            if not self._sink.wants(headers, length):
                return False
            self._sink.take(status, headers, body)
        except Exception as error:
            self._go_on(error)
            return True
        connection.tells(None)
        connection.end_whole()
        self._lender.is_over(self._origin, connection)
        self._hears.answered(Answered(status))
        return True

    def done(self) -> bool:
        return False

    def set_result(self, _: None) -> None:
        """Something has changed."""
        connection = self._connection
        answer = connection.answer_of_soon()
        failed: Exception | None = None
        if answer.complete and self._sent_all:
            try:
                if self._sink.wants(answer.headers, answer.pending):
                    self._sink.take(answer.status, answer.headers, connection.take())
                    connection.end(sent_all=True)
                    self._lender.is_over(self._origin, connection)
                    self._hears.answered(Answered(answer.status))
                    return
            except Exception as error:
                failed = error
        self._go_on(failed)

    def _go_on(self, failed: Exception | None) -> None:
        self._failed = failed
        self._connection.tells(None)
        self._connection.answer_of_soon()
        self._hears.goes_on(self)

    def __await__(self) -> Generator[Any, None, Result]:
        """What becomes of it from here on."""
        return self._rest().__await__()

    async def _rest(self) -> Result:
        connection, sink = self._connection, self._sink
        try:
            if self._failed is not None:
                raise self._failed
            answer = connection.answer_of_soon()
            return await exchange(connection, answer, None, None, sink, sent_all=self._sent_all)
        except BaseException:
            connection.reusable = False
            raise
        finally:
            self._lender.is_over(self._origin, connection)

    def abandon(self) -> None:
        self._connection.tells(None)
        self._connection.reusable = False
        self._lender.is_over(self._origin, self._connection)
