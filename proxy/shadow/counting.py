"""What would have been: counted beside what is, and a line in the log where it would have differed.

An observer of the shadow's own machinery. Nobody else hears of it: what would be held needs no person.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.observe import Deaf, Served

UNJUDGED = "unjudged"
# Problems by which a call waits: for a person, or for what it cannot know.
HELD = frozenset({"in-doubt", "awaiting-approval", "diverged", "in-progress"})
# Nothing would have been different for the caller.
_UNCHANGED = frozenset({"executed", "passed", UNJUDGED})


def would(told: Served) -> str:
    """executed | replayed | joined | passed | held | refused | unjudged."""
    return "held" if told.problem in HELD else told.status


class ShadowObserver(Deaf):
    def __init__(self, count: Callable[[Served, str], None], note: Callable[..., None]) -> None:
        self._count = count
        self._note = note

    def served(self, told: Served) -> None:
        what = would(told)
        self._count(told, what)
        if what not in _UNCHANGED:
            more = {"problem": told.problem} if told.problem else {}
            self._note("shadow", would=what, upstream=told.upstream, rule=told.rule, call=told.call, **more)

    def noted(self, event: str, **fields: object) -> None:
        self._note(f"shadow-{event}", **fields)
