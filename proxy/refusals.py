"""What callers are told when a call is held, still running, or not theirs to repeat: the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from proxy.core.intent import Call, Doubt
from proxy.core.run_record import Step
from proxy.errors import (
    AnswerUnavailable,
    AwaitingApproval,
    Denied,
    Diverged,
    IdentityCollision,
    InDoubt,
    InProgress,
    KeyConflict,
    Refusal,
    Stale,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.upstream.base import NotSent

# Where a call can be looked at by whoever reads this; a session without a proxy has other words.
AT_PROXY = " --proxy URL`, URL being this proxy's,"
BESIDE = "`, with the --state-dir or --store that this has,"


def in_doubt(call: Call, doubt: Doubt, why: str = "") -> InDoubt:
    """`why`: what keeps semel from settling it by itself."""
    members: dict[str, object] = {
        "call": call.id,
        "tool": call.tool,
        "since": _utc(doubt.since),
        "resolve": f"/_semel/calls/{call.id}/resolve",  # a reference: it counts from where the call was made
    }
    if doubt.upstream_status is not None:
        members["upstream_status"] = doubt.upstream_status
    if doubt.excerpt:
        members["excerpt"] = doubt.excerpt
    return InDoubt(
        f"Whether this call took effect is not known ({doubt.reason}). It is held and not sent again by "
        f"itself{f': {why}' if why else ''}. Find out at the upstream, then settle it: `semel calls show "
        f"{call.id}{AT_PROXY} says what is known and how.",
        **members,
    )


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def awaiting(call: Call) -> AwaitingApproval:
    until = None if call.terms is None else call.terms.until
    members = {} if until is None else {"expires": _utc(until)}
    return AwaitingApproval(
        "A person has to permit this call, and nothing was sent. Make the same call again when that is done: "
        "it then goes out once. An operator decides, on semel's page at /_semel/ or at the command line.",
        call=call.id,
        tool=call.tool,
        since=_utc(call.created_at),
        resolve=f"/_semel/calls/{call.id}/approve",
        **members,
    )


def denied(call: Call) -> Denied:
    said = "" if call.terms is None else call.terms.said
    return Denied(
        f"A person refused this call{f': {said}' if said else ''}. Nothing was sent.",
        call=call.id,
        tool=call.tool,
    )


def not_sent(failed: NotSent, **members: object) -> Refusal:
    """A host that may not be reached is refused like a call by a rule: only a person can mend that."""
    if failed.for_good:
        return Denied(f"Nothing was sent: {failed.reason}.", **members)
    return UpstreamUnreachable(f"Nothing was sent: {failed.reason}. Call again.", **members)


def in_progress(call: str) -> InProgress:
    return InProgress("The same call is still under way; ask again in a moment.", call=call)


def conflict(call: str) -> KeyConflict:
    return KeyConflict(
        "This Idempotency-Key stands for other arguments or another caller. Use a new key for a new call.",
        call=call,
    )


def collision() -> IdentityCollision:
    return IdentityCollision(
        "Two different calls have the same key. Change the request slightly, or say so to us."
    )


def recorded_problem(call: Call, name: str) -> Refusal:
    """What an earlier attempt was told: calls with effects were made knowing it, so it is told again."""
    if name == "in-doubt" and call.doubt is not None:
        return in_doubt(call, call.doubt)
    kinds = {
        "upstream-timeout": UpstreamTimeout,
        "upstream-unreachable": UpstreamUnreachable,
        "denied": Denied,
    }
    kind = kinds.get(name, InDoubt)
    return kind(
        "From the record: an earlier attempt of this run was told so, and made calls with effects after it. "
        f"Nothing was sent now. `semel calls forget {call.id}` lets the call go out again.",
        call=call.id,
        run=call.run,
    )


def no_longer_known(step: Step) -> InDoubt:
    """Of a call that a run shares with its tenant: the shared one may have been executed, and has lapsed."""
    return InDoubt(
        "A proxy died while this call was made, and the tenant's record of it has lapsed since: whether it "
        f"took effect is not known, and nothing was sent now. `semel calls forget {step.id}` lets it go out.",
        call=step.id,
        tool=step.tool,
        run=step.run,
    )


def stale(call: Call, age: float, most: float) -> Stale:
    return Stale(
        f"The recorded answer is {age:.0f} seconds old, the rule {call.rule!r} allows {most:g}, and nothing "
        "was sent. With the header Semel-Refresh: 1 a cached answer is fetched anew; `semel calls forget "
        f"{call.id}` does it for everybody; `stale: revalidate` in the rule lets semel do it by itself.",
        call=call.id,
        tool=call.tool,
        since=_utc(call.answer.recorded_at if call.answer is not None else call.created_at),
    )


def unavailable(call: str, why: str) -> AnswerUnavailable:
    return AnswerUnavailable(
        f"The call happened and is not sent again, but {why}. What it answered stands only in the upstream's "
        f"own records. `semel calls forget {call}` would let it be sent a second time.",
        call=call,
    )


def diverged(run: str, unasked: Sequence[Step | None]) -> Diverged:
    told = ", ".join(f"{step.tool} ({step.id}, {step.state})" for step in unasked[:5] if step is not None)
    more = f" and {len(unasked) - 5} more" if len(unasked) > 5 else ""
    return Diverged(
        "This attempt makes a call with effects that the run's record does not have, while it has not asked "
        f"for what the record has of the same rule: {told}{more}. It may be the same intention in other "
        f"words, so it is held and nothing was sent. `semel runs diff {run}` shows what was not asked; "
        f"`semel runs allow {run} --reason WHY` lets the agent go its new way.",
        run=run,
    )
