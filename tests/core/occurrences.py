"""Rows of one call in a run, and who asks for it: as short as a test wants them."""

from __future__ import annotations

from dataclasses import replace

from proxy.core.frontier import Frontier
from proxy.core.intent import State
from proxy.core.occurrence import Ask
from proxy.core.runs import End, Exchange, Occurrence

NOWHERE = Frontier()


def ask(attempt: str = "a1", **more: object) -> Ask:
    return replace(Ask(attempt=attempt, safe=False, proxy="p1"), **more)  # type: ignore[arg-type]


def x(attempt: str = "a1", end: End = End.COMPLETE, **more: object) -> Exchange:
    made = Exchange(number=1, attempt=attempt, fence=1, owner="p1", end=end)
    return made._replace(**more)  # type: ignore[arg-type]


def row(n: int, *exchanges: Exchange, state: State | None = State.DONE, **more: object) -> Occurrence:
    numbered = tuple(e._replace(number=i) for i, e in enumerate(exchanges, 1))
    made = Occurrence(n=n, seq=n, safe=False, state=state, fence=1, claimed_by="a1", exchanges=numbered)
    return replace(made, **more)  # type: ignore[arg-type]
