"""An exchange that nobody awaits: the request is written, and mostly the next that comes is the whole answer.

Whatever else comes (a part, a break, a head that is new, an answer that is wanted in parts) is for an
ordinary exchange on the same connection, which goes on where this one is.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from proxy import faults
from proxy.core.reachable import Said
from proxy.faults import Point
from proxy.upstream.answer import AnswerReader, Head, whole_by
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

    __slots__ = ("_connection", "_hears", "_lender", "_origin", "_sent_all", "_sink")

    def __init__(
        self, lender: Lender, origin: Origin, connection: Connection, sink: WholeSink, hears: Hears
    ) -> None:
        self._lender = lender
        self._origin = origin
        self._connection = connection
        self._sink = sink
        self._hears = hears
        self._sent_all = False

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
        connection = self._connection
        connection.tells(None)
        self._hears.goes_on(self._rest(connection.answer_of_soon(), failed))

    async def _rest(self, answer: AnswerReader, failed: Exception | None) -> Result:
        """`failed`: a defect of ours, and nothing is known of the answer."""
        connection = self._connection
        try:
            if failed is not None:
                raise failed
            return await exchange(connection, answer, None, None, self._sink, sent_all=self._sent_all)
        except BaseException:
            connection.reusable = False
            raise
        finally:
            self._lender.is_over(self._origin, connection)

    def abandon(self) -> None:
        self._connection.tells(None)
        self._connection.reusable = False
        self._lender.is_over(self._origin, self._connection)
