"""The story of one step: who did, wrote and saw what, and which harm fell near it, in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.proof.kills.books import Line
from tests.proof.kills.checking import Accounts

NEAR = 0.7  # seconds from one of its lines


class Fault(NamedTuple):
    at: float
    what: str


def story_of(step: str, told: Accounts, books: Sequence[Line], faults: Sequence[Fault]) -> str:
    lines = [
        (line.at, f"upstream  {line.what} {line.kind}, serial {line.serial}, key {line.key or '-'}")
        for line in books
        if line.step == step
    ]
    for row in told.by_step[step]:
        for entry in row.history:
            moved = f"{entry.before} -> {entry.after}, fence {entry.fence}"
            lines.append((entry.at, f"record    {entry.event}: {moved}, {entry.actor}: {entry.why}"))
    for seen in told.seen_of[step]:
        waited, got = seen.at - seen.asked_at, seen.problem or seen.semel
        what = f"agent     {seen.log} waited {waited:.3f} s: {seen.status} {got} {seen.digest[:8]}"
        lines.append((seen.at, what))
    if not lines:
        return f"{step}: nobody knows of it"
    times = [at for at, _ in lines]
    begin = min(times)
    near = [fault for fault in faults if any(abs(fault.at - at) < NEAR for at in times)]
    lines += [(fault.at, f"harm      {fault.what}") for fault in near]
    now = [f"now       {row.state}, call {row.id}, answer {row.answered[:8]}" for row in told.by_step[step]]
    return "\n  ".join([step, *(f"{at - begin:+9.3f} {what}" for at, what in sorted(lines)), *now])
