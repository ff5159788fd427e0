"""What came of a function that was handed out to us: complete, or fail.

A report says the same however often it is sent, by its fence, so it is sent until semel has it. What has no
report is in doubt, and that is right: silence is the only thing we may say when we do not know.
"""

from __future__ import annotations

from threading import Event

from semel.beginning import HandedOut
from semel.errors import NotExecuted, NotRecorded, Problem, UnrecordableResult
from semel.heart import Heart
from semel.line import Answer, Line, NoAnswer, NotSent
from semel.naming import Question
from semel.patience import Patience
from semel.values import Json, NotJson, decode, encode

# How long one try of a report may take: the answer comes when it is durable.
ONE_TRY = 30.0
# Longer messages than this are for a log, not for a record that is given again and again.
LONGEST_MESSAGE = 10_000
# What semel says of a report that it cannot take as it is: malformed, too large, not to be processed.
UNACCEPTABLE = (400, 413, 422)
# On an exception that a tool's call has let out. To a tool around it, it proves nothing: that one may have
# had effects of its own by then.
_LET_OUT = "__semel_let_out__"


class Undelivered(Exception):
    """semel has not taken the report. `problem`: why, where it said so."""

    def __init__(self, reason: str, answer: Answer | None = None) -> None:
        super().__init__(reason)
        self.status = answer.status if answer else 0
        self.problem: Problem = answer.document if answer else {}


class Errand:
    """One call in our hands. Its methods block, and wait for the heart to stand still first."""

    def __init__(
        self, line: Line, asked: Question, handed: HandedOut, *, timeout: float, hurry: Event
    ) -> None:
        self.heart = Heart(line, handed)
        self._line = line
        self._asked = asked
        self._handed = handed
        self._timeout = timeout
        self._hurry = hurry  # set: whoever waits for it has left; what is under way is the last try

    def returned(self, value: object) -> Json:
        """The value as every later caller will see it. Raises UnrecordableResult or NotRecorded."""
        self.heart.join()
        try:
            result = encode(value, "the result")
        except NotJson as error:
            raise self._unrecordable(str(error)) from None
        try:
            self._complete(b'{"result":%b}' % result)
        except Undelivered as error:
            if error.status in UNACCEPTABLE:
                raise self._unrecordable(f"semel did not take the result: {error}") from None
            raise self._not_recorded(error, decode(result)) from error
        return decode(result)

    def raised(self, error: Exception) -> None:
        """The caller raises the same error again, unless this raises NotRecorded."""
        self.heart.join()
        said_so = isinstance(error, (NotExecuted, *self._asked.not_executed))
        if said_so and not getattr(error, _LET_OUT, False):
            self.give_back(f"{type(error).__qualname__}: {error}", error)
        else:
            try:
                self._complete(_failure(type(error).__qualname__, str(error)))
            except Undelivered as failure:
                raise self._not_recorded(failure, None) from error
        let_out(error)

    def give_back(self, reason: str, error: Exception | None = None) -> None:
        """It certainly had no effect. If semel does not hear it, it holds the call, and `error` says so."""
        body = encode({"reason": _plain(reason)}, "the reason")
        try:
            self._deliver(self._handed.path("fail"), body)
        except Undelivered as failure:
            if error is not None:
                error.add_note(
                    f"semel could not be told that {self._asked.tool!r} was not executed ({failure}): it "
                    f"will hold the call {self._handed.call} in doubt."
                )

    def _complete(self, body: bytes) -> None:
        self._deliver(self._handed.path("complete"), body)

    def _deliver(self, path: str, body: bytes) -> None:
        """Until it is said to be recorded. Raises Undelivered."""
        patience = Patience(self._timeout, self._hurry, unreached=self._timeout)
        while True:
            try:
                answer = self._line.post(path, body, {}, ONE_TRY)
            except (NotSent, NoAnswer) as error:
                failure = Undelivered(str(error))
                again = patience.after_silence()
            else:
                if answer.status == 200:
                    return
                detail = answer.document.get("detail") or f"it answered with {answer.status}"
                failure = Undelivered(str(detail), answer)
                patience.heard()
                again = answer.status >= 500 and patience.after_answer(answer.retry_after)
            if not again:
                raise failure

    def _unrecordable(self, why: str) -> UnrecordableResult:
        """That it ran is recorded, if semel can be told; if it cannot, the call is in doubt. Both hold it."""
        told = f"The function {self._asked.tool!r} HAS run, and is not run again: {why}."
        error = UnrecordableResult(told)
        try:
            self._complete(_failure(UnrecordableResult.__name__, told))
        except Undelivered as failure:
            error.add_note(f"semel could not be told that it has run ({failure}): it will hold it in doubt.")
        return error

    def _not_recorded(self, failure: Undelivered, result: Json) -> NotRecorded:
        return NotRecorded(
            f"The function {self._asked.tool!r} HAS run, and what came of it is not recorded: {failure}. If "
            f"nobody settles it, semel holds the call {self._handed.call} in doubt; it is not run again.",
            failure.problem,
            result,
        )


def let_out(error: Exception) -> None:
    error.__dict__[_LET_OUT] = True


def _failure(kind: str, message: str) -> bytes:
    return encode({"error": {"type": _plain(kind), "message": _plain(message)}}, "the error")


def _plain(text: str) -> str:
    """What UTF-8 can hold: a file's name in a message may be no text."""
    return text[:LONGEST_MESSAGE].encode("utf-8", "backslashreplace").decode()
