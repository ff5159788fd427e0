"""Begin: ask semel until it says whether the function is to run, or that nobody knows.

A begin may be sent again, since all of its tries are one call to semel: outside runs by the arguments (or the
user's key), inside a run by an Idempotency-Key that is made once for the call. If semel had handed the call
out and its answer was lost on the way, the next try finds it handed out, then in doubt, never a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import TypeAlias

from semel.errors import InDoubt, InProgress, SemelError, Unanswered, Unreachable, error_of, name_of
from semel.line import Answer, Line, NoAnswer, NotSent
from semel.naming import Question
from semel.patience import Patience
from semel.values import Json

LOST = (
    "An answer of semel's to this call was lost on the way. This process has not run the function: "
    "if no other had the call in hand, it was not executed."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOut:
    """Run the function, give signs of life, report."""

    tool: str
    call: str
    fence: int
    heartbeat: float  # seconds

    def path(self, word: str) -> str:
        return f"/{self.tool}/{self.call}/{word}?fence={self.fence}"


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Run it and report nothing."""


@dataclass(frozen=True, slots=True)
class Recorded:
    result: Json


@dataclass(frozen=True, slots=True)
class FailedBefore:
    type: str
    message: str


Begun: TypeAlias = HandedOut | Unrecorded | Recorded | FailedBefore


def begin(line: Line, asked: Question, timeout: float, given_up: Event) -> Begun:
    """Raises what semel said, or that it said nothing."""
    patience = Patience(timeout, given_up)
    lost = False
    while True:
        error: SemelError
        try:
            answer = line.post(f"/{asked.tool}", asked.arguments, asked.headers, max(patience.left, 0.1))
        except NotSent as failure:
            error = Unreachable(f"semel at {line.place} cannot be reached: {failure}. Nothing was begun.")
            again = not failure.for_good and patience.after_silence()
        except NoAnswer as failure:
            lost = True
            error = _unanswered(asked, f"semel at {line.place} was asked and did not answer ({failure})")
            again = patience.after_silence()
        else:
            read = _read(asked, answer)
            if not isinstance(read, SemelError):
                return read
            error = read
            lost = lost or isinstance(read, Unanswered)
            again = _ask_again(patience, answer, read)
        if not again:
            raise _with_note(asked, error) if lost else error


def _ask_again(patience: Patience, answer: Answer, error: SemelError) -> bool:
    if isinstance(error, Unanswered):
        # Something between us and semel speaks for it. Its 5xx may pass.
        return answer.status >= 500 and patience.after_silence()
    patience.heard()
    passes = isinstance(error, InProgress) or (answer.status == 503 and answer.retry_after is not None)
    return passes and patience.after_answer(answer.retry_after)


def _with_note(asked: Question, error: SemelError) -> SemelError:
    if isinstance(error, Unreachable):  # this try; an earlier one may have been heard
        return _unanswered(asked, str(error).removesuffix(" Nothing was begun.").removesuffix("."))
    if isinstance(error, InDoubt | InProgress):
        error.add_note(LOST)
    return error


def _unanswered(asked: Question, what: str) -> Unanswered:
    return Unanswered(
        f"{what}. The function {asked.tool!r} was not run here; if semel has handed the call out, it holds "
        "it in doubt. Make the same call again to see."
    )


def _read(asked: Question, answer: Answer) -> Begun | SemelError:
    document = answer.document
    if name_of(document):
        return error_of(document)
    match answer.status, document:
        case 200, {"execute": {"call": str(call), "fence": int(fence), "heartbeat": int() | float() as beat}}:
            return HandedOut(tool=asked.tool, call=call, fence=fence, heartbeat=float(beat))
        case 200, {"execute": {**rest}} if not rest:
            return Unrecorded()
        case 200, {"error": {"type": str(kind), "message": str(message)}}:
            return FailedBefore(kind, message)
        case 200, {"result": result}:
            return Recorded(result)
    return _unanswered(asked, f"What answered with {answer.status} does not speak as semel does")
