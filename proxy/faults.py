"""Named fault points: the places where a crash, a stall or an error would hurt most, each with a name.

Tests arm a point with an action: kill the process, raise, block. Nothing else arms them, and a point that
nobody armed costs one look at an empty dict.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Point(StrEnum):
    BEFORE_CLAIM = "before_claim"  # decided to claim, nothing written
    COMMIT_BEGUN = "commit_begun"  # in the writer: everything executed, COMMIT not yet given
    COMMITTED = "committed"  # in the writer: durable, nobody told yet
    CLAIMED = "claimed"  # the claim is durable, nothing sent
    BEFORE_FIRST_BYTE = "before_first_byte"
    REQUEST_SENT = "request_sent"
    ANSWER_HEAD = "answer_head"
    ANSWER_COMPLETE = "answer_complete"  # the answer is complete, not yet durable
    SETTLED = "settled"  # the answer is durable, the caller has not seen the end
    REPLY_STARTED = "reply_started"
    REPLY_ENDED = "reply_ended"
    BLOB_WRITTEN = "blob_written"  # content fsynced under a temporary name
    CALLS_COLLECTED = "calls_collected"  # a portion of calls is gone, durably; their blobs are still there
    BLOB_COLLECTED = "blob_collected"  # a blob is gone, others are not yet
    BLOB_RENAMED = "blob_renamed"  # under its own name, the directory not yet fsynced


@dataclass(slots=True)
class _Trap:
    action: Callable[[], None]
    skip: int
    left: int | None


_armed: dict[Point, _Trap] = {}
_lock = threading.Lock()  # points are reached from the event loop and from the store's threads


def reach(point: Point) -> None:
    """Called where the point is. What the action raises comes out here."""
    if _armed:
        _spring(point)


def _spring(point: Point) -> None:
    with _lock:
        trap = _armed.get(point)
        if trap is None:
            return
        if trap.skip > 0:
            trap.skip -= 1
            return
        if trap.left is not None:
            trap.left -= 1
            if trap.left <= 0:
                del _armed[point]
    trap.action()


def arm(point: Point, action: Callable[[], None], *, after: int = 0, times: int | None = None) -> None:
    """Let the first `after` passages go, then act on every further one, or on `times` of them."""
    with _lock:
        _armed[point] = _Trap(action, after, times)


def disarm_all() -> None:
    with _lock:
        _armed.clear()
