"""Every error of the client, as a tree. Each says whether the function ran, and what to do next.

SemelError
├── NotConfigured         no SEMEL_URL: nothing was asked, nothing ran
├── Unreachable           no connection came about: nothing was begun, nothing ran
├── Unanswered            asked, and no answer came: it did not run here, and semel may hold it in doubt
├── NotExecuted           it certainly had no effect; raise it in a tool to say so
├── ToolFailed            it ran before and failed: `type` and `message` say how
├── UnrecordableResult    it HAS run, and its result cannot be recorded; that it ran is recorded
├── NotRecorded           it HAS run, and nobody could be told what came of it
└── Refused               semel's own answer, nothing ran here: `problem`, `name`, `status`
    └── InDoubt, InProgress, AwaitingApproval, Diverged, Denied, BudgetExceeded
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Problem: TypeAlias = Mapping[str, object]

URN = "urn:semel:"


class SemelError(Exception):
    """The root. `problem` is what semel said, as RFC 9457 has it; empty where it said nothing."""

    def __init__(self, message: str = "", problem: Problem | None = None) -> None:
        super().__init__(message)
        self.problem: Problem = problem or {}


class NotConfigured(SemelError):
    """Nobody has said where semel is."""


class Unreachable(SemelError):
    """No connection to semel: nothing was begun."""


class Unanswered(SemelError):
    """semel may have handed the call out to us, and we do not know it: then it is in doubt there."""


class NotExecuted(SemelError):
    """Raise it in a tool that certainly had no effect: whoever asks next runs it. An attempt that comes
    after one that was told so is told the same."""


class ToolFailed(SemelError):
    """The function ran before, perhaps with an effect, and raised. It is not run again."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.args = (kind, message)  # so that it can be pickled
        self.type = kind
        self.message = message

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


class UnrecordableResult(SemelError):
    """The function has run. Whoever asks again is given `ToolFailed`, and it is not run again."""


class NotRecorded(SemelError):
    """The function has run. `result` is what it gave, for whoever settles the call; None if it raised."""

    def __init__(self, message: str = "", problem: Problem | None = None, result: object = None) -> None:
        super().__init__(message, problem)
        self.result = result


class Refused(SemelError):
    """semel did not let the call through."""

    @property
    def name(self) -> str:
        """`diverged`, for example: the last part of the problem's type."""
        return name_of(self.problem)

    @property
    def status(self) -> int:
        status = self.problem.get("status")
        return status if isinstance(status, int) else 0


class InDoubt(Refused):
    """Somebody began it and nobody knows what came of it. It is held until that is settled."""


class InProgress(Refused):
    """Somebody else is still running it when our time is over."""


class AwaitingApproval(Refused):
    """A person has been asked. Make the same call again later."""


class Diverged(Refused):
    """This attempt of the run has left out what an earlier one did."""


class Denied(Refused):
    """A rule or a person refused it."""


class BudgetExceeded(Refused):
    """A budget is used up."""


# By the last part of the problem's type. What is not here is a plain `Refused`.
KINDS: Mapping[str, type[Refused | NotExecuted]] = {
    "in-doubt": InDoubt,
    "in-progress": InProgress,
    "awaiting-approval": AwaitingApproval,
    "diverged": Diverged,
    "denied": Denied,
    "budget-exceeded": BudgetExceeded,
    # Not asked again here: an attempt that went on without it must find the same on its way back.
    "upstream-unreachable": NotExecuted,
}


def name_of(problem: Problem) -> str:
    """Empty: this is no problem of semel's."""
    kind = problem.get("type")
    return kind.removeprefix(URN) if isinstance(kind, str) and kind.startswith(URN) else ""


def error_of(problem: Problem) -> Refused | NotExecuted:
    detail = problem.get("detail") or problem.get("title") or name_of(problem)
    return KINDS.get(name_of(problem), Refused)(str(detail), problem)
