"""Every error of semel, as a tree. What a caller can be told is a Refusal; problem.py has its answer.

SemelError
├── ConfigurationError         bad flags, files, policies: exit status 2
│   └── NoRecord               a store in which there is none, asked by who makes none
└── Refusal                    semel answers itself
    ├── DecisionRefused        an operator's question or decision: exit status 1, HTTP 404 or 409
    │   └── NotFound, Unreadable, StaleVersion, NotInDoubt, StillInDoubt, NotAwaiting, NotSettled,
    │       RunExists
    ├── CrossSite, Misdirected, MethodNotAllowed, UnsupportedMediaType
    ├── BadRequest, TooLarge, HeadersTooLarge, UnknownUpstream, Unauthorized, Forbidden
    ├── Denied, KeyConflict, IdentityCollision, BudgetExceeded
    ├── InDoubt, InProgress, AwaitingApproval, Diverged, Stale
    ├── AnswerUnavailable, RunExpired
    └── UpstreamUnreachable, UpstreamTimeout, StoreUnavailable, Overloaded, InternalError
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.core.intent import Call


class SemelError(Exception):
    """The root."""


class ConfigurationError(SemelError):
    """The message says what to change and where."""


class NoRecord(ConfigurationError):
    """Whoever only looks makes none."""


class Refusal(SemelError):
    """semel answers itself. `detail` says what to do; `members` go into the problem as they are.
    `retry_after`, `lasts`: in how many seconds a retry may mend it, or that none can, where that is known of
    this very one."""

    retry_after: int | None = None
    lasts: bool = False

    def __init__(self, detail: str, **members: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.members = members


class DecisionRefused(Refusal):
    """What an operator asks for cannot be carried out. `present` is the call as it stands now."""

    def __init__(self, detail: str, present: Call | None = None, **members: object) -> None:
        if present is not None:
            members = {"call": present.id, "state": present.state, "version": present.version, **members}
        super().__init__(detail, **members)
        self.present = present


class NotFound(DecisionRefused):
    """No call of this id, or nothing at this address."""


class Unreadable(DecisionRefused):
    """The store has the call and cannot read it."""


class StaleVersion(DecisionRefused):
    """The call has changed since the operator looked at it."""


class NotInDoubt(DecisionRefused):
    """Only a call in doubt can be resolved."""


class StillInDoubt(DecisionRefused):
    """The upstream was asked, and what it said settles nothing."""


class NotAwaiting(DecisionRefused):
    """Only a call that awaits approval can be approved or denied."""


class NotSettled(DecisionRefused):
    """Only a settled call can be forgotten."""


class RunExists(DecisionRefused):
    """A fork needs a name that no run has had."""


class CrossSite(Refusal):
    """A page of another site speaks through a person's browser."""


class Misdirected(Refusal):
    """The request names a host that semel is not: a sign of DNS rebinding."""


class MethodNotAllowed(Refusal):
    """The address is known, the method is not."""


class UnsupportedMediaType(Refusal):
    """The body is not application/json."""


class BadRequest(Refusal):
    """Malformed run reference, header, address."""


class TooLarge(Refusal):
    """The request body is over the limit."""


class HeadersTooLarge(Refusal):
    """The header block is over the limit."""


class UnknownUpstream(Refusal):
    """No policy file names it."""


class Unauthorized(Refusal):
    """Missing or wrong token."""


class Forbidden(Refusal):
    """The token's role may not do this."""


class Denied(Refusal):
    """A rule or a person refused the call."""


class KeyConflict(Refusal):
    """The client's Idempotency-Key was used with other arguments or by another principal."""


class IdentityCollision(Refusal):
    """Two calls, one xxh3 key: never the other's answer."""


class BudgetExceeded(Refusal):
    """A budget is used up: for so many seconds, or for good."""


class InDoubt(Refusal):
    """Sent, outcome unknown, held."""


class InProgress(Refusal):
    """The same call is still running after `wait`."""


class AwaitingApproval(Refusal):
    """Held for a person."""


class Diverged(Refusal):
    """The attempt left the run's record at a call with effects."""


class Stale(Refusal):
    """Older than max_age, and the rule says refuse."""


class AnswerUnavailable(Refusal):
    """It happened; its answer cannot be given."""


class RunExpired(Refusal):
    """The run's retention is over."""


class UpstreamUnreachable(Refusal):
    """Nothing was sent; call again."""


class UpstreamTimeout(Refusal):
    """A safe call timed out."""


class StoreUnavailable(Refusal):
    """Nothing was sent. The only thing a store may raise."""


class Overloaded(Refusal):
    """Too many connections."""


class InternalError(Refusal):
    """A defect in semel; the log says more."""
