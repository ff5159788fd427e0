"""What callers are told when a call is held, still running, or not theirs to repeat: the words for it."""

from __future__ import annotations

from datetime import UTC, datetime

from proxy.core.intent import Call, Doubt
from proxy.errors import IdentityCollision, InDoubt, InProgress, KeyConflict


def in_doubt(call: Call, doubt: Doubt) -> InDoubt:
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
        f"Whether this call took effect is not known ({doubt.reason}). It is held and not sent again. Find "
        f"out at the upstream, then settle it: `semel calls show {call.id} --proxy URL`, URL being this "
        "proxy's, says what is known and how.",
        **members,
    )


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


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
