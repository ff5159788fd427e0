"""The arguments of a run's calls, for commands that show them: read page by page, not call by call."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.admin.desk import Desk
    from proxy.admin.views import Json

# Up to so many are asked for one by one; a run may be much longer than what is wanted of it.
ONE_BY_ONE = 8


async def arguments_of(desk: Desk, detail: Json, wanted: Collection[str]) -> dict[str, object]:
    """By call. What cannot be read is left out."""
    if len(wanted) <= ONE_BY_ONE:
        found = [(await desk.call(call))["call"] for call in wanted]
        return {call["id"]: call["args"] for call in found}
    from proxy.store.base import Query

    known = set(wanted)
    arguments: dict[str, object] = {}
    for run in sorted({step["run"] for step in detail["steps"]}):
        after: int | None = None
        while True:
            page = await desk.calls(Query(run=run, limit=200, after=after))
            arguments |= {call["id"]: call["args"] for call in page["calls"] if call["id"] in known}
            after = page["next"]
            if after is None or len(arguments) == len(known):
                break
    return arguments
